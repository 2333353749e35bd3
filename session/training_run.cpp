#include "session/training_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/build_info.h"
#include "base/check.h"
#include "base/joined.h"
#include "comm/agree.h"
#include "engine/run/imported_run.h"
#include "engine/run/saved_run.h"
#include "engine/telemetry/reader.h"
#include "lab/matrix/matrix.h"
#include "lab/receipt/make.h"
#include "lab/runs/launches.h"
#include "models/audit/family.h"
#include "models/audit/horizon.h"
#include "models/linear/precision.h"
#include "models/parameters/expert_shares.h"
#include "session/data_evidence.h"
#include "session/eval_file.h"
#include "session/other_guessing.h"
#include "session/other_instructions.h"
#include "session/passed_landings.h"
#include "session/rank_memory.h"
#include "session/same_on_all.h"
#include "session/since_last_launch.h"
#include "session/step_measurements.h"

namespace assay {
namespace {

// Tells the other ranks, and notes what products take: of steps, all else is slow.
std::function<void(const char*, int64_t, Control::Pace)> told(Ranks* ranks, gpu::Context* gpu) {
  return [ranks, gpu](const char* what, int64_t step, Control::Pace pace) {
    using Notes = gpu::ProductChoices::Notes;
    if (gpu) gpu->products->set_notes(pace == Control::Pace::kSlow ? Notes::kNone : Notes::kTaken);
    if (ranks) ranks->doing(what, step, pace);
  };
}

// The data, hashed if it is going to be read. On each machine one rank makes and hashes it, then
// the others find both in the caches.
RunData data_of(const Session& session) {
  return machine_by_machine(session.ranks, [&] {
    RunData data = resolve_data(session.config);
    if (session.use == SessionOptions::Use::kCompute) hash_data(session.config, data);
    return data;
  });
}

// UserError when the run once saved checkpoints and has none now: somebody moved them, and starting
// over would delete its telemetry.
void require_never_saved(const RunDir& dir) {
  const int64_t saved = TelemetryReader(dir.file("telemetry.db")).events("checkpoint");
  if (saved == 0) return;
  throw UserError(
      strprintf("%s saved %ld checkpoints, but has none of them now", dir.path().c_str(),
                long(saved)),
      is_imported(dir.path())
          ? "put the checkpoints back, or import the model again: " + import_again(dir.path())
          : "put the checkpoints back, or start over (--fresh), which deletes the run");
}

// UserError when the run began from imported weights and has no checkpoint with them, or with what
// became of them: it would begin from random ones.
void require_imported_weights(const RunDir& dir, const RunSoFar& so_far) {
  if (so_far.checkpoint() || !is_imported(dir.path())) return;
  throw UserError(
      dir.path() + " began from imported weights, and has no checkpoint now",
      "put the checkpoint of step 0 back, or import the model again: " + import_again(dir.path()));
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

// Whether ranks that share the experts compute what others would; "" if every rank has all experts.
std::string shared_experts_text(const Config& config, const Layout& layout) {
  if (layout.expert_ranks == 1) return "";
  const std::string why = why_own_bits(config, layout);
  return strprintf("experts: shared by %d ranks; the bits are %s", layout.expert_ranks,
                   why.empty() ? "those of one rank while exchange_rounds_max is 1"
                               : ("of this number of ranks alone: " + why).c_str());
}

}  // namespace

TrainingRun::TrainingRun(Session session, TrainingRunOptions options)
    : session_(resolved_session(std::move(session), options)),
      options_(std::move(options)),
      audit_(assay::audit(config())),
      data_(data_of(session_)),
      memory_(config(), session_.recipe, session_.place(data_.mask_id), session_.model_groups()),
      loader_(announcing_loader()),
      evaluators_(config(), data_, options_.folder, session_.device.name(),
                  {session_.host_group(), session_.expert_group, session_.replica_group}) {
  if (session_.ranks) {
    require_same_run_on_all(*session_.ranks, session_, data_, evaluators_, options_.start);
  }
  if (session_.use == SessionOptions::Use::kCompute) require_unused_folder();
  if (options_.start == TrainingRunOptions::Start::kContinue) {
    require_tokenizer_of_run(options_.folder, config(), data_);
  }
  if (!horizon_is_known(config()) && session_.use == SessionOptions::Use::kCompute) {
    resolve_seconds(session_, data_, options_);
  }
  if (horizon_is_known(config())) require_enough_data(loader_, config());
  plan_others(memory_);
}

// Before memory is asked for: a process that trains there has its own, and the refusal would be
// about memory. The lock itself is taken by open_folder().
void TrainingRun::require_unused_folder() {
  const auto unused = [&] {
    require_unused(options_.folder, "choose another --run");
    return std::string();
  };
  if (Group* const group = session_.host_group()) {
    on_first_rank(*group, unused);
  } else {
    unused();
  }
}

// What is beside the model, its gradients and the optimizer.
void TrainingRun::plan_others(TrainingMemory& memory) {
  loader_.plan(memory.plan);
  evaluators_.plan(memory.plan, *memory.model, session_.planned_ranks);
}

std::unique_ptr<TrainingMemory> TrainingRun::planned_memory(int rank) {
  CHECK(session_.use == SessionOptions::Use::kPlan, "memory of rank %d in a run that computes",
        rank);
  ModelPlace place = session_.place(data_.mask_id);
  place.rank = rank;
  auto memory = std::make_unique<TrainingMemory>(config(), session_.recipe, place);
  plan_others(*memory);
  return memory;
}

TrainingRun::~TrainingRun() = default;

LoaderConfig TrainingRun::announcing_loader() {
  LoaderConfig order = loader_config(config(), data_);
  order.rank = session_.rank();
  order.ranks = session_.rank_count();
  order.say = [this](const std::string& text) {
    if (log_) log_->info(text);
  };
  return order;
}

// The first rank takes the folder and checks that it may; the others come after it. Returns the
// configuration that the folder has now.
Config TrainingRun::open_folder() {
  Group* const group = session_.host_group();
  const bool fresh = options_.start == TrainingRunOptions::Start::kFresh;
  if (first()) {
    dir_.emplace(options_.folder, fresh ? RunDir::Start::kFresh : RunDir::Start::kContinue);
  }
  std::optional<FolderMark> mark;
  const auto left = [&] { return mark.emplace(options_.folder).path(); };
  const std::string there = group == nullptr ? "" : on_first_rank(*group, left);
  if (mark) session_.ranks->remove_if_lost(there);
  if (!first()) {
    dir_.emplace(options_.folder, RunDir::Start::kFollow);
    dir_->require_mark(there);
  }
  wait_for_all(group);
  if (mark) session_.ranks->remove_if_lost("");
  mark.reset();
  if (fresh) {  // all have seen that this is their folder
    if (first()) dir_->remove_run();
    wait_for_all(group);
  }
  log_ = first()
             ? std::make_unique<Log>(dir_->file("log.txt"))
             : std::make_unique<Log>(dir_->rank_log(session_.ranks->rank()), Log::Shown::kFileOnly);
  if (options_.quiet) log_->set_quiet(Log::Quiet::kYes);
  checkpoints_.emplace(
      dir_->path(), config().run.keep_checkpoints,
      [this](const std::string& text) { log_->warn(text); }, group);
  so_far_ = RunSoFar(*checkpoints_);
  require_imported_weights(*dir_, so_far_);
  require_within_window(dir_->path(), config().run.sequence, "run.sequence");
  if (config().eval.core) {
    require_within_window(dir_->path(), config().eval.core->max_tokens, "eval.core.max_tokens");
  }
  if (so_far_.checkpoint()) {
    checkpoints_->keep_until_saved(so_far_.configuration().run.keep_checkpoints);
  }
  if (dir_->previous()) so_far_.require_configuration(*dir_, config());
  require_same_data(so_far_.state(), read_files(data_));
  so_far_.require_precision(*dir_, session_);
  const Config written = configuration_to_write();
  wait_for_all(group);
  if (!first()) return written;
  dir_->write_config(written);
  products_.emplace(session_, dir_->path());
  return written;
}

// That of a run that has made its steps says how it made them, so only what it still reads and
// evaluates comes from this launch. No target of this launch stops it: its own stays.
Config TrainingRun::configuration_to_write() {
  const std::optional<Config> begun = configuration_before(options_);
  const int64_t steps = config().run.steps;
  if (!begun || begun->run.steps != steps || so_far_.steps() < steps) return config();
  Config kept = *begun;
  kept.data = config().data;
  kept.eval.core = config().eval.core;
  kept.eval.samples = config().eval.samples;
  const double target = config().run.target_loss;
  if (target > 0 && target != kept.run.target_loss) late_target_ = target;
  session_.config.run.target_loss = kept.run.target_loss;
  session_.config.run.keep_best |= kept.run.keep_best;  // a mark that a killed process had to make
  return kept;
}

void TrainingRun::open() {
  CHECK(!dir_, "TrainingRun::open() twice, folder %s", options_.folder.c_str());
  on_ = session_.exec();
  const auto of_ranks = [&] { require_room(session_.ranks, memory_.plan, on_.gpu); };
  // Before --fresh deletes a run, or a new one has a folder.
  memory_.require_room(config(), session_.recipe, on_.gpu, of_ranks);
  const Config written = open_folder();
  // Before the run's memory is allocated: measuring needs some of its own, for a moment.
  double peak = peak_flop_per_s(session_.device, on_, session_.recipe);
  if (Group* const group = session_.host_group()) {
    const std::vector<double> peaks = gather(*group, peak);
    peak = std::accumulate(peaks.begin(), peaks.end(), 0.0);
  }
  memory_.allocate(config(), session_.recipe, on_.gpu, of_ranks);
  memory_.bind(on_);
  if (memory_.rank_sums) {
    ranks_.emplace(TrainingRanks{.layout = layout_of(config(), session_.place(data_.mask_id)),
                                 .group = *session_.host_group(),
                                 .model = *session_.model_group(),
                                 .sums = *memory_.rank_sums,
                                 .experts = session_.expert_group,
                                 .expert_sums = memory_.expert_sums.get(),
                                 .of_experts = session_.groups_of_experts()});
  }
  if (session_.ranks == nullptr) {
    energy_.emplace(session_.device.gpu ? session_.device.gpu->facts().bus : "");
  }
  if (first()) open_records(peak);
  RunParts parts = this->parts();
  start_ = resume_or_initialise(parts, so_far_.checkpoint());
  if (!first()) return;
  // Before meta.json is written: it tells of the last launch.
  const bool goes_on_here = !session_.device.gpu && start_.steps_done < config().run.steps;
  const std::string other_instructions =
      goes_on_here ? other_instructions_before(dir_->path(), config(), start_.steps_done) : "";
  // Said once: the next launch finds this one there.
  const bool knows_none = contributing_launches(dir_->path(), start_.steps_done).empty();
  const std::string missing =
      knows_none ? missing_launches(dir_->path(), start_.steps_done) : std::string();
  write_meta(*dir_, meta(written));
  announce_launch(other_instructions);
  if (!missing.empty()) log_->warn(missing);
}

// Of this launch, which goes on from start_.
// What is read of the training data in a pass; nullopt of a mixture, whose sources have their own.
std::optional<int64_t> TrainingRun::tokens_of_pass() const {
  if (config().data.mixture) return std::nullopt;
  const double passes = loader_.epochs(1);
  if (passes <= 0) return std::nullopt;
  return std::llround(double(config().run.batch_tokens) / passes);
}

RunMeta TrainingRun::meta(const Config& written) const {
  return {.command = options_.command,
          .build = build_info(),
          .device = session_.device.name(),
          .threads = session_.threads,
          .ranks = session_.ranks ? session_.ranks->size() : 1,
          .nodes = session_.ranks ? session_.ranks->nodes() : 1,
          .expert_ranks = config().parallel.expert_ranks,
          .recipe = config().precision.recipe,
          .precision = precision_text(config().precision),
          .config_sha256 = config_sha256(written),
          .data_sha256 = data_hashes(data_),
          .data_hashed = data_hash_origins(data_),
          .tokenizer_sha256 = data_.tokenizer_sha256,
          .epoch_tokens = tokens_of_pass(),
          .first_step = start_.steps_done,
          .products_library = products_->library(),
          .tune_sha256 = session_.tuning ? session_.tuning->sha256 : ""};
}

// What this launch found, and what it does otherwise than those before.
void TrainingRun::announce_launch(const std::string& other_instructions) {
  const auto info = [this](const std::string& text) {
    if (!text.empty()) log_->info(text);
  };
  const auto warn = [this](const std::string& text) {
    if (!text.empty()) log_->warn(text);
  };
  info(products_->summary());
  for (const std::string& line : session_.warnings) warn(line);
  warn(other_instructions);
  announce_changes();
  warn(passed_landings_text(dir_->path(), landings(config()), start_.steps_done));
  if (ranks_) info(shared_experts_text(config(), ranks_->layout));
  if (evaluators_.core) {
    warn(other_guessing_before(dir_->path(), evaluators_.core->tasks(), start_.steps_done));
  }
  if (energy_) log_->info(energy_->text(), "");
  info(hashed_text(data_.hashed, data_.hash_seconds));
  for (const std::string& line : data_warnings(config(), data_)) warn(line);
}

// Of a run that makes further steps: they are made with what this launch gives.
void TrainingRun::announce_changes() {
  if (!dir_->previous() || so_far_.steps() == 0 || so_far_.steps() >= config().run.steps) return;
  if (const std::string text = since_last_launch_text(*dir_->previous(), config()); !text.empty()) {
    log_->info(text);
  }
  for (const std::string& line :
       checkpoint_warnings(so_far_.configuration(), config(), *checkpoints_, so_far_.steps())) {
    log_->warn(line);
  }
}

// The telemetry. peak_flop_per_s: of all ranks.
void TrainingRun::open_records(double peak_flop_per_s) {
  const RecorderConfig records = recorder_config(peak_flop_per_s);
  recorder_.emplace(records, *log_);
  // Also a file that is empty, or older than the checkpoint: of a backup, perhaps.
  const int64_t recorded = TelemetryReader(records.telemetry_path).steps_done(so_far_.steps());
  if (recorded + config().run.log_every <= so_far_.steps()) {
    log_->warn(
        strprintf("%s has no figures of steps %ld to %ld, which the run has made: they are lost, "
                  "and router measures over a window of steps begin again",
                  records.telemetry_path.c_str(), long(recorded + 1), long(so_far_.steps())));
  }
  Telemetry& telemetry = recorder_->telemetry();
  telemetry.set_meta("matmul_limit_gflop_per_s", strprintf("%.1f", 1e-9 * peak_flop_per_s));
  telemetry.set_meta("contract", name_of(config().contract.kind));
  if (!dir_->previous() || so_far_.steps() > 0) return;
  telemetry.forget_first_validation();
  if (!so_far_.checkpoint()) {
    require_never_saved(*dir_);
    telemetry.truncate_after(0, "from the beginning: there was no checkpoint yet");
    begins_again_ = "no checkpoint was left: begins again at step 1";
  } else if (TelemetryReader(records.telemetry_path).steps_done() > 0) {
    require_never_saved(*dir_);
    telemetry.truncate_after(0, "from the imported weights: nothing was saved yet");
    begins_again_ = "no checkpoint was left: begins again from the imported weights";
  }
}

// As telemetry loses its rows of steps after the checkpoint. Training goes on if they stay.
void TrainingRun::give_up_later_measurements() {
  const GivenUp given_up = give_up_measurements_after(dir_->path(), start_.steps_done);
  const std::string which =
      strprintf("of steps after %ld, which are made again,", long(start_.steps_done));
  if (const int64_t lines = given_up.sample_lines; lines > 0) {
    log_->info(strprintf("removed, of steps that are made again: %ld line%s of %s", long(lines),
                         lines == 1 ? "" : "s", kSamplesFile),
               "");
  }
  if (!given_up.evaluations.empty()) {
    log_->warn(strprintf("what was measured %s is in %s/%s/%s now: %s", which.c_str(),
                         dir_->path().c_str(), kEvaluations, kGivenUp,
                         joined(given_up.evaluations, ", ").c_str()));
  }
  if (!given_up.problem.empty()) {
    log_->warn(strprintf("some of what was measured %s may stay: %s", which.c_str(),
                         given_up.problem.c_str()));
  }
}

RunResult TrainingRun::train(const TrainingHooks& hooks) {
  CHECK(dir_ && !trained_, "TrainingRun::train() before open(), or twice: folder %s",
        options_.folder.c_str());
  trained_ = true;
  if (first()) give_up_later_measurements();
  const auto stop_requested = [&] { return hooks.stop_requested && hooks.stop_requested(); };
  RunParts parts = this->parts();
  parts.on_step = [&](const StepStats& stats) {
    if (products_) products_->update();
    if (hooks.on_step) hooks.on_step(stats);
  };
  if (energy_) parts.energy = [this] { return energy_->read(); };
  parts.stop_requested = stop_requested;
  parts.stop_after = of_first_rank(session_.host_group(), hooks.stop_after);
  const RunResult result = run(parts, start_);
  if (!first()) return result;
  recorder_->flush();  // the receipt and whoever reads the run next
  log_->set_bar("");
  seal();
  return result;
}

RunParts TrainingRun::parts() {
  return {.config = config(),
          .on = on_,
          .model = *memory_.model,
          .sums = *memory_.sums,
          .optimizer = *memory_.optimizer,
          .loader = loader_,
          .evaluators = evaluators_.all(),
          .checkpoints = *checkpoints_,
          .recorder = recorder_ ? static_cast<Recorder&>(*recorder_) : silent_,
          .probe = make_probe(config(), evaluators_.validation.first()),
          .mask_id = data_.mask_id,
          .data = read_files(data_),
          .landings = landings(config()),
          .ranks = ranks_ ? &*ranks_ : nullptr,
          .doing = told(session_.ranks, session_.device.context()),
          .stop_after = {},
          .stop_requested = {}};
}

RecorderConfig TrainingRun::recorder_config(double peak_flop_per_s) const {
  RecorderConfig r{.telemetry_path = dir_->file("telemetry.db"),
                   .steps = config().run.steps,
                   .batch_tokens = config().run.batch_tokens,
                   .flops_per_token = double(audit_.flops_per_token),
                   .limit_flops_per_s = peak_flop_per_s,
                   .ranks = session_.ranks != nullptr,
                   .print_every = config().run.print_every};
  for (const MixtureSource& source : data_.mixture) r.sources.push_back(source.name);
  for (const QuantisedOperandState& s : memory_.model->quantised_operands()) {
    r.operands.push_back({.layer = s.layer,
                          .weight = s.weight,
                          .operand = s.operand,
                          .role = s.role,
                          .format = s.format});
  }
  for (int64_t l = 0; l < config().model.layers; ++l) {
    if (is_moe_block(config().model, l)) r.moe_layers.push_back(l);
  }
  if (!r.moe_layers.empty()) r.experts = config().model.moe->experts;
  return r;
}

// Writes the receipt, by which the figures of the run can be recomputed. A failure is only a
// warning: the run itself is complete.
void TrainingRun::seal() {
  try {
    write_receipt(dir_->file(kReceiptName), make_run_receipt(dir_->path(), dir_->path()));
  } catch (const std::exception& error) {
    log_->warn(std::string("no receipt: ") + error.what());
  }
}

}  // namespace assay
