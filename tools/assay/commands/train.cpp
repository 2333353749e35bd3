// assay train: sets up data, model and run directory, then calls run() of engine/run/run.h.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "engine/config/check.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/interrupt.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"
#include "lab/matrix/matrix.h"
#include "lab/receipt/make.h"
#include "lab/router/text.h"
#include "lab/runs/run_summary.h"
#include "models/audit/audit_report.h"
#include "models/audit/contract.h"
#include "models/decoder/training_memory.h"
#include "models/linear/native_products.h"
#include "models/linear/precision.h"
#include "models/parameters/table.h"
#include "session/build_info.h"
#include "tools/assay/commands.h"
#include "session/measure_step.h"
#include "session/run_data.h"
#include "session/run_evaluators.h"
#include "session/session_device.h"

namespace assay {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> sets;
  std::optional<std::string> run;
  std::string device = "auto";
  std::optional<int64_t> steps, stop_after;
  bool fresh = false, plan = false, json = false, help_config = false;
  std::vector<std::string> command;
};

std::string run_path(const Arguments& a) {
  return a.run.value_or("runs/" + std::filesystem::path(a.config).stem().string());
}

// The resolved configuration. run.steps comes from the contract, except for a contract in seconds
// whose step length is not measured yet.
Config load(const Arguments& a) {
  std::vector<std::string> sets = a.sets;
  if (a.steps) sets.push_back("run.steps=" + std::to_string(*a.steps));
  Config config = load_config(a.config, sets);
  const ContractConfig& contract = config.contract;
  if (a.steps && (contract.horizon > 0 || !contract.reference.empty() ||
                  (contract.kind != "steps" && contract.kind != "active-width"))) {
    throw UserError(strprintf("--steps %ld, but the contract %s fixes the steps", long(*a.steps),
                              contract.kind.c_str()),
                    "train a part of the contract with --set contract.fraction=0.2, or --set "
                    "contract.kind=steps and remove contract.reference and contract.horizon");
  }
  resolve_reference(config);
  if (horizon_is_known(config)) resolve_steps(config);
  // Written out, so that a run resumes with the recipe and threads it began with on any machine.
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend_of(a.device));
  if (config.run.threads == 0) {
    config.run.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
  return config;
}

// Resolves a contract in seconds. A run keeps the step length measured when it began, so that it
// ends at the same step however often it is stopped.
void resolve_seconds(const Arguments& a, Config& config, const RunData& data, gpu::Context* gpu) {
  const std::string before = run_path(a) + "/config.yaml";
  double& seconds = config.contract.step_seconds;
  if (!a.fresh && std::filesystem::exists(before)) {
    seconds = load_config(before).contract.step_seconds;
  }
  if (seconds == 0) {
    seconds = measured_step_seconds(config, resolve_recipe(config.precision.recipe), data, gpu);
  }
  std::string& from = config.contract.derived_from;
  from += std::string(from.empty() ? "" : "; ") + "step_seconds measured when the run began";
  resolve_steps(config);
}

// Whole sequences from the start of the validation set, about telemetry.probe_tokens tokens.
RouterProbe make_probe(const Config& config, const Batch& first) {
  const int64_t sequence = std::min(config.run.sequence, config.telemetry.probe_tokens);
  const int64_t wanted = std::max<int64_t>(1, config.telemetry.probe_tokens / sequence);
  const int64_t batch = std::min(wanted, first.token.dim[0] / sequence);
  return {.tokens = {.token = first.token.rows(0, batch * sequence),
                     .target = first.target.rows(0, batch * sequence),
                     .batch = batch,
                     .sequence = sequence},
          .every = config.telemetry.probe_every};
}

