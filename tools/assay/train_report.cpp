#include "tools/assay/train_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/build_info.h"
#include "base/check.h"
#include "base/memory_units.h"
#include "cuda/product_library.h"
#include "cuda/scaled_matmul.h"
#include "engine/config/check.h"
#include "engine/config/collapse_auto.h"
#include "engine/config/paths.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "engine/run/imported_run.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/slow_rank.h"
#include "lab/router/text.h"
#include "lab/runs/contract_horizon.h"
#include "lab/runs/run_summary.h"
#include "lab/runs/time_to_target.h"
#include "models/audit/audit_report.h"
#include "models/audit/checkpoint_disk.h"
#include "models/linear/native_products.h"
#include "models/linear/precision.h"
#include "session/training_warnings.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

// "landings of 37,813 steps: 2% at 757, 5% at 1,891"
std::string landings_text(const Config& config) {
  std::string text;
  for (const Landing& l : landings(config)) {
    text += strprintf("%s %g%% at %s", text.empty() ? "" : ",", 100 * l.fraction,
                      grouped(l.step).c_str());
  }
  return text.empty() ? "" : "landings of " + grouped(horizon(config)) + " steps:" + text;
}

// Why the recipe quantises no product of this model; "" if it quantises one.
std::string unquantised(const PrecisionTable& table, const ModelConfig& model) {
  bool has_a_role = false;
  for (int r = 0; r < kProductRoles; ++r) {
    const ProductRole role = ProductRole(r);
    if (!has_role(model, role) || !table.of(role).any()) continue;
    has_a_role = true;
    for (int64_t l = 0; l < model.layers; ++l) {
      if (formats_of(table, role, l, model.layers).any()) return "";
    }
  }
  return has_a_role ? "all of its blocks are in bf16, by precision.bf16_first_layers and "
                      "bf16_last_layers"
                    : "it has none of the products that the recipe quantises";
}

// Logs the format of each product and whether the product is native or simulated.
void announce_precision(Log& log, const Config& config, const SessionDevice& device) {
  const PrecisionTable table = precision_table(config.precision, config.model);
  for (const std::string& line : idle_overrides(config.precision, config.model)) {
    log.warn("precision.override '" + line + "' has no effect: the model has no such products");
  }
  if (!table.any()) return;
  if (const std::string why = unquantised(table, config.model); !why.empty()) {
    log.warn("precision: no product of this model is quantised: " + why);
    return;
  }
  for (const std::string& row : precision_rows(table, config.model)) log.info("  " + row);
  if (const int64_t kept = table.bf16_first_layers + table.bf16_last_layers; kept > 0) {
    log.info(strprintf("  bf16 in %ld of %ld blocks: the first %ld, the last %ld",
                       long(std::min(kept, config.model.layers)), long(config.model.layers),
                       long(table.bf16_first_layers), long(table.bf16_last_layers)));
  }
  if (config.precision.bf16_tail > 0) {
    log.info(strprintf("  bf16 in all blocks from step %ld on", long(recipe_steps(config) + 1)));
  }
  const bool native = config.precision.products == ProductsMode::kNative;
  const std::string problem = native_problem(table, config.model, config.run.sequence);
  if (native && device.gpu && problem.empty()) {
    const int capability = device.gpu->facts().capability;
    for (const std::string& row : native_rows(table, config.model, capability)) {
      log.info("  " + row);
    }
    return;
  }
  if (native && device.gpu) {
    log.warn("precision.products: native: " + problem + ": all products are simulated in bf16");
  } else if (native) {
    log.warn("precision.products: native: a CPU has native products for none of these formats");
  }
  if (!native && device.gpu && problem.empty() && gpu::built_with_scaled_matmul() &&
      gpu::scaled_products_problem(gpu::product_library()).empty() &&
      has_native_product(table, config.model, device.gpu->facts().capability)) {
    log.info(
        "  this GPU can multiply some of these formats itself: --set precision.products=native");
  }
  log.info(as_installed(
      "  operands are rounded to these formats and multiplied in bf16: this shows the formats' "
      "rounding, not their speed; a step takes 1.02 to 1.86 times as long as in bf16 "
      "(docs/precision.md)"));
}

