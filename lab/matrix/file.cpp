#include "lab/matrix/file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/suggest.h"
#include "engine/config/fields.h"
#include "engine/config/paths.h"
#include "engine/config/scalar.h"
#include "engine/config/yaml_source.h"
#include "lab/matrix/claim_file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnHint = "use seeds, precisions, contracts and threads of the matrix";
// Of each model its own: how long its step takes, whatever the contract.
constexpr const char* kStepSeconds = "contract.step_seconds";
constexpr const char* kStepHint =
    "a step of each model takes its own time: {config: moe.yaml, set: {contract.step_seconds: "
    "0.05}}";

// The fields that `key: value` sets: run: {seed: 1, threads: 2} sets run.seed and run.threads.
std::vector<std::string> fields_in(const std::string& key, const YAML::Node& value) {
  if (!value.IsMap() || value.size() == 0) return {key};
  std::vector<std::string> fields;
  for (const auto& entry : value) {
    const std::string below = entry.first.IsScalar() ? entry.first.Scalar() : "";
    for (const std::string& field : fields_in(key + "." + below, entry.second)) {
      fields.push_back(field);
    }
  }
  return fields;
}

bool is_or_is_in(const std::string& field, const std::string& section) {
  return field == section || field.rfind(section + ".", 0) == 0;
}

// The fields that --set gives. None if it is no change: where it is applied, the error is said.
std::vector<std::string> fields_of_set(const std::string& set) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos) return {};
  try {
    return fields_in(set.substr(0, equals), YAML::Load(set.substr(equals + 1)));
  } catch (const YAML::Exception&) {
    return {};
  }
}

// Whether one of the changes gives a field that `set` gives too, in other words.
bool is_replaced(const std::vector<ConfigChange>& changes, const std::string& set) {
  const std::vector<std::string> given = fields_of_set(set);
  const auto gives = [&](const std::string& own) {
    return std::any_of(given.begin(), given.end(), [&](const std::string& field) {
      return is_or_is_in(own, field) || is_or_is_in(field, own);
    });
  };
  return std::any_of(changes.begin(), changes.end(), [&](const ConfigChange& change) {
    const std::vector<std::string> own = fields_of_set(change.set);
    return change.set != set && std::any_of(own.begin(), own.end(), gives);
  });
}

// --set of what the matrix sets itself would have no effect. Without contracts the models' own one
// can be changed, and what the matrix says nothing of always.
void require_effect(const std::string& set, const MatrixFile& file) {
  std::vector<std::string> own = {"run.seed", "run.threads", "precision.recipe"};
  if (file.contracts.front().kind) own.emplace_back("contract");
  for (const std::string& field : fields_of_set(set)) {
    for (const std::string& one : own) {
      if (!is_or_is_in(field, one)) continue;
      throw UserError(
          "--set " + set + ": " + field + " is set by the matrix itself",
          std::string(field == kStepSeconds ? kStepHint : kOwnHint) + " (" + file.path + ")");
    }
  }
}

// Reads one file; every message begins with its name and a line.
class Reader : SectionReader {
 public:
  Reader(MatrixFile& file, const YamlSource& source) : SectionReader(source), file_(file) {}

  void read(const YAML::Node& root) {
    if (root.IsNull()) fail(root, "the matrix is empty", kMatrixHint);
    read_section(root, "the matrix",
                 {
                     {"name", [&](const auto& v) { file_.name = plain_name(v, "name"); }},
                     {"models", [&](const auto& v) { read_models(v); }},
                     {"contracts", [&](const auto& v) { read_contracts(v); }},
                     {"precisions", [&](const auto& v) { read_precisions(v); }},
                     {"seeds", [&](const auto& v) { read_seeds(v); }},
                     {"claims", [&](const auto& v) { file_.claims = read_claims(*this, v); }},
                     {"set", [&](const auto& v) { read_changes(v, file_.changes, Of::kAll); }},
                     {"jobs", [&](const auto& v) { file_.jobs = count(v, "jobs", 1); }},
                     {"threads", [&](const auto& v) { file_.threads = count(v, "threads", 0); }},
                     {"device", [&](const auto& v) { file_.device = device(v); }},
                     {"memory", [&](const auto& v) { file_.memory_bytes = memory(v); }},
                 });
    if (file_.models.empty()) {
      fail(root, "models is not given", "name them: models: {dense: dense.yaml, moe: moe.yaml}");
    }
    for (const MatrixContract& c : file_.contracts) {
      if (!c.reference.empty()) require_model(c.where, "reference", c.reference);
    }
    require_seconds();
  }

