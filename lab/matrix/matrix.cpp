#include "lab/matrix/matrix.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "base/cores.h"
#include "base/joined.h"
#include "base/step_count.h"
#include "base/suggest.h"
#include "data/sha256.h"
#include "engine/config/check.h"
#include "engine/config/fields.h"
#include "engine/config/text.h"
#include "lab/cluster/predict.h"
#include "models/audit/branch.h"
#include "models/audit/contract.h"
#include "models/audit/horizon.h"
#include "models/decoder/decoder.h"
#include "models/decoder/training_memory.h"
#include "models/linear/precision.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> known_precisions() {
  for (const FieldRow& row : all_config_fields()) {
    if (row.path == "precision.recipe") return row.check.choices;
  }
  return {};
}

void require_known(const MatrixFile& file, const std::string& precision) {
  const std::vector<std::string> known = known_precisions();
  if (std::count(known.begin(), known.end(), precision) > 0) return;
  const std::string near = nearest_name(precision, known);
  throw UserError(
      file.path + ": precision " + precision + " is unknown",
      (near.empty() ? "" : "did you mean " + near + "? ") + "known are " + joined(known, ", "));
}

// "" if the model can be trained in the precision: its widths are multiples of the blocks.
std::string why_unavailable(const Config& config, const std::string& precision) {
  PrecisionConfig formats = config.precision;
  formats.recipe = precision;
  const PrecisionTable table = precision_table(formats, config.model);
  try {
    require_whole_blocks(table, config.model);
  } catch (const UserError& error) {
    return "precision " + precision + ": " + error.what();
  }
  return "";
}

// The model's configuration with the changes of the matrix, before any contract.
Config load_model(const MatrixFile& file, const MatrixModel& model) {
  std::vector<ConfigChange> changes = file.changes;
  changes.insert(changes.end(), model.changes.begin(), model.changes.end());
  changes.insert(changes.end(), file.sets.begin(), file.sets.end());
  return load_changed_config(model.config, changes);
}

const MatrixModel& model_called(const MatrixFile& file, const std::string& name) {
  const auto found = std::find_if(file.models.begin(), file.models.end(),
                                  [&](const MatrixModel& model) { return model.name == name; });
  CHECK(found != file.models.end(), "no model %s", name.c_str());
  return *found;
}

// Sets the contract's coefficient to the one at which the reference model takes its own steps.
void resolve_contract_reference(const MatrixFile& file, MatrixContract& contract,
                                ContractConfig& resolved) {
  if (contract.reference.empty()) return;
  const Config own = load_model(file, model_called(file, contract.reference));
  const bool in_seconds = contract.kind == ContractKind::kSeconds;
  if (in_seconds && own.contract.step_seconds == 0) {
    throw UserError("contract seconds has the reference " + contract.reference +
                        ", which is not trained yet, and how long its step takes is not given",
                    "give " + contract.reference +
                        " its seconds per step, set: {contract.step_seconds: 0.05}, or in place "
                        "of the reference the seconds: coefficient: 600 for ten minutes");
  }
  Reference reference = reference_of(contract.reference, own);
  if (in_seconds) reference.seconds = double(reference.steps) * own.contract.step_seconds;
  if (contract.kind != ContractKind::kSteps) {
    contract.coefficient =
        reference_coefficient(*contract.kind, reference, shared_experts(resolved));
    resolved.coefficient = contract.coefficient;
  }
  resolved.derived_from = strprintf("%s, %ld steps of %ld tokens", reference.name.c_str(),
                                    long(reference.steps), long(reference.config.run.batch_tokens));
  resolved.horizon = reference.steps;
}

// Threads per run when `jobs` runs share them.
int64_t threads_of_a_run(const MatrixFile& file) {
  const int64_t all = file.threads > 0 ? file.threads : usable_cores();
  return std::max<int64_t>(1, all / file.jobs);
}

