// assay train: data, model, run directory, then engine/run/run.h.
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

// run.steps comes from the contract, but for one in seconds whose steps have no length yet.
Config load(const Arguments& a) {
  std::vector<std::string> sets = a.sets;
  if (a.steps) sets.push_back("run.steps=" + std::to_string(*a.steps));
  Config config = load_config(a.config, sets);
  const ContractConfig& contract = config.contract;
  if (a.steps && (contract.horizon > 0 || !contract.reference.empty() ||
                  (contract.kind != "steps" && contract.kind != "active-width"))) {
    throw UserError(strprintf("--steps %ld, but the contract %s fixes the steps", long(*a.steps),
                              contract.kind.c_str()),
                    "train part of it with --set contract.fraction=0.2, or --set "
                    "contract.kind=steps without contract.reference and contract.horizon");
  }
  resolve_reference(config);
  if (horizon_is_known(config)) resolve_steps(config);
  // What a run resumes with is what it began with, on whatever machine.
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend_of(a.device));
  if (config.run.threads == 0) {
    config.run.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
  return config;
}

// A contract in seconds: the steps have the length that they had when the run began, so that it
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

// The first tokens of the validation set, whole sequences.
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

// Formats by product, and what stands in for hardware that multiplies them.
void announce_precision(Log& log, const Config& config, const TrainDevice& device) {
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
    log.warn("precision.products: native: " + problem + ": all products are decoded");
  } else if (native) {
    log.warn("precision.products: native: a CPU multiplies none of these formats");
  }
  log.info(
      "  operands are rounded to these formats and multiplied in bf16: the numbers of the format, "
      "not its speed; a step takes longer than in bf16 (docs/precision.md: 1.02 to 1.86 times)");
}

// A checkpoint holds fp32 masters in every recipe, so another one goes on from it.
void announce_other_recipe(Log& log, const std::string& checkpoint, const TrainingState& before,
                           const Config& config) {
  const PrecisionConfig then =
      parse_config_text(before.config_yaml, checkpoint + "/state.json", checkpoint).precision;
  if (then == config.precision) return;
  log.warn(
      strprintf("precision: the checkpoint was trained in %s, the run goes on in %s: the "
                "weights are made anew from its fp32 masters",
                precision_text(then).c_str(), precision_text(config.precision).c_str()));
}

// Training may go on without what is not finite (the row of a token that the data has not), and a
// guard ends a run that does not: this says where to look before it does.
void announce_not_finite(Log& log, const std::string& checkpoint, const std::string& what) {
  if (what.empty()) return;
  log.warn(
      strprintf("the checkpoint %s is not finite: %s; what is computed from it is no number. "
                "Remove the checkpoint's folder to go on from the one before",
                checkpoint.c_str(), what.c_str()));
}

void announce(Log& log, const Config& config, const Audit& counts, const MemoryPlan& plan,
              const TrainDevice& device, int64_t steps_done) {
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

// A run that was complete already has its figures in telemetry.db.
void fill_from_telemetry(const RunDir& dir, RunResult& result) {
  const TelemetryReader reader(dir.file("telemetry.db"));
  if (const auto loss = reader.last_eval("val", "loss_nats")) result.val_loss_nats = loss->value;
  if (const auto bpb = reader.last_eval("val", "bits_per_byte")) {
    result.val_bits_per_byte = bpb->value;
  }
}

// The run as its directory tells it, for the summary; nothing when somebody took its telemetry
// away.
std::optional<RunRecord> recorded(Log& log, const RunDir& dir) {
  try {
    return read_run(dir.path());
  } catch (const UserError& error) {
    log.warn(std::string("no summary: ") + error.what());
    return std::nullopt;
  }
}

// 0 stands for a figure that was not measured.
nlohmann::json or_null(double figure) {
  return figure > 0 ? nlohmann::json(figure) : nlohmann::json();
}

void log_lines(Log& log, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) log.info(line);
}