// Warns when the recipe has changed. Checkpoints hold masters that no recipe quantises, so any
// recipe can resume from them.
void announce_other_recipe(TrainingRun& run) {
  const std::optional<PrecisionConfig> then = run.other_precision_before();
  if (!then) return;
  run.log().warn(
      strprintf("precision: the checkpoint was trained in %s, the run continues in %s; the "
                "weights are quantised again from the checkpoint's masters",
                precision_text(*then).c_str(), precision_text(run.config().precision).c_str()));
}

// Warns when the loaded checkpoint has a non-finite value. Training may never read it (e.g. the
// embedding row of a token absent from the data); if it does, a guard ends the run.
void announce_not_finite(Log& log, const std::string& checkpoint, const std::string& what) {
  if (what.empty()) return;
  log.warn(
      strprintf("the checkpoint %s is not finite: %s; the run stops when a step computes NaN or "
                "inf from it. Remove the checkpoint's folder to resume from the previous one",
                checkpoint.c_str(), what.c_str()));
}

// Reads the validation figures from telemetry.db; for a run that was already complete.
void fill_from_telemetry(const RunDir& dir, RunResult& result) {
  const TelemetryReader reader(dir.file("telemetry.db"));
  if (const auto loss = reader.last_eval("val", "loss_nats")) result.val_loss_nats = loss->value;
  if (const auto bpb = reader.last_eval("val", "bits_per_byte")) {
    result.val_bits_per_byte = bpb->value;
  }
}

// The step of the last validation; nullopt if there was none.
std::optional<int64_t> validation_step(const RunDir& dir) {
  try {
    const auto last = TelemetryReader(dir.file("telemetry.db")).last_eval("val", "loss_nats");
    return last ? std::optional(last->step) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;  // the file is gone or damaged; recorded() says so
  }
}

// "run.target_loss = 5 did not stop the run, which was finished: it was met at step 40 (4.7948
// nats)"
std::string late_target_text(const RunRecord& record, double target) {
  const std::optional<TimeToTarget> met = time_to_target(record, target);
  return strprintf("run.target_loss = %g did not stop the run, which was finished: ", target) +
         (met ? strprintf("it was met at step %ld (%.4f nats)", long(met->steps), met->loss_nats)
              : "no validation met it");
}

// " (step 50)" if the last validation was at an earlier step than the run's last.
std::string validated_at(const RunDir& dir, int64_t steps_done) {
  const std::optional<int64_t> step = validation_step(dir);
  return !step || *step == steps_done ? "" : strprintf(" (step %ld)", long(*step));
}

// Names the rank that the others waited for in this launch, if there is one. first_step: steps done
// before it.
void report_slow_rank(Log& log, const RunDir& dir, int64_t first_step) {
  const TelemetryReader reader(dir.file("telemetry.db"));
  const std::optional<SlowRank> slow = slow_rank(rank_medians(reader.rank_steps(first_step)));
  if (!slow) return;
  log.info(as_installed(
      strprintf("rank %ld holds the others up: they wait for it %.0f%% of a step, median of "
                "%ld logged (docs/scale-out.md)",
                long(slow->rank), 100 * slow->share, long(slow->steps))));
}

// The run as read from its directory, for the summary; nothing if it is unreadable, e.g. because
// telemetry.db is gone.
std::optional<RunRecord> recorded(Log& log, const RunDir& dir) {
  try {
    return read_run(dir.path());
  } catch (const UserError& error) {
    log.warn(std::string("no summary: ") + error.what());
    return std::nullopt;
  }
}

// null for 0, which means not measured.
nlohmann::json or_null(double figure) {
  return figure > 0 ? nlohmann::json(figure) : nlohmann::json();
}