void apply_contract(Config& config, const MatrixContract& contract,
                    const ContractConfig& resolved) {
  if (!contract.kind) {
    resolve_reference(config);
    return;
  }
  // There the reference sets the steps themselves.
  const bool of_reference = takes_run_steps(*contract.kind) && !contract.reference.empty();
  if (of_reference) config.run.steps = resolved.horizon;
  const double step_seconds = config.contract.step_seconds;
  config.contract = resolved;
  config.contract.horizon = 0;
  // Of the model, not of the contract: how long its own step takes.
  if (contract.kind == ContractKind::kSeconds) config.contract.step_seconds = step_seconds;
}

void resolve(Cell& cell, const MatrixFile& file, const ModelPlace& place) {
  Config& config = cell.config;
  config.run.seed = cell.seed;
  config.run.threads = threads_of_a_run(file);
  config.precision.recipe = cell.precision;
  validate(config);
  cell.known_steps = horizon_is_known(config);
  if (cell.known_steps) resolve_steps(config);
  cell.audit = audit(config);
  config.precision.recipe = resolved_recipe(config.precision.recipe, place.backend);
  // `auto` stays where it depends on the machine that trains. Without quantised products it does
  // not.
  const bool quantised = precision_table(config.precision, config.model).any();
  if (!quantised && config.precision.products == ProductsMode::kAuto) {
    config.precision.products = ProductsMode::kSimulated;
  }
}

// Where a branch with this contract leaves the trunk.
BranchSteps branch_steps(const Config& trunk, const MatrixContract& branch) {
  const double share = branch.branch_warmdown > 0 ? branch.branch_warmdown : warmdown_share(trunk);
  if (share == 0) {
    throw UserError("the model has no warm-down, so a branch has none either",
                    "give branch_warmdown: 0.2, or a schedule.warmdown_fraction to the model");
  }
  const BranchSteps at = branch_to(fraction_of_steps(horizon(trunk), branch.fraction), share);
  if (at.step > 0) return at;
  throw UserError(strprintf("a branch of %ld steps with a warm-down over %g of them leaves its "
                            "trunk at step 0",
                            long(at.steps), share),
                  branch.branch_warmdown > 0 ? "give a smaller branch_warmdown, or later branches"
                                             : "give branch_warmdown: 0.2, or later branches");
}

// A trunk keeps the checkpoints that its branches leave.
void add_branch_landings(Config& config, const MatrixFile& file, const MatrixContract& contract) {
  for (const MatrixContract& branch : file.contracts) {
    if (branch.branch_of != contract.name) continue;
    if (!config.contract.landings) config.contract.landings.emplace();
    config.contract.landings->push_back(double(branch_steps(config, branch).step) /
                                        double(horizon(config)));
  }
  if (config.contract.landings) config.contract.landings = landing_fractions(config.contract);
}

void make_branch_of(Cell& cell, const Cell& trunk, const MatrixContract& contract) {
  cell.trunk = trunk.run;
  const BranchSteps at = branch_steps(trunk.config, contract);
  cell.branch_step = at.step;
  cell.config = branch_config(trunk.config, at);
  cell.known_steps = true;
  cell.audit = trunk.audit;
}

struct PlannedBytes {
  // Of the device: with a GPU without what stays in the host's memory, and with what its process
  // takes there beside the plan.
  int64_t memory = 0;
  int64_t checkpoint = 0;  // of one
};

PlannedBytes planned_bytes(Config config, const ModelPlace& place) {
  resolve_precision(config, place.backend, place.capability);
  const Recipe recipe = resolve_recipe(config.precision.recipe);
  const TrainingMemory memory(config, recipe, place);
  size_t bytes = memory.plan.total_bytes();
  if (place.backend == Backend::kGpu) {
    bytes -= memory.plan.section_bytes(Section::kHostVisible);
    bytes -= memory.plan.section_bytes(Section::kData);
    bytes += size_t(kReservedBytes);
  }
  return {.memory = int64_t(bytes), .checkpoint = checkpoint_bytes(config, recipe)};
}

