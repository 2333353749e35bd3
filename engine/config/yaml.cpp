#include "engine/config/yaml.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/suggest.h"
#include "data/utf8.h"
#include "engine/config/check.h"
#include "engine/config/collapse_auto.h"
#include "engine/config/field_range.h"
#include "engine/config/fields.h"
#include "engine/config/paths.h"
#include "engine/config/run_files.h"
#include "engine/config/scalar.h"
#include "engine/config/text.h"
#include "engine/config/yaml_source.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

std::string help_hint() {
  return "`assay train --help-config` lists every field";
}

// Of whole paths, the one whose last name is nearest; "" if none is near.
std::string nearest_path(const std::string& word, const std::vector<std::string>& paths) {
  const auto leaf_of = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  std::vector<std::string> leaves;
  for (const std::string& path : paths) leaves.push_back(leaf_of(path));
  const auto at = std::find(leaves.begin(), leaves.end(), nearest_name(word, leaves));
  return at == leaves.end() ? "" : paths[size_t(at - leaves.begin())];
}

// The field that other programs call so; "" if it is no name of theirs.
std::string field_called_elsewhere(const std::string& word) {
  static const std::map<std::string, const char*> names = {
      {"learning_rate", "optimizer.lr"},
      {"max_lr", "optimizer.lr"},
      {"betas", "optimizer.beta1 and optimizer.beta2"},
      {"grad_clip", "optimizer.clip"},
      {"max_grad_norm", "optimizer.clip"},
      {"warmup_steps", "schedule.warmup"},
      {"lr_scheduler", "schedule.decay"},
      {"batch_size", "run.batch_tokens (tokens of a step) or run.micro_batch (sequences at once)"},
      {"micro_batch_size", "run.micro_batch"},
      {"max_steps", "run.steps"},
      {"max_iters", "run.steps"},
      {"num_steps", "run.steps"},
      {"epochs", "run.steps, or contract.kind for tokens per parameter"},
      {"seq_len", "run.sequence"},
      {"seq_length", "run.sequence"},
      {"context_length", "run.sequence"},
      {"block_size", "run.sequence"},
      {"random_seed", "run.seed"},
      {"num_layers", "model.layers"},
      {"n_layer", "model.layers"},
      {"n_layers", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"num_heads", "model.heads"},
      {"n_head", "model.heads"},
      {"n_heads", "model.heads"},
      {"num_attention_heads", "model.heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"hidden_size", "model.hidden"},
      {"d_model", "model.hidden"},
      {"n_embd", "model.hidden"},
      {"intermediate_size", "model.ffn"},
      {"d_ff", "model.ffn"},
      {"num_experts", "model.moe.experts"},
      {"n_experts", "model.moe.experts"},
      {"num_experts_per_tok", "model.moe.top_k"},
      {"shared_experts", "model.moe.shared"},
      {"n_shared_experts", "model.moe.shared"},
      {"num_shared_experts", "model.moe.shared"}};
  const auto found = names.find(word);
  return found == names.end() ? "" : found->second;
}

[[noreturn]] void throw_unknown(const YamlSource& source, const YAML::Node& key,
                                const std::string& prefix) {
  const std::string& word = key.Scalar();
  std::vector<std::string> here, everywhere;
  std::string elsewhere;
  for (const FieldRow& row : all_config_fields()) {
    const size_t dot = row.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : row.path.substr(0, dot + 1);
    const std::string leaf = dot == std::string::npos ? row.path : row.path.substr(dot + 1);
    if (parent == prefix) here.push_back(leaf);
    if (leaf == word) elsewhere += (elsewhere.empty() ? "" : " or ") + row.path;
    everywhere.push_back(row.path);
  }
  const std::string place =
      prefix.empty() ? "at the top level" : "in " + prefix.substr(0, prefix.size() - 1);
  std::string what = source.at(key) + ": ";
  if (!elsewhere.empty()) {
    throw UserError(what + "misplaced key " + word + " " + place, "it belongs at " + elsewhere);
  }
  std::string near = field_called_elsewhere(word);
  if (near.empty()) near = nearest_name(word, here);
  if (near.empty()) near = nearest_path(word, everywhere);
  throw UserError(what + "unknown key " + word + " " + place,
                  (near.empty() ? "" : "did you mean " + near + "? ") + help_hint());
}

// Sets the field called `key` of one section.
class SetField {
 public:
  SetField(const YamlSource& source, const YAML::Node& key, const YAML::Node& value,
           const std::string& prefix)
      : source_(source), key_node_(key), key_(key.Scalar()), value_(value), prefix_(prefix) {}

  bool found() const { return found_; }

  template <typename T>
  void operator()(const char* name, T& field, const char* doc, const FieldCheck& check) {
    if (key_ != name) return;
    found_ = true;
    if constexpr (IsChoice<T>) {
      field = choice<T>(doc);
    } else if constexpr (IsOptionalChoice<T>) {
      if (value_.IsNull()) return field.reset();
      field = choice<typename OptionalChoice<T>::Enum>(doc);
    } else {
      set(field, check);
      require(out_of_range(field, check), doc, check);
    }
  }
  template <typename T>
  void section(const char* name, T& nested, const char*);
  template <typename T>
  void section(const char* name, std::optional<T>& nested, const char* doc) {
    if (key_ != name) return;
    if (value_.IsNull()) {
      found_ = true;
      nested.reset();
      return;
    }
    if constexpr (std::is_same_v<T, CollapseStopConfig>) {
      if (value_.IsScalar()) {
        found_ = true;
        nested = rule_named(value_.Scalar());
        return;
      }
    }
    if (!nested) nested.emplace();
    section(name, *nested, doc);
  }

 private:
  void require(const std::string& wrong, const char* doc, const FieldCheck& check) const {
    if (!wrong.empty()) fail(wrong, std::string(doc) + ": " + check_text(check));
  }
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw UserError(source_.at(key_node_) + ": " + prefix_ + key_ + " " + what, hint);
  }
  [[noreturn]] void wrong_type(const char* wanted) const {
    fail("is " + yaml_kind(value_) + ", not " + wanted, help_hint());
  }
  // The text of a plain scalar. A quoted scalar is always text, so it fails here.
  std::string plain(const char* wanted) const {
    if (!value_.IsScalar() || value_.Tag() == "!") wrong_type(wanted);
    return value_.Scalar();
  }
  double number(const YAML::Node& node, const FieldCheck& check) const {
    if (!node.IsScalar() || node.Tag() == "!") {
      fail("has " + yaml_kind(node) + ", not a number", help_hint());
    }
    return float_value(node.Scalar(), check, help_hint());
  }
  // Computations are in float, where such a number would be 0 or infinite.
  double float_value(const std::string& text, const FieldCheck& check,
                     const std::string& hint) const {
    const ReadDouble read = read_double(text);
    if (!read.problem.empty()) fail(read.problem, hint);
    const double size = std::fabs(read.value);
    if (size != 0 && size < double(std::numeric_limits<float>::min())) {
      fail("= " + text + " is 0 in float",
           strprintf("a number of at least %g%s; ", std::max(1.2e-38, check.low),
                     in_range(0, check) ? ", or 0" : "") +
               hint);
    }
    if (size > double(std::numeric_limits<float>::max())) {
      fail("= " + text + " is infinite in float", "a number of at most 3.4e38; " + hint);
    }
    return read.value;
  }

  CollapseStopConfig rule_named(const std::string& word) const {
    if (word == "auto") return collapse_auto();
    const std::string near = nearest_name(word, {"auto"});
    fail("is " + yaml_kind(value_) + ", not a section or auto",
         (near.empty() ? "" : "did you mean " + near + "? ") + help_hint());
  }

  template <IsChoice E>
  E choice(const char* doc) const {
    std::string text;
    const FieldCheck choices = one_of(choice_names<E>());
    set(text, choices);
    require(out_of_range(text, choices), doc, choices);
    return *choice_named<E>(text);
  }

  void set(bool& field, const FieldCheck&) const {
    const std::optional<bool> read = read_bool(plain("true or false"));
    if (!read) wrong_type("true or false");
    field = *read;
  }
  void set(int64_t& field, const FieldCheck&) const {
    const ReadInt read = read_int(plain("an integer"));
    if (!read.problem.empty()) fail(read.problem, help_hint());
    field = read.value;
  }
  void set(double& field, const FieldCheck& check) const {
    field = float_value(plain("a number"), check, help_hint());
  }
  void set(BiasRate& field, const FieldCheck& check) const {
    const std::string text = plain("a number or auto");
    if (text == "auto") {
      field = BiasRate::measured();
      return;
    }
    field = float_value(text, check, "a number, or auto; " + help_hint());
  }
  void set(std::optional<std::vector<double>>& field, const FieldCheck& check) const {
    if (value_.IsNull()) return field.reset();
    field.emplace();
    if (value_.IsScalar()) return field->push_back(number(value_, check));
    if (!value_.IsSequence()) wrong_type("a list of numbers");
    for (const YAML::Node& item : value_) field->push_back(number(item, check));
  }
  void set(std::optional<double>& field, const FieldCheck& check) const {
    if (value_.IsNull()) return field.reset();
    set(field.emplace(), check);
  }
  void set(std::string& field, const FieldCheck& check) const {
    if (!value_.IsScalar()) wrong_type("a string");
    field = check.path ? absolute(value_.Scalar()) : value_.Scalar();
  }
  void set(std::vector<std::string>& field, const FieldCheck& check) const {
    if (value_.IsNull())
      fail(std::string("is null; expected a list of ") + (check.path ? "paths" : "strings"),
           check.path ? strprintf("e.g. %s: [shards/*.bin]", key_.c_str()) : help_hint());
    if (!value_.IsScalar() && !value_.IsSequence()) wrong_type("a list of strings");
    field.clear();
    const auto add = [&](const YAML::Node& item) {
      if (!item.IsScalar())
        fail("has an item that is " + yaml_kind(item) + ", not a string", help_hint());
      field.push_back(check.path ? absolute(item.Scalar()) : item.Scalar());
    };
    if (value_.IsScalar()) return add(value_);
    for (const YAML::Node& item : value_) add(item);
  }
  std::string absolute(const std::string& path) const {
    if (path.empty()) return path;
    // The system would end the path there, and config.yaml name another one.
    if (path.find('\0') != std::string::npos)
      fail("has a path with a zero byte in it", "no file has such a name: write it without \\0");
    return path_in(source_.folder, path);
  }

  const YamlSource& source_;
  const YAML::Node& key_node_;
  std::string key_;
  const YAML::Node& value_;
  const std::string& prefix_;
  bool found_ = false;
};