void log_lines(Log& log, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) log.info(line);
}

// Logs the analysis of `assay router`, the error and how to continue.
void report_collapse(Log& log, const RunResult& result, const RunRecord& record,
                     const std::string& same_command) {
  const TelemetryReader telemetry(telemetry_file(record.path));
  log_lines(log, router_text(analyse_router(record, telemetry, {})));
  log.info("error: stopped by telemetry.collapse_stop: the routers collapsed: " + result.why);
  log.info(as_installed(
      strprintf("hint: the checkpoint of step %ld is kept; to resume from it, run %s, with --set "
                "telemetry.collapse_stop=null; docs/router.md lists remedies",
                long(result.steps_done), same_command.c_str())));
}

// Logs what is NaN or infinite, and what helps.
void report_not_finite(Log& log, const RunDir& dir, const Config& config, const RunResult& result) {
  const std::optional<std::string> kept = Checkpoints(dir.path(), 1, {}).newest_by_name();
  const std::string left =
      kept ? "the checkpoint " + *kept + " is kept"
           : "there is no checkpoint yet: the same command begins again at step 1";
  std::string help = strprintf("lower optimizer.lr, which is %g", config.optimizer.lr);
  if (config.optimizer.clip == 0) help += ", or set optimizer.clip";
  help += is_imported(dir.path()) ? ", and import the model again: " + import_again(dir.path())
                                  : ", in another --run or with --fresh";
  if (result.why.empty()) {
    log.info("error: loss or gradient is NaN or infinite at step " +
             std::to_string(result.steps_done));
    log.info("hint: " + help + "; " + left);
    return;
  }
  log.info(strprintf("error: step %ld: %s", long(result.steps_done), result.why.c_str()));
  log.info("hint: the overflow happened in an earlier operation: " + help + "; " + left);
}

// "finished step 720/720", "stopped at step 7/200: routers collapsed"
std::string end_text(RunEnd end, int64_t done, int64_t steps) {
  const std::string at = strprintf("step %ld/%ld", long(done), long(steps));
  switch (end) {
    case RunEnd::kSteps:
      return "finished " + at;
    case RunEnd::kTargetLoss:
      return "reached the target loss at " + at;
    case RunEnd::kNonFinite:
      return "stopped at " + at + ", NaN or infinite";
    case RunEnd::kCollapseStop:
      return "stopped at " + at + ", routers collapsed";
    case RunEnd::kInterrupted:
      return "interrupted at " + at;
    case RunEnd::kStopAfter:
      return "stopped by --stop-after at " + at;
  }
  return at;
}

double uniform_loss(const ModelConfig& model) {
  return std::log(double(model.vocab_size));
}

// What the spread of the first logits adds to it in a new run; 0 if that is little.
double first_excess(const ModelConfig& model) {
  const double spread = model.head_init * model.logit_gain, excess = spread * spread / 2;
  return model.tie_embeddings || excess < 0.02 ? 0 : excess;
}

// What a new run's first loss should be compared with.
std::string first_loss_text(const ModelConfig& model) {
  std::string text =
      strprintf("a uniform guess has a loss of ln V = %.3f nats", uniform_loss(model));
  const double excess = first_excess(model);
  if (excess == 0) return text;
  return text + strprintf(
                    "; the first logits have a standard deviation of %g (model.head_init), "
                    "which adds about %.2f",
                    model.head_init * model.logit_gain, excess);
}

// That the last validation is above ln V and above the first one; "" otherwise. A short run that
// still comes down from its first loss is no such case.
std::string worse_than_guessing(const Config& config, const RunRecord& record) {
  const std::optional<EvalValue> last = record.last_val();
  if (!last) return "";
  const EvalValue& first = record.val_loss_nats.front();
  const double uniform = uniform_loss(config.model);
  const double began = first.step == 0 ? first.value : uniform + first_excess(config.model);
  if (!(last->value > std::max(uniform, began))) return "";
  return strprintf(
      "val loss %.2f is above ln V = %.2f nats: on the validation text the model is "
      "worse than a uniform guess; a smaller optimizer.lr, which is %g, or more "
      "training data may help",
      last->value, uniform, config.optimizer.lr);
}