 private:
  enum class Of { kAll, kOne };  // of models that a `set` changes

  // Under other contracts the length of a step would have no effect.
  void require_seconds() const {
    const auto in_seconds = [](const MatrixContract& c) {
      return c.kind == ContractKind::kSeconds;
    };
    const std::vector<MatrixContract>& contracts = file_.contracts;
    if (contracts.empty() || std::any_of(contracts.begin(), contracts.end(), in_seconds)) return;
    for (const MatrixModel& model : file_.models) {
      for (const ConfigChange& change : model.changes) {
        if (!set_gives(change.set, kStepSeconds)) continue;
        throw UserError(change.where + ": " + kStepSeconds +
                            " has no effect: no contract of the matrix is in seconds",
                        "remove it, or add a contract: {kind: seconds, coefficient: 600}");
      }
    }
  }

  std::string plain_name(const YAML::Node& node, const std::string& what) const {
    const std::string name = text(node, what);
    if (!is_plain_name(name)) {
      fail(node, what + " " + name + " cannot be part of a folder's name",
           "letters, digits, . _ and -, beginning with a letter or digit");
    }
    return name;
  }
  int64_t count(const YAML::Node& node, const std::string& what, int64_t low) const {
    const ReadInt read = read_int(text(node, what));
    if (!read.problem.empty()) fail(node, what + " " + read.problem, kMatrixHint);
    if (read.value < low || read.value > 1024) {
      fail(node, what + " = " + std::to_string(read.value) + " is out of range",
           strprintf("from %ld to 1024", static_cast<long>(low)));
    }
    return read.value;
  }
  bool yes_or_no(const YAML::Node& node, const std::string& what) const {
    const std::string given = text(node, what);
    if (given == "true" || given == "false") return given == "true";
    fail(node, what + " " + given + " is neither true nor false", "write true or false");
  }
  std::string device(const YAML::Node& node) const {
    const std::string name = text(node, "device");
    if (name == "cpu" || name == "cuda" || name == "auto") return name;
    fail(node, "device " + name + " is unknown", "cpu, cuda or auto (the GPU if one is usable)");
  }
  int64_t memory(const YAML::Node& node) const {
    const std::string given = text(node, "memory");
    const std::optional<int64_t> bytes = read_bytes(given);
    if (!bytes || *bytes <= 0) {
      fail(node, "memory " + given + " is not an amount of memory", "e.g. memory: 8GiB");
    }
    return *bytes;
  }

  std::vector<double> fractions(const YAML::Node& node, const std::string& what) const {
    std::vector<double> all;
    if (node.IsSequence() && node.size() == 0) return all;
    each_item(node, what,
              [&](const YAML::Node& item) { all.push_back(share(item, what, "horizon")); });
    return all;
  }

