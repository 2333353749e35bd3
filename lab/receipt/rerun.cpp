#include "lab/receipt/rerun.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/check.h"
#include "comm/layout.h"
#include "data/json_text.h"
#include "engine/config/check.h"
#include "engine/config/fields.h"
#include "engine/cpu_bits.h"
#include "engine/run/checkpoint.h"
#include "engine/run/run_dir.h"
#include "lab/receipt/launch_precision.h"
#include "lab/receipt/run_claims.h"
#include "lab/runs/launches.h"
#include "lab/runs/recorded_data.h"
#include "models/parameters/expert_shares.h"
#include "ops/instruction_path.h"

extern char** environ;

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

// A temporary folder, removed at the end.
class Workplace {
 public:
  Workplace() {
    std::string name = (fs::temp_directory_path() / "assay-rerun-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw UserError("cannot make the folder " + name + ": " + strerror(errno),
                      "check the disk, or set TMPDIR to a folder with write permission");
    }
    path_ = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Runs the program with its output in the file `log`; returns its exit status.
int run_program(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    throw UserError("cannot start " + arguments[0] + ": " + strerror(error), "check the program");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The rest of the last line that begins with `start`; "" if there is none.
std::string said(const std::string& log, const std::string& start) {
  std::ifstream file(log);
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(start)) found = line.substr(start.size());
  }
  return found;
}

// The pattern's file name, or a tokenizer's folder of that name, in the first of the folders where
// it is; "" if it is in none.
std::string moved(const std::string& pattern, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string there = (fs::path(folder) / fs::path(pattern).filename()).string();
    std::error_code ignored;
    if (fs::is_directory(there, ignored)) return fs::absolute(there).string();
    try {
      expand_files({there}, "data");
      return fs::absolute(there).string();
    } catch (const UserError&) {
    }
  }
  return "";
}

// --set options that point the configuration to the present place of its data.
std::vector<std::string> data_options(const DataConfig& data, const fs::path& run,
                                      const std::vector<std::string>& folders,
                                      const std::string& cache) {
  std::vector<std::string> options;
  const auto set = [&](const std::string& field, const Json& value) {
    options.push_back("--set");
    options.push_back(field + "=" + value.dump());
  };
  std::error_code ignored;
  if (data.synth) {
    if (!fs::exists(data.cache, ignored)) set("data.cache", cache);
    return options;
  }
  for (const auto& [field, patterns] :
       {std::pair("data.train", &data.train), std::pair("data.val", &data.val)}) {
    Json found = Json::array();
    for (const std::string& pattern : *patterns) {
      const std::string there = moved(pattern, folders);
      found.push_back(there.empty() ? pattern : there);
    }
    set(field, found);
  }
  // That of an import may have moved with the run.
  const std::string own = present_tokenizer(run.string(), data);
  const std::string tokenizer = data.tokenizer.empty()  ? ""
                                : own != data.tokenizer ? own
                                                        : moved(data.tokenizer, folders);
  if (!tokenizer.empty()) set("data.tokenizer", tokenizer);
  // The receipt's own hashes are compared after the run. What its launches passed, or an earlier
  // version did not check, is not checked again.
  if (data.reference != "any") set("data.reference", "any");
  if (data.check_tokenizer) set("data.check_tokenizer", false);
  return options;
}

// Why the rerun's data is not that of the receipt; "" if it is.
std::string other_data(const Receipt& receipt, const std::string& again) {
  const NamedContents read = content_by_name(recorded_data_of(again));
  if (read.empty()) return "it did not record its data";
  for (const ReceiptInput& input : receipt.inputs) {
    if (input.kind == "data" && !read.contains({input.name, input.sha256}))
      return "it read a different " + input.name + " than the receipt has";
  }
  return "";
}

struct Comparison {
  int64_t values = 0;
  std::string difference;  // the first one

  template <typename Values>
  void compare(const std::string& name, const Values& sealed, const Values& again, int64_t steps) {
    const std::map<int64_t, double> now = up_to(again, steps), then = up_to(sealed, steps);
    values += static_cast<int64_t>(then.size());
    for (const auto& [step, value] : then) {
      if (!difference.empty()) return;
      const auto found = now.find(step);
      if (found == now.end()) {
        difference = strprintf("%s of step %ld is missing", name.c_str(), long(step));
      } else if (found->second != value && !(found->second != found->second && value != value)) {
        difference = strprintf("%s of step %ld is %.17g, the run has %.17g", name.c_str(),
                               long(step), found->second, value);
      }
    }
  }

  template <typename Values>
  static std::map<int64_t, double> up_to(const Values& values, int64_t steps) {
    std::map<int64_t, double> by_step;
    for (const auto& v : values) {
      if (v.step <= steps) by_step[v.step] = v.value;
    }
    return by_step;
  }
};