// Walks the pairs, because yaml-cpp accepts a duplicate key and hides one of the two. `skip` is a
// key read elsewhere.
template <typename T>
void apply_section(T& section, const YAML::Node& node, const YamlSource& source,
                   const std::string& prefix, const char* skip = nullptr) {
  if (!node.IsMap()) {
    throw UserError(
        source.at(node) + ": " +
            (prefix.empty() ? "the configuration" : prefix.substr(0, prefix.size() - 1)) + " is " +
            yaml_kind(node) + ", not a section with `key: value` lines",
        help_hint());
  }
  std::set<std::string> seen;
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      throw UserError(
          source.at(pair.first) + ": a key is " + yaml_kind(pair.first) + ", not a name",
          help_hint());
    }
    const std::string key = pair.first.Scalar();
    if (!seen.insert(key).second) {
      throw UserError(source.at(pair.first) + ": duplicate key " + prefix + key,
                      "keep one of the two; a later file or --set may override it");
    }
    if (skip != nullptr && key == skip) continue;
    SetField set(source, pair.first, pair.second, prefix);
    visit(set, section);
    if (!set.found()) throw_unknown(source, pair.first, prefix);
  }
}

template <typename T>
void SetField::section(const char* name, T& nested, const char*) {
  if (key_ != name) return;
  found_ = true;
  apply_section(nested, value_, source_, prefix_ + key_ + ".");
}