  std::string model_path(const YAML::Node& node, const std::string& what) const {
    const fs::path path = (fs::path(source().folder) / text(node, what)).lexically_normal();
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) {
      fail(node, what + ": " + path.string() + " does not exist",
           "a model is a configuration file; paths start from the folder of the matrix");
    }
    return path.string();
  }

  // FILE, or {config: FILE, set: {...}}.
  void read_models(const YAML::Node& node) {
    walk(node, "models", [&](const std::string&, const YAML::Node& key, const YAML::Node& value) {
      MatrixModel model{.name = plain_name(key, "the model name"), .config = {}, .changes = {}};
      const std::string what = "models." + model.name;
      if (value.IsMap()) {
        read_section(value, what,
                     {
                         {"config", [&](const auto& v) { model.config = model_path(v, what); }},
                         {"set", [&](const auto& v) { read_changes(v, model.changes, Of::kOne); }},
                     });
        if (model.config.empty()) {
          fail(value, what + " has no config", "name a file: {config: moe.yaml, set: {...}}");
        }
      } else {
        model.config = model_path(value, what);
      }
      file_.models.push_back(model);
    });
  }

  void read_contracts(const YAML::Node& node) {
    each_item(node, "contracts", [&](const YAML::Node& item) {
      MatrixContract c;
      c.where = source().at(item);
      read_section(
          item, "a contract",
          {
              {"name", [&](const auto& v) { c.name = plain_name(v, "the contract name"); }},
              {"kind", [&](const auto& v) { c.kind = contract_kind(item, text(v, "kind")); }},
              {"coefficient", [&](const auto& v) { c.coefficient = number(v, "coefficient"); }},
              {"reference", [&](const auto& v) { c.reference = text(v, "reference"); }},
              {"fraction", [&](const auto& v) { c.fraction = number(v, "fraction"); }},
              {"landings", [&](const auto& v) { c.landings = fractions(v, "landings"); }},
              {"branches", [&](const auto& v) { c.branches = fractions(v, "branches"); }},
              {"branch_warmdown",
               [&](const auto& v) { c.branch_warmdown = share(v, "branch_warmdown", "steps"); }},
              {"shared_in_total",
               [&](const auto& v) { c.shared_in_total = yes_or_no(v, "shared_in_total"); }},
          });
      if (!c.kind) {
        fail(item, "a contract has no kind", "e.g. - {kind: activeDN, coefficient: 20}");
      }
      check_contract(item, c);
      if (c.name.empty()) c.name = c.kind_text();
      add_contract(item, c);
      for (const double end : c.branches) add_contract(item, branch_of(item, c, end));
    });
  }

  void add_contract(const YAML::Node& item, const MatrixContract& c) {
    for (const MatrixContract& other : file_.contracts) {
      if (other.name == c.name) {
        fail(item, "two contracts are called " + c.name,
             "remove one, or give them different names: {name: ..., kind: " + c.kind_text() + "}");
      }
    }
    file_.contracts.push_back(c);
  }

  MatrixContract branch_of(const YAML::Node& item, const MatrixContract& c, double end) const {
    if (end >= c.fraction) {
      fail(item,
           strprintf("contract %s: a branch ends at %g of the horizon, its trunk at %g",
                     c.name.c_str(), end, c.fraction),
           "branches end before the run that they leave");
    }
    if (c.kind == ContractKind::kSeconds) {
      fail(item, "contract seconds has branches, but its steps are known only when it trains",
           "give branches to another contract");
    }
    MatrixContract branch = c;
    branch.name = c.name + strprintf("-at-%g", end);
    branch.fraction = end;
    branch.branches.clear();
    branch.branch_of = c.name;
    return branch;
  }

  ContractKind contract_kind(const YAML::Node& item, const std::string& name) const {
    if (const auto kind = choice_named<ContractKind>(name)) return *kind;
    const std::vector<std::string> known = choice_names<ContractKind>();
    const std::string near = nearest_name(name, known);
    fail(item, "contract kind " + name + " is unknown",
         near.empty() ? check_text(one_of(known)) : "did you mean " + near + "?");
  }

  void check_contract(const YAML::Node& item, const MatrixContract& c) const {
    if (c.coefficient < 0) {
      fail(item,
           strprintf("contract %s: coefficient = %g is negative", c.kind_text().c_str(),
                     c.coefficient),
           "tokens per parameter, e.g. coefficient: 20");
    }
    if (!(c.fraction > 0 && c.fraction <= 1)) {
      fail(item,
           strprintf("contract %s: fraction = %g is out of range", c.kind_text().c_str(),
                     c.fraction),
           "a share of the horizon, above 0 and at most 1");
    }
    if (c.coefficient > 0 && !c.reference.empty()) {
      fail(item, "contract " + c.kind_text() + " has a coefficient and a reference",
           "the reference sets the coefficient: remove one");
    }
    if (c.kind == ContractKind::kSteps && c.coefficient > 0) {
      fail(item, strprintf("contract steps has a coefficient, %g", c.coefficient),
           "each model takes its run.steps; give set: {run.steps: ...}, or reference: MODEL");
    }
    if (c.branch_warmdown >= 1) {
      fail(item,
           strprintf("contract %s: branch_warmdown = %g leaves no step before the warm-down",
                     c.kind_text().c_str(), c.branch_warmdown),
           "a share of a branch's steps, above 0 and below 1, e.g. 0.2");
    }
    if (c.branch_warmdown > 0 && c.branches.empty()) {
      fail(item, "contract " + c.kind_text() + " has branch_warmdown, but no branches",
           "name where they end, e.g. branches: [0.2], or remove branch_warmdown");
    }
    if (!c.shared_in_total && c.kind != ContractKind::kTotalDN) {
      fail(item, "contract " + c.kind_text() + " has shared_in_total: false",
           "only totalDN counts shared experts or leaves them out: remove it");
    }
    const bool needs_one = c.kind == ContractKind::kActiveDN || c.kind == ContractKind::kTotalDN;
    if (needs_one && c.coefficient == 0 && c.reference.empty()) {
      fail(item, "contract " + c.kind_text() + " has no coefficient",
           "give tokens per parameter, coefficient: 20, or a model whose run sets it, reference: " +
               (file_.models.empty() ? "MODEL" : file_.models.front().name));
    }
  }

  void require_model(const std::string& where, const std::string& what,
                     const std::string& name) const {
    std::vector<std::string> known;
    for (const MatrixModel& model : file_.models) known.push_back(model.name);
    if (std::count(known.begin(), known.end(), name) > 0) return;
    const std::string near = nearest_name(name, known);
    throw UserError(where + ": " + what + " " + name + " is not a model of this matrix",
                    near.empty() ? "name one of models" : "did you mean " + near + "?");
  }

  void read_precisions(const YAML::Node& node) {
    each_item(node, "precisions", [&](const YAML::Node& item) {
      const std::string precision = text(item, "a precision");
      const auto& all = file_.precisions;
      if (std::count(all.begin(), all.end(), precision) > 0) {
        fail(item, "precision " + precision + " is listed twice", "remove one");
      }
      file_.precisions.push_back(precision);
    });
  }

  // One number could be meant as how many seeds.
  void require_list_of_seeds(const YAML::Node& node) const {
    if (node.IsSequence()) return;
    if (!node.IsScalar()) {
      fail(node, "seeds is " + yaml_kind(node) + ", not a list", "e.g. seeds: [1, 2, 3]");
    }
    const std::string& given = node.Scalar();
    const ReadInt read = read_int(given);
    if (!read.problem.empty() || read.value < 0) {
      fail(node, "seeds is " + given + ", not a list", "e.g. seeds: [1, 2, 3]");
    }
    fail(node, "seeds is the number " + given + ", not a list",
         "seeds is a list: [1, 2, 3], or [" + given + "] for the one seed " + given);
  }

  void read_seeds(const YAML::Node& node) {
    require_list_of_seeds(node);
    each_item(node, "seeds", [&](const YAML::Node& item) {
      const ReadInt read = read_int(text(item, "a seed"));
      if (!read.problem.empty()) fail(item, "a seed " + read.problem, "e.g. seeds: [1, 2, 3]");
      if (read.value < 0) fail(item, "seed " + item.Scalar() + " is negative", "seeds: [1, 2, 3]");
      if (std::count(file_.seeds.begin(), file_.seeds.end(), read.value) > 0) {
        fail(item, "seed " + item.Scalar() + " is listed twice",
             "the same run twice would count as two; give another seed");
      }
      file_.seeds.push_back(read.value);
    });
  }

  // The value as --set takes it. Numbers, truth values and null stay plain; the rest is quoted, so
  // that commas and brackets in it have no meaning.
  std::string flow(const YAML::Node& node) const {
    if (node.IsNull()) return "null";
    if (node.IsScalar()) {
      const std::string& word = node.Scalar();
      const bool plain = node.Tag() != "!" && (read_bool(word) || read_int(word).problem.empty() ||
                                               read_double(word).problem.empty());
      return plain ? word : yaml_scalar(word);
    }
    std::string all;
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) all += (all.empty() ? "" : ", ") + flow(item);
      return "[" + all + "]";
    }
    walk(node, "set", [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
      all += (all.empty() ? "" : ", ") + yaml_scalar(key) + ": " + flow(value);
    });
    return "{" + all + "}";
  }

  void read_changes(const YAML::Node& node, std::vector<ConfigChange>& changes, Of of) const {
    walk(node, "set", [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      for (const std::string& field : fields_in(key, value)) {
        if (field == kStepSeconds) {
          if (of == Of::kOne) continue;
          fail(at, "set: " + field + " would be that of all models", kStepHint);
        }
        for (const char* own : {"run.seed", "run.threads", "precision", "contract"}) {
          if (!is_or_is_in(field, own)) continue;
          fail(at, "set: " + field + " is varied by the matrix itself", kOwnHint);
        }
      }
      changes.push_back({.set = key + "=" + flow(value),
                         .where = source().at(at) + ": set " + key,
                         .folder = source().folder});
    });
  }

  MatrixFile& file_;
};

}  // namespace