// Compares series after series, each by step, up to the first difference.
Comparison compare_telemetry(RunEvidence& sealed, RunEvidence& again, int64_t steps) {
  Comparison comparison;
  for (const char* name : {"train_loss_nats", "gradient_norm", "hash"})
    comparison.compare(name, sealed.scalar(name), again.scalar(name), steps);
  for (const char* metric : {"loss_nats", "bits_per_byte"}) {
    comparison.compare(std::string("val ") + metric, sealed.eval("val", metric),
                       again.eval("val", metric), steps);
  }
  return comparison;
}

// Imported weights are a run's checkpoint of step 0: copies that checkpoint, so that the rerun
// begins with them too.
void begin_as(const fs::path& run, const fs::path& again) {
  std::error_code error;
  if (!fs::exists(run / kImportedFile, error)) return;
  const fs::path first = fs::path("checkpoints") / "step-00000000";
  const std::string problem = checkpoint_problem((run / first).string());
  if (!problem.empty()) {
    throw UserError(run.string() + " began from imported weights, and " + first.string() +
                        " cannot be used: " + problem,
                    "put that checkpoint back: the first steps cannot be repeated without it");
  }
  fs::create_directories(again / "checkpoints", error);
  if (!error) fs::copy(run / first, again / first, fs::copy_options::recursive, error);
  if (!error) fs::copy_file(run / "config.yaml", again / "config.yaml", error);
  if (error) {
    throw UserError("cannot copy the imported weights of " + run.string() + ": " + error.message(),
                    "check the disk, or set TMPDIR to a folder with more space");
  }
}

// The device of these launches, "cpu" or "cuda: NVIDIA H200"; without one in meta.json that of the
// receipt, "" if it has none either.
std::string device_of(const Receipt& receipt, const std::vector<Json>& launches) {
  const std::string recorded = over_launches(launches, "device");
  return recorded.empty() ? text_or_empty(receipt.environment, "device") : recorded;
}

// Why the CPU of this machine has other bits than those of these launches of a run of `config`; ""
// if it has theirs, and where they did not record it.
std::string other_instructions(const std::vector<Json>& launches, const Config& config) {
  const std::string recorded = instructions_over_launches(launches, config);
  const std::string here = deciding_instructions(instruction_path(), config, CpuWork::kTraining);
  if (recorded.empty() || recorded == here) return "";
  const std::string trained = "these steps were trained on a CPU with " + recorded;
  if (recorded.find(", then ") != std::string::npos) return trained + ", a rerun has one of them";
  return trained + ", here with " + here;
}

// Why this machine cannot train as that device did; "" if it can.
std::string other_device(const std::string& device, const std::vector<Json>& launches,
                         const Config& config, const RerunOptions& options) {
  if (device.empty() || device == "cpu") return other_instructions(launches, config);
  const std::string trained = "these steps were trained on " + device;
  if (device.find(", then ") != std::string::npos) return trained + ", a rerun has one device";
  if (options.gpu.empty()) return trained + ": " + options.gpu_problem;
  return device == "cuda: " + options.gpu ? "" : trained + ", here is cuda: " + options.gpu;
}

// The whole number under `key`; `absent` if there is none above 0.
int64_t number_of(const Json& launch, const char* key, int64_t absent) {
  const auto found = launch.find(key);
  if (found == launch.end() || !found->is_number_integer()) return absent;
  const auto number = found->get<int64_t>();
  return number > 0 ? number : absent;
}

// Why one rank has other bits than ranks of these launches that shared the experts; "" if it has
// theirs. Launches of an older version did not record how many shared them: as many as in
// config.yaml.
std::string other_bits(RunEvidence& sealed, const std::vector<Json>& launches, int64_t steps) {
  for (const StepValue& rounds : sealed.scalar("exchange_rounds_max")) {
    if (rounds.step > steps || rounds.value <= 1) continue;
    return strprintf(
        "the ranks exchanged the experts' rows of step %ld in %.0f rounds, which one "
        "rank does not",
        long(rounds.step), rounds.value);
  }
  const Config& config = sealed.config();
  for (const Json& launch : launches) {
    const int64_t ranks = number_of(launch, "ranks", 1);
    const int64_t shared = number_of(launch, "expert_ranks", config.parallel.expert_ranks);
    if (ranks == 1 || ranks % shared != 0) continue;
    const std::string why = why_own_bits(
        config,
        {.ranks = int(ranks), .parts = config.parallel.batch_parts(), .expert_ranks = int(shared)});
    if (why.empty()) continue;
    return strprintf("the bits are those of %ld ranks that share the experts: ", long(ranks)) + why;
  }
  return "";
}

// What makes one rank of this machine train as the run did; `absent` if nothing does.
struct RunPlace {
  std::vector<std::string> options;
  std::string absent;
};