// Reads includes first. `open`: the files being read, outermost first.
void apply_file(Config& config, const std::string& path, std::vector<std::string>& open);

void apply_text(Config& config, const std::string& text, const YamlSource& source,
                std::vector<std::string>& open) {
  const YAML::Node root = parse_yaml(text, source);
  if (root.IsNull()) {
    throw UserError(source.name + ": the configuration is empty",
                    "start from a preset in models/presets");
  }
  if (root.IsMap()) {
    for (const auto& pair : root) {
      if (!pair.first.IsScalar() || pair.first.Scalar() != "include") continue;
      const YAML::Node& files = pair.second;
      if (!files.IsScalar() && !files.IsSequence()) {
        throw UserError(source.at(pair.first) + ": include is " + yaml_kind(files) +
                            ", not a file or a list of files",
                        "include: other.yaml");
      }
      const auto include = [&](const YAML::Node& file) {
        if (!file.IsScalar() || file.Scalar().empty()) {
          throw UserError(source.at(file) + ": include names " + yaml_kind(file) + ", not a file",
                          "include: other.yaml");
        }
        const fs::path included = path_in(source.folder, file.Scalar());
        if (!fs::exists(included)) {
          throw UserError(
              source.at(file) + ": included file " + included.string() + " does not exist",
              "the path is relative to the folder of " + source.name);
        }
        apply_file(config, included.string(), open);
      };
      if (files.IsScalar()) include(files);
      for (const YAML::Node& file : files) include(file);
    }
  }
  apply_section(config, root, source, "", "include");
}

