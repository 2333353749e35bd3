// Files of a run: tensors, checkpoints, telemetry; and letters between ranks.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "comm/control_letter.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/safetensors.h"
#include "engine/telemetry/expert_load_codec.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/schema.h"
#include "engine/telemetry/telemetry.h"
#include "lab/dissect/used.h"
#include "tests/fuzz/targets.h"

namespace assay::fuzz {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> numbers = {1, 2, 3, 4, 5, 6};

std::vector<TensorRef> tensors() {
  return {{.name = "a", .dtype = DType::kF32, .shape = {2, 3}, .data = numbers.data()},
          {.name = "b", .dtype = DType::kF32, .shape = {1}, .data = numbers.data()}};
}

void parse_safetensors(std::string_view bytes) {
  const SafetensorsFile file(put("fuzz.safetensors", bytes));
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
      if (entry.dtype != dtype_name(dtype)) continue;
      std::vector<char> data(static_cast<size_t>(entry.bytes));
      file.read({.name = entry.name, .dtype = dtype, .shape = entry.shape, .data = data.data()});
    }
  }
}
std::vector<std::string> safetensors() {
  write_safetensors(scratch() + "/seed.safetensors", tensors(), {{"format", "pt"}});
  return {bytes_of(scratch() + "/seed.safetensors")};
}

TrainingState state_of_step(int64_t step) {
  return {.step = step,
          .tokens = step * 64,
          .cursor = {.shard = 1, .batch = step, .epoch = 2},
          .seed = 7,
          .schedule_share = 0.5,
          .config_yaml = "run:\n  seed: 7\n",
          .config_hashes = {{"run", "ab"}},
          .versions = {{"sqlite", "3.40.1"}},
          .extra = {{"data_sha256", {{"a.bin", "00"}}}, {"train_s", 1.5}}};
}

void parse_state(std::string_view bytes) {
  put(kCheckpointState, bytes);
  const TrainingState state = load_state(scratch());
  CHECK(state.step >= 0 && state.tokens >= 0 && state.cursor.batch >= 0, "step %ld",
        long(state.step));
}
std::vector<std::string> states() {
  return {to_json(state_of_step(10)).dump(1)};
}

// The manifest of a folder whose other files are as they were written.
void parse_checkpoint(std::string_view bytes) {
  const std::string run = scratch() + "/run", folder = run + "/checkpoints/step-00000010";
  if (!fs::exists(folder)) {
    Checkpoints(run, 1, {}).save(state_of_step(10), tensors(), {});
  }
  put("run/checkpoints/step-00000010/" + std::string(kCheckpointManifest), bytes);
  if (!checkpoint_problem(folder).empty()) return;
  read_checkpoint_manifest(folder);
}
std::vector<std::string> checkpoints() {
  const std::string run = scratch() + "/seed-run";
  fs::remove_all(run);
  const std::string folder = Checkpoints(run, 1, {}).save(state_of_step(10), tensors(), {});
  return {bytes_of(folder + "/" + kCheckpointManifest)};
}

void parse_telemetry(std::string_view bytes) {
  const TelemetryReader reader(put("fuzz.db", bytes));
  reader.last_step();
  reader.steps_done(1000);
  reader.events("checkpoint");
  reader.end();
  reader.scalar("train_s");
  reader.scalar_names();
  for (const auto& [task, metric] : reader.eval_names()) reader.eval(task, metric);
  reader.router("max_load", 1);
  reader.router_over_time("window_max_load_norm", 1);
  reader.worst_max_load_norm();
  for (const int64_t step : reader.precision_steps()) reader.precision(step);
  reader.rank_steps();
  reader.expert_load(1, 1);
  reader.meta("contract");
}
std::vector<std::string> telemetries() {
  const std::string path = scratch() + "/seed.db";
  fs::remove(path);
  {
    Telemetry telemetry(path, {.scalars = {"train_loss_nats", "train_s"},
                               .spans = {"step"},
                               .layers = {1},
                               .experts = 4});
    telemetry.set_meta("contract", "steps");
    for (int64_t step = 1; step <= 2; ++step) {
      StepRecord& record = telemetry.begin_step(step);
      record.scalars = {5.0 - double(step), double(step)};
      record.spans_ms[0] = 3;
      for (int64_t e = 0; e < 4; ++e) record.layer_counts(0, 4)[e] = uint32_t(e);
      telemetry.commit();
    }
    telemetry.evals(2, {{"val", "loss_nats", 3.5, 64}});
    telemetry.event(2, "end", "steps");
  }
  return {bytes_of(path)};
}

void parse_loads(std::string_view bytes) {
  std::vector<uint32_t> counts;
  if (!unpack_load(bytes, counts) || counts.empty()) return;
  LoadPacker packer(int64_t(counts.size()));
  const std::string packed(packer.pack({counts.data(), {int64_t(counts.size())}}));
  std::vector<uint32_t> again;
  CHECK(unpack_load(packed, again) && again == counts, "loads change when they are packed");
}
std::vector<std::string> loads() {
  const std::vector<uint32_t> counts = {0, 1, 70000, 4000000000u};
  return {std::string(LoadPacker(4).pack({counts.data(), {4}}))};
}

void parse_letter(std::string_view bytes) {
  const auto letter = unpack(bytes);
  if (!letter) return;
  const auto again = unpack(pack(*letter));
  CHECK(again && again->message == letter->message && again->rank == letter->rank,
        "a letter changes when it is packed");
}
std::vector<std::string> letters() {
  ControlLetter outcome;
  outcome.kind = ControlLetter::Kind::kOutcome;
  outcome.rank = 2;
  outcome.message = "m";
  outcome.hint = "h";
  return {pack(outcome), pack({})};
}

void parse_used(std::string_view bytes) {
  fs::create_directories(scratch() + "/dissect");
  put(kUsedFile, bytes);
  read_used(scratch());
}
std::vector<std::string> used() {
  return {R"({"text_sha256": "ab", "checkpoint_step": 40, "tokens": 4096, "p_used": 12})"};
}

}  // namespace

const Target kSafetensorsTarget = {"safetensors", parse_safetensors, safetensors};
const Target kStateTarget = {"state", parse_state, states};
const Target kCheckpointTarget = {"checkpoint", parse_checkpoint, checkpoints};
const Target kTelemetryTarget = {"telemetry", parse_telemetry, telemetries};
const Target kLoadsTarget = {"loads", parse_loads, loads};
const Target kLetterTarget = {"letter", parse_letter, letters};
const Target kUsedTarget = {"used", parse_used, used};

}  // namespace assay::fuzz