std::string rows_of(const Config& config) {
  Config rows = what_matters(config);
  // Given, it sets the steps; of a run it may be measured.
  if (config.contract.kind == ContractKind::kSeconds)
    rows.contract.step_seconds = config.contract.step_seconds;
  return to_yaml(rows);
}

// As earlier versions hashed: with the folders of what evaluations read.
Config with_data_by_name(Config config) {
  const auto name = [](const std::string& path) { return fs::path(path).filename().string(); };
  for (std::string& path : config.data.train) path = name(path);
  for (std::string& path : config.data.val) path = name(path);
  config.data.tokenizer = name(config.data.tokenizer);
  return config;
}

Config by_file_name(const Config& config) {
  Config named = with_data_by_name(config);
  const auto shorten = [](std::string& path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    path = fs::path(path).filename().string();
  };
  if (named.eval.core) shorten(named.eval.core->bundle);
  if (named.eval.samples) shorten(named.eval.samples->file);
  return named;
}

std::map<std::string, std::string> values_of(const Config& config) {
  std::map<std::string, std::string> values;
  for (const FieldRow& row : config_fields(config)) {
    values[row.path] = row.type == "section" && row.value.empty() ? "present" : row.value;
  }
  return values;
}

void require_different_names(const Matrix& matrix) {
  std::set<std::string> names;
  for (const Cell& cell : matrix.cells) {
    if (names.insert(cell.name).second) continue;
    throw UserError(matrix.file.path + ": two cells are called " + cell.name,
                    "give the models or contracts names that cannot be mixed up");
  }
}

std::string cell_name(const Cell& cell, const std::string& contract) {
  return cell.model + "-" + contract + "-" + cell.precision + "-seed" + std::to_string(cell.seed);
}

// Errors of `work` say where their contract is.
template <typename Work>
void for_contract(const MatrixContract& contract, const Work& work) {
  try {
    work();
  } catch (const UserError& error) {
    throw UserError(contract.where + ": " + error.what(), error.hint());
  }
}

// Errors of `work` are the model's; under: " under contract totalDN".
template <typename Work>
void for_model(const std::string& model, const std::string& under, const Work& work) {
  try {
    work();
  } catch (const UserError& error) {
    throw ModelError(model, "model " + model + under + ": " + error.what(), error.hint());
  }
}

}  // namespace

const Cell& Matrix::cell(const std::string& name) const {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) { return cell.name == name; });
  CHECK(found != cells.end(), "no cell %s", name.c_str());
  return *found;
}

std::vector<const Cell*> Matrix::order() const {
  std::vector<const Cell*> order;
  const auto add = [&](const Cell& one) {
    if (std::count(order.begin(), order.end(), &one) == 0) order.push_back(&one);
  };
  for (const int64_t seed : file.seeds) {
    for (const Cell& one : cells) {
      if (one.seed != seed || !one.trained()) continue;
      if (!one.trunk.empty()) add(cell(one.trunk));
      add(one);
    }
  }
  return order;
}

std::vector<std::string> setting_notes(const MatrixFile& file) {
  std::vector<std::string> notes = replaced_settings(file);
  if (file.contracts.front().kind) return notes;
  for (const MatrixModel& model : file.models) {
    for (const ConfigChange& change : model.changes) {
      if (!set_gives(change.set, "contract.step_seconds")) continue;
      try {
        const ContractConfig contract = load_model(file, model).contract;
        if (contract.kind == ContractKind::kSeconds || contract.step_seconds == 0) continue;
        notes.push_back(change.where + ": contract.step_seconds has no effect: contract.kind is " +
                        name_of(contract.kind));
      } catch (const UserError&) {  // lay_out() tells it
      }
    }
  }
  return notes;
}