RunPlace place_of(const Receipt& receipt, RunEvidence& sealed, const RerunOptions& options) {
  const int64_t steps = options.steps;
  const std::vector<Json> launches = contributing_launches(sealed.folder(), steps);
  const std::string device = device_of(receipt, launches);
  const RerunPrecision theirs = precision_of_rerun(launches, sealed.config());
  Config trained = sealed.config();
  trained.precision = theirs.precision;
  trained.parallel.expert_ranks = 1;
  RunPlace place{.options = {}, .absent = theirs.absent};
  if (place.absent.empty()) place.absent = other_device(device, launches, trained, options);
  if (place.absent.empty()) place.absent = other_bits(sealed, launches, steps);
  if (!device.empty()) {
    place.options = {"--device", device.starts_with("cuda") ? "cuda" : "cpu"};
  }
  const std::vector<FieldRow> in_file = config_fields(sealed.config());
  for (const FieldRow& row : config_fields(trained)) {
    if (find_row(in_file, row.path)->value == row.value) continue;
    place.options.insert(place.options.end(), {"--set", row.path + "=" + row.value});
  }
  return place;
}

Check rerun(const Receipt& receipt, const fs::path& run, const RerunOptions& options) {
  if (options.steps > receipt.sealed_step) {
    throw UserError(strprintf("--rerun %ld: the run %s has %ld steps", long(options.steps),
                              receipt.name.c_str(), long(receipt.sealed_step)),
                    strprintf("give at most --rerun %ld", long(receipt.sealed_step)));
  }
  Check check{.finding = Finding::kNotAvailable,
              .what = strprintf("rerun of %ld steps", long(options.steps)),
              .detail = "",
              .run = "",
              .is_rerun = true};
  RunEvidence sealed(run.string(), receipt.sealed_step);
  const RunPlace trained = place_of(receipt, sealed, options);
  check.detail = trained.absent;
  if (!check.detail.empty()) return check;
  const Workplace place;
  const std::string folder = place / "run", log = place / "said.txt";
  begin_as(run, folder);
  std::vector<std::string> command{
      options.program, "train",        (run / "config.yaml").string(), "--run",
      folder,          "--stop-after", std::to_string(options.steps)};
  command.insert(command.end(), trained.options.begin(), trained.options.end());
  for (const std::string& option :
       data_options(sealed.config().data, run, options.data, place / "cache")) {
    command.push_back(option);
  }
  if (const fs::path tune = run / kTuneCopy; fs::exists(tune)) {
    command.insert(command.end(), {"--tune", tune.string()});
  }
  // These evaluations are not compared, and their inputs may have moved.
  for (const char* off : {"eval.core=null", "eval.samples=null"}) {
    command.insert(command.end(), {"--set", off});
  }
  const int status = run_program(command, log);
  // A run that its guard stopped is repeated up to there, and what it logged is compared.
  if (status != 0 && status != options.guard_exit) {
    const std::string error = said(log, "error: "), hint = said(log, "hint: ");
    throw UserError("the rerun of " + run.string() + " did not train: " +
                        (error.empty() ? "exit " + std::to_string(status) : error),
                    hint.empty() ? "try `assay train` with its config.yaml" : hint);
  }
  check.finding = Finding::kDrift;
  check.detail = other_data(receipt, folder);
  if (!check.detail.empty()) return check;
  RunEvidence again(folder);
  const Comparison comparison = compare_telemetry(sealed, again, options.steps);
  if (comparison.values == 0) {
    throw UserError(
        strprintf("--rerun %ld: the run logged no step up to that one", long(options.steps)),
        strprintf("it logged every %ld steps", long(sealed.config().run.log_every)));
  }
  check.detail = comparison.difference;
  if (!comparison.difference.empty()) return check;
  check.finding = Finding::kSame;
  check.detail = strprintf("%ld values, bit for bit", long(comparison.values));
  return check;
}

}  // namespace

std::vector<Check> rerun_receipt(const std::string& file_or_folder, const RerunOptions& options) {
  const std::string path = require_receipt(file_or_folder);
  const fs::path folder = fs::path(path).parent_path();
  const Receipt receipt = read_receipt(path);
  if (receipt.kind == "run") return {rerun(receipt, folder / receipt.run, options)};
  std::vector<Check> checks;
  for (const ReceiptInput& input : receipt.inputs) {
    if (input.kind != "run") continue;
    try {
      const Receipt of_run = read_receipt((folder / input.path / kReceiptName).string());
      checks.push_back(rerun(of_run, folder / input.path / of_run.run, options));
    } catch (const DamagedReceipt& damaged) {
      checks.push_back({.finding = Finding::kNotAvailable,
                        .what = strprintf("rerun of %ld steps", long(options.steps)),
                        .detail = std::string("its receipt: ") + damaged.what(),
                        .run = "",
                        .is_rerun = true});
    }
    checks.back().run = input.path;
  }
  return checks;
}

}  // namespace assay