RecorderConfig recorder_config(const RunDir& dir, const Config& config, const RunData& data,
                               const Audit& counts, double peak, const Model& model) {
  RecorderConfig r{.telemetry_path = dir.file("telemetry.db"),
                   .steps = config.run.steps,
                   .batch_tokens = config.run.batch_tokens,
                   .flops_per_token = double(counts.flops_per_token),
                   .limit_flops_per_s = peak};
  for (const MixtureSource& source : data.mixture) r.sources.push_back(source.name);
  for (const QuantisedOperandState& s : model.quantised_operands()) {
    r.operands.push_back({.layer = s.layer,
                          .weight = s.weight,
                          .operand = s.operand,
                          .role = s.role,
                          .format = s.format});
  }
  for (int64_t l = 0; l < config.model.layers; ++l) {
    if (is_moe_block(config.model, l)) r.moe_layers.push_back(l);
  }
  if (!r.moe_layers.empty()) {
    r.experts = config.model.moe->experts;
  }
  return r;
}

// "landings of 37,813 steps: 2% at 757, 5% at 1,891"
std::string landings_text(const Config& config) {
  std::string text;
  for (const Landing& l : landings(config)) {
    text += strprintf("%s %g%% at %s", text.empty() ? "" : ",", 100 * l.fraction,
                      grouped(l.step).c_str());
  }
  return text.empty() ? "" : "landings of " + grouped(horizon(config)) + " steps:" + text;
}

// Logs the format of each product and whether the product is native or simulated.
void announce_precision(Log& log, const Config& config, const SessionDevice& device) {
  const PrecisionTable table = precision_table(config.precision, config.model);
  if (!table.any()) return;
  for (const std::string& row : precision_rows(table, config.model)) log.info("  " + row);
  if (const int64_t kept = table.bf16_first_layers + table.bf16_last_layers; kept > 0) {
    log.info(strprintf("  bf16 in %ld of %ld blocks: the first %ld, the last %ld",
                       long(std::min(kept, config.model.layers)), long(config.model.layers),
                       long(table.bf16_first_layers), long(table.bf16_last_layers)));
  }
  if (config.precision.bf16_tail > 0) {
    log.info(strprintf("  bf16 in all blocks from step %ld on", long(recipe_steps(config) + 1)));
  }
  const bool native = config.precision.products == "native";
  const std::string problem = native_problem(config.model, config.run.sequence);
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
  log.info(
      "  operands are rounded to these formats and multiplied in bf16: this shows the formats' "
      "rounding, not their speed; a step takes 1.02 to 1.86 times as long as in bf16 "
      "(docs/precision.md)");
}