// step: that the run has come to. The losses are of val_step, which may be an earlier one.
nlohmann::ordered_json result_json(const RunDir& dir, const RunResult& result,
                                   const std::optional<RunRecord>& record) {
  nlohmann::ordered_json json{{"end", run_end_name(result.end)},
                              {"run", dir.path()},
                              {"step", result.steps_done},
                              {"tokens", result.tokens},
                              {"val_step", nullptr},
                              {"val_loss_nats", or_null(result.val_loss_nats)},
                              {"val_bits_per_byte", or_null(result.val_bits_per_byte)},
                              {"tokens_per_s", or_null(result.tokens_per_s)}};
  const std::optional<int64_t> validated = validation_step(dir);
  if (result.val_loss_nats > 0 && validated) json["val_step"] = *validated;
  if (record) json.update(summary_json(*record));
  if (result.end == RunEnd::kCollapseStop) json["collapse_stop"] = result.why;
  if (result.end == RunEnd::kNonFinite && !result.why.empty()) json["not_finite"] = result.why;
  return json;
}

// Where the checkpoints of the run will not fit on its disk. Those that it has are there already.
void warn_of_full_disk(TrainingRun& run) {
  if (run.start().steps_done >= run.config().run.steps) return;
  const std::string& folder = run.dir().path();
  const CheckpointDisk disk = checkpoint_disk(run.config(), run.session().recipe);
  const int64_t there = int64_t(Checkpoints(folder, 1, {}).all().size());
  const int64_t first = is_imported(folder) ? 1 : 0;  // step 0, which stays
  const int64_t needed = disk.bytes_of(std::max<int64_t>(0, disk.most + first - there));
  const std::optional<int64_t> free = free_disk_bytes(folder);
  if (!free || needed <= *free) return;
  run.log().warn(
      strprintf("the disk of %s has %.1f MiB free, and checkpoints may take %.1f MiB more: %s "
                "(run.keep_checkpoints, run.milestone_every and contract.landings say how many)",
                folder.c_str(), in_mib(*free), in_mib(needed), checkpoint_disk_text(disk).c_str()));
}