bool set_gives(const std::string& set, const std::string& field) {
  const std::vector<std::string> given = fields_of_set(set);
  return std::any_of(given.begin(), given.end(), [&](const std::string& one) {
    return is_or_is_in(one, field) || is_or_is_in(field, one);
  });
}

std::vector<std::string> replaced_settings(const MatrixFile& file) {
  std::vector<std::string> notes;
  for (const ConfigChange& given : file.sets) {
    const auto replaced = std::count_if(
        file.models.begin(), file.models.end(),
        [&](const MatrixModel& model) { return is_replaced(model.changes, given.set); });
    if (replaced == 0) continue;
    std::string note =
        strprintf("--set %s replaces what %ld model%s", given.set.c_str(), long(replaced),
                  replaced == 1 ? " sets itself" : "s set themselves");
    const long others = long(file.models.size()) - long(replaced);
    if (others > 0) {
      note += strprintf(", and is given to the %ld other%s too", others, others == 1 ? "" : "s");
    }
    notes.push_back(note);
  }
  return notes;
}

std::optional<int64_t> read_bytes(const std::string& text) {
  size_t end = text.find_last_of("0123456789.");
  if (end == std::string::npos) return std::nullopt;
  // 1e9 has no unit; the e of an exponent is between digits.
  const std::string digits = text.substr(0, end + 1);
  std::string unit = text.substr(end + 1);
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  const ReadDouble read = read_double(digits);
  if (!read.problem.empty() || read.value < 0) return std::nullopt;
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && read.value * bytes < 0x1p62) {
      return static_cast<int64_t>(std::llround(read.value * bytes));
    }
  }
  return std::nullopt;
}