// Warns when the recipe has changed. Checkpoints hold fp32 masters in every recipe, so any recipe
// can resume from them.
void announce_other_recipe(Log& log, const std::string& checkpoint, const TrainingState& before,
                           const Config& config) {
  const PrecisionConfig then =
      parse_config_text(before.config_yaml, checkpoint + "/state.json", checkpoint).precision;
  if (then == config.precision) return;
  log.warn(
      strprintf("precision: the checkpoint was trained in %s, the run continues in %s; the "
                "weights are quantised again from the checkpoint's fp32 masters",
                precision_text(then).c_str(), precision_text(config.precision).c_str()));
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

void announce(Log& log, const Config& config, const Audit& counts, const MemoryPlan& plan,
              const SessionDevice& device, int64_t steps_done) {
  const BuildInfo build = build_info();
  log.info(strprintf("assay %s commit %s%s, recipe %s, on %s, %ld threads", build.version.c_str(),
                     build.commit.c_str(), build.dirty ? " (modified)" : "",
                     config.precision.recipe.c_str(), device.name().c_str(),
                     long(config.run.threads)));
  log.info(
      strprintf("parameters: %s total, %s active; %.3g FLOPs per token; memory planned %.1f MiB",
                grouped(counts.total).c_str(), grouped(counts.active).c_str(),
                double(counts.flops_per_token), double(plan.total_bytes()) / (1 << 20)));
  const int64_t tokens = config.run.steps * config.run.batch_tokens;
  log.info(strprintf(
      "contract %s: %ld steps of %ld tokens, %s tokens: %.2f per total, %.2f per active parameter",
      config.contract.kind.c_str(), long(config.run.steps), long(config.run.batch_tokens),
      grouped(tokens).c_str(), double(tokens) / double(counts.total),
      double(tokens) / double(counts.active)));
  if (const std::string text = landings_text(config); !text.empty()) log.info(text);
  for (const std::string& line : differences_from_default(config)) log.info("  " + line);
  announce_precision(log, config, device);
  if (steps_done > 0) log.info("resumes after step " + std::to_string(steps_done));
}

int exit_code(RunEnd end) {
  switch (end) {
    case RunEnd::kSteps:
    case RunEnd::kTargetLoss:
      return kExitDone;
    case RunEnd::kNonFinite:
    case RunEnd::kCollapseStop:
      return kExitStoppedByGuard;
    case RunEnd::kInterrupted:
      return kExitInterrupted;
  }
  return kExitUserError;
}

// Reads the validation figures from telemetry.db; for a run that was already complete.
void fill_from_telemetry(const RunDir& dir, RunResult& result) {
  const TelemetryReader reader(dir.file("telemetry.db"));
  if (const auto loss = reader.last_eval("val", "loss_nats")) result.val_loss_nats = loss->value;
  if (const auto bpb = reader.last_eval("val", "bits_per_byte")) {
    result.val_bits_per_byte = bpb->value;
  }
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
void report_collapse(Log& log, const RunResult& result, const RunRecord& record) {
  log_lines(log, router_text(analyse_router(record, {})));
  log.info("error: the routers collapsed (telemetry.collapse_stop): " + result.why);
  log.info(strprintf(
      "hint: the checkpoint of step %ld is kept; to resume from it, run the same command with "
      "--set telemetry.collapse_stop=null; docs/router.md lists remedies",
      long(result.steps_done)));
}

void report(Log& log, const Arguments& a, const RunDir& dir, RunResult result,
            const Config& config) {
  if (result.val_loss_nats == 0) fill_from_telemetry(dir, result);
  std::string line = strprintf("%s at step %ld/%ld", run_end_name(result.end),
                               long(result.steps_done), long(config.run.steps));
  if (result.val_loss_nats > 0) line += strprintf(": val loss %.4f nats", result.val_loss_nats);
  if (result.val_bits_per_byte > 0) line += strprintf(", %.4f bits/byte", result.val_bits_per_byte);
  if (result.tokens_per_s > 0) line += strprintf(", %.0f tokens/s", result.tokens_per_s);
  log.info(line + ", run " + dir.path());
  if (result.end == RunEnd::kInterrupted) {
    log.info(strprintf("run the same command%s to resume", a.fresh ? " without --fresh" : ""));
  }
  const std::optional<RunRecord> record = recorded(log, dir);
  if (record) {
    for (const std::string& summary : summary_lines(*record)) log.info(summary);
  }
  if (result.end == RunEnd::kNonFinite && !result.why.empty()) {
    log.info(strprintf("error: step %ld: %s", long(result.steps_done), result.why.c_str()));
    log.info(
        "hint: the overflow happened in an earlier operation: lower optimizer.lr or set "
        "optimizer.clip; the last checkpoint is kept");
  } else if (result.end == RunEnd::kNonFinite) {
    log.info("error: loss or gradient is NaN or infinite at step " +
             std::to_string(result.steps_done));
    log.info("hint: lower optimizer.lr or set optimizer.clip; the last checkpoint is kept");
  }
  if (result.end == RunEnd::kCollapseStop && record) report_collapse(log, result, *record);
  if (!a.json) return;
  nlohmann::ordered_json json{{"end", run_end_name(result.end)},
                              {"run", dir.path()},
                              {"step", result.steps_done},
                              {"tokens", result.tokens},
                              {"val_loss_nats", or_null(result.val_loss_nats)},
                              {"val_bits_per_byte", or_null(result.val_bits_per_byte)},
                              {"tokens_per_s", result.tokens_per_s}};
  if (record) json.update(summary_json(*record));
  if (result.end == RunEnd::kCollapseStop) json["collapse_stop"] = result.why;
  if (result.end == RunEnd::kNonFinite && !result.why.empty()) json["not_finite"] = result.why;
  std::printf("%s\n", json.dump(1).c_str());
}

// The checkpoint to resume from; nothing if the run has none yet. UserError when none of the run's
// checkpoints is valid.
std::optional<std::string> newest_checkpoint(const Checkpoints& checkpoints) {
  const std::optional<std::string> newest = checkpoints.newest();
  const std::vector<std::string> all = checkpoints.all();
  if (newest || all.empty()) return newest;
  throw UserError(strprintf("none of the %zu checkpoints of the run is valid; %s: %s", all.size(),
                            all.back().c_str(), checkpoint_problem(all.back()).c_str()),
                  "train in another --run, or start over with --fresh, which deletes them");
}

// UserError when the run once saved checkpoints and has none now: somebody moved them, and starting
// over would delete its telemetry.
void require_never_saved(const RunDir& dir) {
  const int64_t saved = TelemetryReader(dir.file("telemetry.db")).events("checkpoint");
  if (saved == 0) return;
  throw UserError(
      strprintf("%s saved %ld checkpoints, but has none now", dir.path().c_str(), long(saved)),
      "put the checkpoints back, or start over with --fresh, which deletes the run");
}

// Writes the receipt by which `assay receipt verify` recomputes the run's figures. Failing to write
// it is only a warning.
void seal(Log& log, const RunDir& dir) {
  try {
    write_receipt(dir.file(kReceiptName), make_run_receipt(dir.path(), dir.path()));
  } catch (const std::exception& error) {
    log.warn(std::string("no receipt: ") + error.what());
  }
}

int train(const Arguments& a) {
  if (a.help_config) {
    std::fputs(help_config().c_str(), stdout);
    return kExitDone;
  }
  if (a.config.empty()) {
    throw UserError("no configuration given",
                    "assay train CONFIG.yaml; presets are in models/presets");
  }
  const SessionDevice device = a.plan ? SessionDevice() : choose_device(a.device);
  const Backend backend = a.plan ? backend_of(a.device) : device.backend();
  Config config = load(a);
  const Audit counts = audit(config);
  const Recipe recipe = resolve_recipe(config.precision.recipe);
  const RunData data = resolve_data(config);
  if (!horizon_is_known(config) && !a.plan) resolve_seconds(a, config, data, device.context());
  const int32_t mask_id = config.data.mask_eos ? data.eot : -1;

  const std::string path = run_path(a);
  if (!a.fresh) require_tokenizer_of_run(path, config, data);
  std::unique_ptr<Log> log;  // set once the run directory exists
  TrainingMemory memory(config, recipe, mask_id, backend);
  LoaderConfig order = loader_config(config, data);
  order.warn = [&](const std::string& text) {
    if (log) log->warn(text);
  };
  Loader loader(std::move(order));
  RunEvaluators evaluators(config, data, path);
  loader.plan(memory.plan);
  evaluators.plan(memory.plan, *memory.model);
  if (a.plan) {
    memory.plan.print(std::cout);
    if (horizon_is_known(config)) std::cout << mixture_table(loader, config);
    return kExitDone;
  }

  RunDir dir(path, a.fresh ? RunDir::Start::kFresh : RunDir::Start::kContinue);
  log = std::make_unique<Log>(dir.file("log.txt"));
  Checkpoints checkpoints(dir.path(), config.run.keep_checkpoints,
                          [&](const std::string& text) { log->warn(text); });
  const std::optional<std::string> newest = newest_checkpoint(checkpoints);
  const TrainingState before = newest ? load_state(*newest) : TrainingState();
  if (dir.previous()) require_same_run(dir, config, before.step);
  const std::map<std::string, std::string> data_sha256 = data_hashes(data);
  require_same_data(before, data_sha256);
  dir.write_config(config);

  Exec on{.threads = static_cast<int>(config.run.threads), .gpu = device.context()};
  memory.allocate(config, recipe, on.gpu);
  memory.bind(on);
  const double peak = peak_flop_per_s(device, on, recipe);
  RunRecorder recorder(recorder_config(dir, config, data, counts, peak, *memory.model), *log);
  recorder.telemetry().set_meta("matmul_limit_gflop_per_s", strprintf("%.1f", 1e-9 * peak));
  recorder.telemetry().set_meta("contract", config.contract.kind);
  if (dir.previous() && !newest) {
    require_never_saved(dir);
    recorder.telemetry().truncate_after(0, "from the beginning: there was no checkpoint yet");
  }
  const Interrupt interrupt;
  const auto interrupted = [&, steps_here = int64_t{0}]() mutable {  // called after each step
    return ++steps_here == a.stop_after || interrupt.requested();
  };
  RunParts parts{.config = config,
                 .on = on,
                 .model = *memory.model,
                 .optimizer = *memory.optimizer,
                 .loader = loader,
                 .evaluators = evaluators.all(),
                 .checkpoints = checkpoints,
                 .recorder = recorder,
                 .probe = make_probe(config, evaluators.validation.first()),
                 .interrupted = interrupted,
                 .stop_requested = [&] { return interrupt.requested(); }};
  parts.mask_id = mask_id;
  parts.data_sha256 = data_sha256;
  parts.landings = landings(config);
  const RunStart start = resume_or_initialise(parts, newest);
  write_meta(dir, {.command = a.command,
                   .build = build_info(),
                   .device = device.name(),
                   .threads = config.run.threads,
                   .recipe = config.precision.recipe,
                   .precision = precision_text(config.precision),
                   .config_sha256 = config_sha256(config),
                   .data_sha256 = data_sha256,
                   .first_step = start.steps_done});
  announce(*log, config, counts, memory.plan, device, start.steps_done);
  log_lines(*log, mixture_table(loader, config));
  if (newest) {
    announce_other_recipe(*log, *newest, before, config);
    announce_not_finite(*log, *newest, start.not_finite);
  }
  const RunResult result = run(parts, start);
  recorder.telemetry().flush();  // the receipt and the summary read telemetry.db
  log->set_bar("");
  seal(*log, dir);
  report(*log, a, dir, result, config);
  return exit_code(result.end);
}

}  // namespace

void add_train_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub =
      commands.app.add_subcommand("train", "train a model; repeat the command to resume");
  sub->add_option("CONFIG", a->config, "configuration file, e.g. models/presets/cpu/moe.yaml");
  add_set_option(sub, a->sets);
  sub->add_option("--run", a->run, "run directory (default: runs/<name of CONFIG>)");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_option("--steps", a->steps, "the same as --set run.steps=N");
  sub->add_option("--stop-after", a->stop_after,
                  "stop after N more steps, as Ctrl-C would; the schedule does not change")
      ->check(above_zero());
  sub->add_flag("--fresh", a->fresh, "delete the existing run and start over");
  sub->add_flag("--plan", a->plan, "print the memory plan and exit");
  sub->add_flag("--json", a->json, "print one JSON object on stdout at the end");
  sub->add_flag("--help-config", a->help_config, "list every field of a configuration and exit");
  sub->footer(
      "Examples:\n"
      "  assay train models/presets/cpu/moe.yaml                    train on generated stories\n"
      "  assay train models/presets/cpu/moe.yaml --set run.seed=2 --run runs/moe-seed2\n"
      "  assay train models/presets/cpu/moe.yaml --plan             list the planned memory,\n"
      "                                                             allocate nothing\n"
      "Ctrl-C writes a checkpoint and exits with 130; the same command resumes from it.\n"
      "Exit 3: a guard stopped the run: the loss, a gradient or a quantised operand is NaN or\n"
      "infinite, or the routers collapsed by the rule of telemetry.collapse_stop.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return train(*a);
  });
}

}  // namespace assay