Matrix lay_out(const MatrixFile& file, const ModelPlace& place) {
  Matrix matrix{.file = file, .cells = {}};
  std::map<std::string, std::string> run_of;                            // what matters -> cell
  std::map<std::pair<std::string, std::string>, PlannedBytes> planned;  // by model, precision
  for (MatrixContract& contract : matrix.file.contracts) {
    ContractConfig resolved;
    if (contract.kind) resolved.kind = *contract.kind;
    resolved.coefficient = contract.coefficient;
    resolved.fraction = contract.fraction;
    resolved.landings = contract.landings;
    resolved.shared_in_total = contract.shared_in_total;
    for_contract(contract, [&] { resolve_contract_reference(file, contract, resolved); });
    for (const std::string& precision : file.precisions) require_known(file, precision);
    for (const MatrixModel& model : file.models) {
      Config base;
      const std::string under = " under contract " + contract.name;
      for_model(model.name, "", [&] { base = load_model(file, model); });
      for_model(model.name, under, [&] { apply_contract(base, contract, resolved); });
      for (const std::string& precision : file.precisions) {
        for (const int64_t seed : file.seeds) {
          Cell cell;
          cell.model = model.name;
          cell.contract = contract.name;
          cell.precision = precision;
          cell.seed = seed;
          cell.name = cell_name(cell, contract.name);
          cell.config = base;
          cell.own_recipe = base.precision.recipe;
          cell.own_seed = base.run.seed;
          for_model(model.name, under, [&] {
            cell.unavailable = why_unavailable(base, precision);
            if (contract.branch_of.empty()) {
              resolve(cell, matrix.file, place);
              if (cell.known_steps) add_branch_landings(cell.config, matrix.file, contract);
            } else {
              make_branch_of(cell, matrix.cell(cell_name(cell, contract.branch_of)), contract);
            }
            if (!cell.unavailable.empty()) return;
            const auto [bytes, is_new] = planned.try_emplace({model.name, precision});
            if (is_new) bytes->second = planned_bytes(cell.config, place);
            cell.memory_bytes = bytes->second.memory;
            cell.disk = checkpoint_disk(cell.config, bytes->second.checkpoint);
          });
          cell.run = cell.unavailable.empty()
                         ? run_of.try_emplace(rows_of(cell.config), cell.name).first->second
                         : cell.name;
          matrix.cells.push_back(std::move(cell));
        }
      }
    }
  }
  require_different_names(matrix);
  return matrix;
}

Config what_matters(const Config& config) {
  const Config usual;
  Config c = config;
  c.run.threads = usual.run.threads;
  c.run.checkpoint_every = usual.run.checkpoint_every;
  c.run.checkpoint_minutes = usual.run.checkpoint_minutes;
  c.run.keep_checkpoints = usual.run.keep_checkpoints;
  c.data.max_epochs = usual.data.max_epochs;
  c.data.reference = usual.data.reference;
  c.data.check_tokenizer = usual.data.check_tokenizer;
  c.run.milestone_every = usual.run.milestone_every;
  c.run.keep_best = usual.run.keep_best;
  c.run.print_every = usual.run.print_every;
  c.eval.at_start = usual.eval.at_start;
  c.telemetry.collapse_stop = std::nullopt;  // changes only where a run stops
  c.data.cache = "";
  c.parallel = {.parts = c.parallel.batch_parts()};  // 0 until the run begins, on one rank
  if (c.precision.products == ProductsMode::kAuto) {
    c.precision.products = ProductsMode::kSimulated;  // before a machine resolved it
  }
  if (c.contract.kind == ContractKind::kSeconds) {
    c.run.steps = usual.run.steps;  // measured by the run, which says so and writes its landings
    c.contract.step_seconds = 0;
    c.contract.derived_from = "";
    c.contract.landings = landing_fractions(c.contract);
    return c;
  }
  const std::optional<std::vector<double>> landings = c.contract.landings;
  const int64_t horizon = c.contract.horizon;
  c.contract = usual.contract;
  c.contract.landings = landings;
  c.contract.horizon = horizon;
  return c;
}