bool is_plain_name(const std::string& name) {
  const auto alphanumeric = [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0; };
  if (name.empty() || name.size() > 100 || !alphanumeric(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

MatrixFile load_matrix_file(const std::string& given, const std::vector<std::string>& sets) {
  const std::string path = preset_or_path(given);
  MatrixFile file;
  file.path = path;
  file.name = fs::path(path).stem().string();
  const YamlSource source = {.name = path, .folder = fs::absolute(path).parent_path().string()};
  Reader(file, source).read(parse_yaml(read_file(path), source));
  if (!is_plain_name(file.name)) {
    throw UserError(path + ": the file's name cannot be the name of a matrix",
                    "give one: name: my-matrix");
  }
  if (file.contracts.empty()) {
    file.contracts.emplace_back().where = path;
    file.contracts.back().name = "own";
  }
  file.precisions_given = !file.precisions.empty();
  if (!file.precisions_given) file.precisions = {"auto"};
  file.seeds_given = !file.seeds.empty();
  if (!file.seeds_given) file.seeds = {1};
  resolve_claims(file);
  for (const std::string& set : sets) {
    require_effect(set, file);
    file.sets.push_back(
        {.set = set, .where = "--set " + set, .folder = fs::current_path().string()});
  }
  return file;
}

}  // namespace assay