// Whether the file is the configuration that a run recorded.
bool is_of_run(const std::string& path) {
  const fs::path whole = fs::absolute(path);
  return whole.filename() == kRunConfig && is_run(whole.parent_path());
}

// The configuration of a run names every field that the version knew which wrote it. What it does
// not name was then as it is here.
void set_defaults_of_run(Config& config) {
  config.data.shuffle = false;
  config.eval.at_start = false;
  config.precision.products = ProductsMode::kSimulated;
}

// A run's config.yaml could not hold another text: other programs would not read it. What a run has
// recorded is read all the same.
void require_utf8(const std::string& text, const YamlSource& source) {
  const size_t wrong = first_not_utf8(text);
  if (wrong == text.size()) return;
  const int line = 1 + int(std::count(text.begin(), text.begin() + int64_t(wrong), '\n'));
  throw UserError(strprintf("%s: is not UTF-8: byte 0x%02x",
                            source.is_line ? source.name.c_str()
                                           : (source.name + ":" + std::to_string(line)).c_str(),
                            static_cast<unsigned char>(text[wrong])),
                  source.is_line ? "write it in UTF-8"
                                 : "save it as UTF-8, e.g. iconv -f LATIN1 -t UTF-8 FILE");
}

void apply_file(Config& config, const std::string& path, std::vector<std::string>& open) {
  if (fs::exists(fs::path(path) / "config.yaml")) {
    const std::string inside = (fs::path(path) / "config.yaml").string();
    throw UserError(path + " is a folder, not a configuration", "give " + inside);
  }
  // A configuration may be given as a pipe; that of a run, and what one includes, is a file.
  const bool is_given = open.empty() && fs::path(path).filename() != kRunConfig;
  const std::string text = is_given ? read_file(path) : read_regular_file(path);
  std::string file = fs::weakly_canonical(path).string();
  if (std::find(open.begin(), open.end(), file) != open.end()) {
    std::string circle;
    for (const std::string& name : open) circle += name + " -> ";
    throw UserError("includes form a cycle: " + circle + file, "remove one of these includes");
  }
  open.push_back(std::move(file));
  const YamlSource source = {.name = path, .folder = fs::absolute(path).parent_path().string()};
  if (is_of_run(path)) {
    set_defaults_of_run(config);
  } else {
    require_utf8(text, source);
  }
  apply_text(config, text, source, open);
  open.pop_back();
}

void apply_set(Config& config, const std::string& set, const YamlSource& source) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UserError(source.name + ": is not of the form section.field=value",
                    "e.g. --set optimizer.lr=1e-3");
  }
  YAML::Node value = parse_yaml(set.substr(equals + 1), source);
  std::string path = set.substr(0, equals);
  for (size_t dot = path.rfind('.'); !path.empty(); dot = path.rfind('.')) {
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    YAML::Node outer(YAML::NodeType::Map);
    outer.force_insert(name, value);
    value.reset(outer);
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }
  apply_section(config, value, source, "");
}