// The analysis of `assay router`, and the way on.
void report_collapse(Log& log, const RunResult& result, const RunRecord& record) {
  log_lines(log, router_text(analyse_router(record, {})));
  log.info("error: the routers collapsed by telemetry.collapse_stop: " + result.why);
  log.info(strprintf(
      "hint: a checkpoint of step %ld is kept; the same command with --set "
      "telemetry.collapse_stop=null goes on from there, and docs/router.md says what may help",
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
    log.info(strprintf("the same command%s goes on from here", a.fresh ? " without --fresh" : ""));
  }
  const std::optional<RunRecord> record = recorded(log, dir);
  if (record) {
    for (const std::string& summary : summary_lines(*record)) log.info(summary);
  }
  if (result.end == RunEnd::kNonFinite && !result.why.empty()) {
    log.info(strprintf("error: step %ld: %s", long(result.steps_done), result.why.c_str()));
    log.info(
        "hint: what overflowed lies before it: lower optimizer.lr or set optimizer.clip; the last "
        "checkpoint is kept");
  } else if (result.end == RunEnd::kNonFinite) {
    log.info("error: the loss or a gradient is no number any more at step " +
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

// The checkpoint that the run goes on from; nothing for one that has none yet.
std::optional<std::string> newest_checkpoint(const Checkpoints& checkpoints) {
  const std::optional<std::string> newest = checkpoints.newest();
  const std::vector<std::string> all = checkpoints.all();
  if (newest || all.empty()) return newest;
  throw UserError(strprintf("none of the %zu checkpoints of the run is valid; %s: %s", all.size(),
                            all.back().c_str(), checkpoint_problem(all.back()).c_str()),
                  "train in another --run, or start over with --fresh, which deletes them");
}

// A run that saved checkpoints and has none now was not stopped early: somebody moved them, and
// starting over would delete its telemetry.
void require_never_saved(const RunDir& dir) {
  const int64_t saved = TelemetryReader(dir.file("telemetry.db")).events("checkpoint");
  if (saved == 0) return;
  throw UserError(
      strprintf("%s saved %ld checkpoints, and none is there now", dir.path().c_str(), long(saved)),
      "put its checkpoints back, or start over with --fresh, which deletes the run");
}

// What the run says from now on can be recomputed. A run is no worse for a receipt that could not
// be written.
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
  const TrainDevice device = a.plan ? TrainDevice() : choose_device(a.device);
  const Backend backend = a.plan ? backend_of(a.device) : device.backend();
  Config config = load(a);
  const Audit counts = audit(config);
  const Recipe recipe = resolve_recipe(config.precision.recipe);
  const RunData data = resolve_data(config);
  if (!horizon_is_known(config) && !a.plan) resolve_seconds(a, config, data, device.context());
  const int32_t mask_id = config.data.mask_eos ? data.eot : -1;

  const std::string path = run_path(a);
  if (!a.fresh) require_tokenizer_of_run(path, config, data);
  std::unique_ptr<Log> log;  // once there is a run directory
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
  const auto interrupted = [&, steps_here = int64_t{0}]() mutable {  // asked after each step
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
  recorder.telemetry().flush();  // the receipt and the summary read it
  log->set_bar("");
  seal(*log, dir);
  report(*log, a, dir, result, config);
  return exit_code(result.end);
}

}  // namespace

void add_train_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub =
      commands.app.add_subcommand("train", "train a model; the same command again resumes it");
  sub->add_option("CONFIG", a->config, "configuration file, e.g. models/presets/cpu/moe.yaml");
  add_set_option(sub, a->sets);
  sub->add_option("--run", a->run, "run directory (runs/<name of CONFIG>)");
  sub->add_option("--device", a->device, "auto (the GPU where one can be used), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_option("--steps", a->steps, "the same as --set run.steps=N");
  sub->add_option("--stop-after", a->stop_after,
                  "stop after N steps from here as Ctrl-C would; the schedule stays")
      ->check(above_zero());
  sub->add_flag("--fresh", a->fresh, "delete the run that is there and start over");
  sub->add_flag("--plan", a->plan, "print the memory plan and stop");
  sub->add_flag("--json", a->json, "one JSON object on stdout at the end");
  sub->add_flag("--help-config", a->help_config, "every field of a configuration, and stop");
  sub->footer(
      "Examples:\n"
      "  assay train models/presets/cpu/moe.yaml                    train, on generated stories\n"
      "  assay train models/presets/cpu/moe.yaml --set run.seed=2 --run runs/moe-seed2\n"
      "  assay train models/presets/cpu/moe.yaml --plan             memory by name, nothing "
      "allocated\n"
      "Ctrl-C writes a checkpoint and exits with 130; the same command goes on from there.\n"
      "Exit 3: a guard of the run stopped it: the loss or a quantised operand is no number any "
      "more, or\n"
      "telemetry.collapse_stop holds.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return train(*a);
  });
}

}  // namespace assay