// The device, parameters, memory, contract and what differs from the defaults.
void announce_setup(TrainingRun& run, const IsGiven& is_given) {
  Log& log = run.log();
  const Config& config = run.config();
  const Audit& counts = run.audit();
  const BuildInfo build = build_info();
  log.info(strprintf("assay %s commit %s%s, recipe %s, on %s, %ld threads", build.version.c_str(),
                     build.commit.c_str(), build.dirty ? " (modified)" : "",
                     config.precision.recipe.c_str(), run.session().device.name().c_str(),
                     long(run.session().threads)));
  log.info(strprintf(
      "parameters: %s total, %s active; %.3g FLOPs per token; memory planned %.1f MiB "
      "(%s bytes)",
      grouped(counts.total).c_str(), grouped(counts.active).c_str(), double(counts.flops_per_token),
      in_mib(run.plan().total_bytes()), grouped(int64_t(run.plan().total_bytes())).c_str()));
  const int64_t tokens = config.run.steps * config.run.batch_tokens;
  log.info(strprintf(
      "contract %s: %ld steps of %ld tokens, %s tokens: %.2f per total, %.2f per active parameter",
      name_of(config.contract.kind), long(config.run.steps), long(config.run.batch_tokens),
      grouped(tokens).c_str(), double(tokens) / double(counts.total),
      double(tokens) / double(counts.active)));
  if (const std::string text = landings_text(config); !text.empty()) log.info(text);
  if (const std::string text = run.passes_text(); !text.empty()) log.info(text);
  if (const std::string text = run.validation_text(); !text.empty()) log.info(text);
  Config told = config;
  // What `auto` becomes in most runs is no news.
  if (run.session().automatic_products && config.precision.products == ProductsMode::kSimulated) {
    told.precision.products = ProductsMode::kAuto;
  }
  for (const std::string& line : differences_from_default(told)) log.info("  " + line);
  if (const std::string text = collapse_auto_text(config); !text.empty()) log.info(text);
  announce_precision(log, config, run.session().device);
  const Ranks* ranks = run.session().ranks;
  const ProcessCores on{.cores = cores_of_rank(ranks), .processes = ranks ? ranks->size() : 1};
  for (const std::string& text : training_warnings(config, is_given, on)) log.warn(text);
  if (ranks == nullptr || ranks->first()) warn_of_full_disk(run);
  if (const std::string text = run.many_passes_text(); !text.empty()) log.warn(text);
  if (run.validation_tokens() < config.eval.tokens) {
    log.warn(
        strprintf("validation is on %s tokens: the validation data has no more whole "
                  "sequences (eval.tokens = %s)",
                  grouped(run.validation_tokens()).c_str(), grouped(config.eval.tokens).c_str()));
  }
  if (const int64_t done = run.start().steps_done; done > 0) {
    const bool last = done >= config.run.steps;
    log.info(strprintf("resumes after step %ld%s", long(done),
                       last ? ", which is its last: there is nothing left to train" : ""));
  } else {
    if (!run.begins_again().empty()) log.info(run.begins_again());
    if (const std::string text = too_few_for_a_verdict(config); !text.empty()) log.info(text);
    log.info(first_loss_text(config.model));
  }
}

}  // namespace

void announce_run(TrainingRun& run, const IsGiven& is_given) {
  announce_setup(run, is_given);
  log_lines(run.log(), run.mixture_table());
  if (const auto& checkpoint = run.checkpoint()) {
    announce_other_recipe(run);
    announce_not_finite(run.log(), *checkpoint, run.start().not_finite);
  }
}

void report_run(TrainingRun& run, RunResult result, TrainingRunOptions::Start start, bool json) {
  Log& log = run.log();
  const RunDir& dir = run.dir();
  if (result.val_loss_nats == 0) fill_from_telemetry(dir, result);
  log.set_quiet(Log::Quiet::kNo);
  std::string line = end_text(result.end, result.steps_done, run.config().run.steps);
  if (result.val_loss_nats > 0) {
    line += strprintf(": val loss %.4f nats", result.val_loss_nats);
    line += validated_at(dir, result.steps_done);
  }
  if (result.val_bits_per_byte > 0) line += strprintf(", %.4f bits/byte", result.val_bits_per_byte);
  if (result.tokens_per_s > 0) {
    line += ", " + grouped(std::llround(result.tokens_per_s)) + " tokens/s";
  }
  log.info(line);
  log.info("run: " + dir.path());
  const std::string same_command = start == TrainingRunOptions::Start::kFresh
                                       ? "the same command without --fresh"
                                       : "the same command";
  if (result.end == RunEnd::kInterrupted || result.end == RunEnd::kStopAfter)
    log.info("run " + same_command + " to resume");
  const std::optional<RunRecord> record = recorded(log, dir);
  if (record) {
    for (const std::string& summary : summary_lines(*record)) log.info(summary);
    if (const auto late = run.late_target()) log.info(late_target_text(*record, *late));
    report_slow_rank(log, dir, run.start().steps_done);
    if (result.end == RunEnd::kSteps) {
      for (const std::string& text :
           {worse_than_guessing(run.config(), *record), missed_seconds_text(*record)}) {
        if (!text.empty()) log.warn(text);
      }
    }
  }
  if (result.end == RunEnd::kNonFinite) report_not_finite(log, dir, run.config(), result);
  if (result.end == RunEnd::kCollapseStop && record)
    report_collapse(log, result, *record, same_command);
  if (json) print_json(result_json(dir, result, record));
}

}  // namespace assay