YamlSource command_line(const std::string& set) {
  return {.name = "--set " + set, .folder = fs::current_path().string(), .is_line = true};
}

// Whether a map has "section.field".
bool is_in(YAML::Node at, const std::string& field) {
  std::istringstream names(field);
  for (std::string name; std::getline(names, name, '.');) {
    if (!at.IsMap()) return false;
    YAML::Node inner = at[name];
    if (!inner.IsDefined()) return false;
    at.reset(inner);
  }
  return true;
}

Config finish(Config config, const std::string& folder) {
  // Relative only if it is the default.
  const fs::path cache = config.data.cache;
  if (!cache.empty()) config.data.cache = (fs::path(folder) / cache).lexically_normal().string();
  if (auto& moe = config.model.moe; moe && moe->router.bias_rate.automatic) {
    moe->router.bias_steps = moe->router.resolved_bias_steps();  // in the run's config.yaml
  }
  validate(config);
  return config;
}

Config parse_text(Config config, const std::string& text, const std::string& name,
                  const std::string& folder, const std::vector<std::string>& sets) {
  std::vector<std::string> open;
  const std::string absolute = fs::absolute(folder).string();
  apply_text(config, text, {.name = name, .folder = absolute}, open);
  for (const std::string& set : sets) apply_set(config, set, command_line(set));
  return finish(std::move(config), absolute);
}

}  // namespace

bool gives_field(const std::string& set, const std::string& field) {
  const std::string path = set.substr(0, set.find('='));
  if (path == field) return true;
  if (path.size() == set.size() || !field.starts_with(path + ".")) return false;
  return is_in(parse_yaml(set.substr(path.size() + 1), command_line(set)),
               field.substr(path.size() + 1));
}

bool names_field(const std::string& name, const std::string& field) {
  const std::string path = preset_or_path(name);
  if (fs::exists(path) && !fs::is_regular_file(path)) return true;  // a pipe cannot be read again
  return !is_of_run(path) &&
         is_in(parse_yaml(read_file(path), {.name = path, .folder = {}}), field);
}

void require_utf8_sets(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) require_utf8(set, command_line(set));
}

Config load_config(const std::string& name, const std::vector<std::string>& sets) {
  require_utf8_sets(sets);
  const std::string path = preset_or_path(name);
  Config config;
  std::vector<std::string> open;
  apply_file(config, path, open);
  for (const std::string& set : sets) apply_set(config, set, command_line(set));
  return finish(std::move(config), fs::absolute(path).parent_path().string());
}

Config load_changed_config(const std::string& name, const std::vector<ConfigChange>& changes) {
  const std::string path = preset_or_path(name);
  Config config;
  std::vector<std::string> open;
  apply_file(config, path, open);
  for (const ConfigChange& change : changes) {
    const YamlSource source = {.name = change.where, .folder = change.folder, .is_line = true};
    require_utf8(change.set, source);
    apply_set(config, change.set, source);
  }
  return finish(std::move(config), fs::absolute(path).parent_path().string());
}

Config parse_config_text(const std::string& text, const std::string& name,
                         const std::string& folder, const std::vector<std::string>& sets) {
  return parse_text(Config(), text, name, folder, sets);
}

Config parse_run_config_text(const std::string& text, const std::string& name,
                             const std::string& folder) {
  Config config;
  set_defaults_of_run(config);
  return parse_text(std::move(config), text, name, folder, {});
}

bool is_recorded_text(const std::string& text) {
  const auto read_in = [&](const std::string& folder) {
    Config config;
    const YamlSource source = {.name = "configuration", .folder = folder};
    apply_section(config, parse_yaml(text, source), source, "");  // a run's has no include
    return config;
  };
  try {
    Config config = read_in("/");
    config.data.cache = read_in("").data.cache;
    return to_yaml(config) == text;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace assay