std::vector<FieldDifference> matrix_differences(Config before, const Config& now) {
  // What the machine made of `auto` is no difference.
  if (now.precision.products == ProductsMode::kAuto) {
    before.precision.products = ProductsMode::kAuto;
  }
  const auto old_values = values_of(by_file_name(what_matters(before)));
  const auto new_values = values_of(by_file_name(what_matters(now)));
  std::vector<FieldDifference> differences;
  for (const auto& [path, value] : old_values) {
    const auto other = new_values.find(path);
    if (other != new_values.end() && other->second != value) {
      differences.push_back({.field = path, .before = value, .now = other->second});
    }
  }
  // Given, it sets the steps; what a run measured is no difference.
  if (before.contract.kind != ContractKind::kSeconds || now.contract.kind != before.contract.kind)
    return differences;
  const double old_seconds = given_step_seconds(before.contract),
               new_seconds = now.contract.step_seconds;
  const bool same_steps = new_seconds > 0 && before.run.steps == now.run.steps;
  if (old_seconds == new_seconds || same_steps) return differences;
  const auto shown = [](double s) { return s == 0 ? "measured" : strprintf("%.6g", s); };
  differences.push_back(
      {.field = "contract.step_seconds", .before = shown(old_seconds), .now = shown(new_seconds)});
  return differences;
}

// Where it stops a run, and so which loss is its last.
constexpr const char* kTargetLoss = "run.target_loss";

// Longer prompts of CORE are cut, so it depends on their length.
std::string different_prompts(const Matrix& matrix) {
  const Cell* first = nullptr;
  const auto tokens = [](const Cell& cell) {
    const int64_t most = cell.config.eval.core->max_tokens;
    return most > 0 ? most : cell.config.run.sequence;
  };
  for (const Cell& cell : matrix.cells) {
    if (!cell.configured || !cell.config.eval.core) continue;
    if (first == nullptr) first = &cell;
    if (tokens(cell) == tokens(*first)) continue;
    return strprintf("eval.core.max_tokens of %s is %ld, of %s %ld", cell.model.c_str(),
                     long(tokens(cell)), first->model.c_str(), long(tokens(*first)));
  }
  return "";
}

std::string config_sha256(const Config& config) {
  return sha256_hex(to_yaml(by_file_name(what_matters(config))));
}

bool is_config_sha256(const std::string& recorded, const Config& config) {
  Config hashed = what_matters(config);
  for (const bool checked : {true, false}) {
    hashed.data.check_tokenizer = checked;
    if (recorded == sha256_hex(to_yaml(by_file_name(hashed))) ||
        recorded == sha256_hex(to_yaml(with_data_by_name(hashed)))) {
      return true;
    }
  }
  return false;
}

std::string different_data(const Matrix& matrix) {
  const auto configured = [](const Cell& cell) { return cell.configured; };
  const auto found = std::find_if(matrix.cells.begin(), matrix.cells.end(), configured);
  if (found == matrix.cells.end()) return "";
  const Cell& first = *found;
  const auto values = [](const Config& config) {
    std::map<std::string, std::string> shown;
    for (const auto& [path, value] : values_of(what_matters(config))) {
      const bool measured = path == "eval.tokens" || path == "run.sequence" ||
                            path == kTargetLoss ||
                            (path == "eval.every" && config.run.target_loss > 0);
      if (path.rfind("data.", 0) == 0 || measured) shown[path] = value;
    }
    return shown;
  };
  const auto of_first = values(first.config);
  for (const Cell& cell : matrix.cells) {
    if (!cell.configured) continue;
    const auto of_cell = values(cell.config);
    for (const auto& [path, value] : of_first) {
      const auto other = of_cell.find(path);
      const std::string now = other == of_cell.end() ? "absent" : other->second;
      if (now == value) continue;
      return path + " of " + cell.model + " is " + now + ", of " + first.model + " " + value;
    }
  }
  return different_prompts(matrix);
}

}  // namespace assay
