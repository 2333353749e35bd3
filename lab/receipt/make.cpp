#include "lab/receipt/make.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/check.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/folder_lock.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"
#include "lab/receipt/telemetry_dump.h"
#include "lab/runs/launches.h"
#include "lab/runs/recorded_data.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

// Fields of a launch that go into `environment`.
constexpr const char* kEnvironment[] = {
    "command", "version", "dirty",   "compiler",         "flags",
    "host",    "device",  "cpu",     "instructions",     "cores",
    "threads", "recipe",  "started", "products_library", "tune_sha256"};

// Path of a run (or file) relative to the receipt's folder, which holds it or is it.
std::string path_below(const fs::path& run, const fs::path& folder) {
  const fs::path relative =
      fs::weakly_canonical(run).lexically_relative(fs::weakly_canonical(folder));
  const std::string path = relative.generic_string();
  if (path.empty() || path == ".." || path.starts_with("../")) {
    throw UserError(
        "the run " + run.string() + " is not in " + folder.string() + ", the folder of the receipt",
        "write the receipt into the run or into a folder above it, so that both move "
        "together");
  }
  return path;
}

class RunReceipt {
 public:
  RunReceipt(const std::string& run, const std::string& folder, std::optional<int64_t> step)
      : run_(require_run(run)), evidence_(run, step) {
    receipt_.kind = "run";
    receipt_.run = path_below(run_, folder);
    const fs::path whole = fs::absolute(run_).lexically_normal();
    receipt_.name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  }

  Receipt make() {
    receipt_.sealed_step = evidence_.step();
    if (receipt_.sealed_step == 0)
      throw UserError(run_.string() + ": the run has no logged step yet", "train it first");
    receipt_.contract = contract_json(evidence_.config());
    const std::vector<Json> launches = contributing_launches(run_.string(), receipt_.sealed_step);
    add_environment(launches);
    add_file("config", "config.yaml");
    for (const char* file : {kTuneCopy, kProductsFile}) {
      if (fs::exists(run_ / file)) add_file("products", file);
    }
    add_data();
    add_builds(launches);
    add_checkpoint();
    add_telemetry();
    for (const auto& specs : {config_claims(evidence_), telemetry_claims(evidence_)}) {
      for (const ClaimSpec& spec : specs) add_claim(spec);
    }
    return receipt_;
  }

 private:
  std::string path_in_bundle(const std::string& file) const {
    return (fs::path(receipt_.run) / file).lexically_normal().generic_string();
  }

  void add_input(const std::string& kind, const std::string& file, const std::string& sha256,
                 const Json& more = Json::object()) {
    receipt_.inputs.push_back({.kind = kind,
                               .path = path_in_bundle(file),
                               .name = fs::path(file).filename(),
                               .sha256 = sha256,
                               .more = more});
  }

  void add_file(const std::string& kind, const std::string& file) {
    add_input(kind, file, sha256_file((run_ / file).string()));
  }

  void add_environment(const std::vector<Json>& launches) {
    if (launches.empty()) return;
    for (const char* key : kEnvironment) {
      if (launches.back().contains(key)) receipt_.environment[key] = launches.back()[key];
    }
    receipt_.environment["launches"] = launches.size();
  }

  // Shards and tokenizer lie outside of the run, so they are identified by name and hash: of the
  // last launch, also if it made no step. A run goes on with the same bytes only, so they are those
  // of its steps, and an earlier record may be damaged.
  void add_data() {
    const Json last = json_in_file<Json>(run_ / "meta.json");
    for (const auto& [path, hash] : recorded_data(last)) {  // by path, as in meta.json
      Json more = Json::object();
      if (last.contains("data_hashed") && last["data_hashed"].contains(path))
        more["hashed"] = last["data_hashed"][path];
      receipt_.inputs.push_back({.kind = "data",
                                 .path = "",
                                 .name = fs::path(path).filename(),
                                 .sha256 = hash,
                                 .more = more});
    }
  }

  void add_builds(const std::vector<Json>& launches) {
    std::set<std::string> commits, programs;
    for (const Json& launch : launches) {
      const std::string commit = text_or_empty(launch, "commit");
      const std::string program = text_or_empty(launch, "program_sha256");
      Json dirty = Json::object();
      dirty["dirty"] = launch.contains("dirty") && launch["dirty"] == true;
      if (!commit.empty() && commits.insert(commit).second) {
        receipt_.inputs.push_back(
            {.kind = "commit", .path = "", .name = commit, .sha256 = "", .more = dirty});
      }
      if (!program.empty() && programs.insert(program).second)
        receipt_.inputs.push_back(
            {.kind = "binary", .path = "", .name = "assay", .sha256 = program});
    }
  }

  // Adds the newest checkpoint: its manifest, and its files with the hashes in the manifest.
  void add_checkpoint() {
    const std::vector<std::string> folders = Checkpoints(run_.string(), 1, {}).all();
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
      if (is_marked_damaged(*folder)) continue;
      const Json manifest = json_in_file<Json>(*folder + "/MANIFEST.json");
      if (!manifest.is_object() || !manifest.contains("files")) continue;
      const std::string name = "checkpoints/" + fs::path(*folder).filename().string() + "/";
      add_file("checkpoint", name + "MANIFEST.json");
      for (const auto& [part, entry] : manifest["files"].items()) {
        add_input("checkpoint", name + part, text_or_empty(entry, "sha256"));
      }
      return;
    }
  }

  void add_telemetry() {
    const TelemetryDump dump = dump_telemetry(telemetry_file(run_), receipt_.sealed_step);
    Json more;
    more["dump"] = kTelemetryDumpVersion;
    more["results_sha256"] = dump.results_sha256;
    for (const TelemetryDump::Table& table : dump.tables) {
      more["tables"][table.name]["rows"] = table.rows;
      more["tables"][table.name]["sha256"] = table.sha256;
    }
    add_input("telemetry", "telemetry.db", dump.sha256, more);
  }

  void add_claim(const ClaimSpec& spec) {
    const Json value = recompute(evidence_, spec.how);
    receipt_.claims.push_back({.name = spec.name,
                               .value = value,
                               .unit = spec.unit,
                               .tolerance = rule_tolerance(spec.how, value),
                               .how = spec.how});
  }

  const fs::path run_;
  RunEvidence evidence_;
  Receipt receipt_;
};

}  // namespace

ReceiptJson contract_json(const Config& config) {
  Json json;
  json["kind"] = name_of(config.contract.kind);
  json["coefficient"] = config.contract.coefficient;
  json["fraction"] = config.contract.fraction;
  if (!config.contract.derived_from.empty()) json["derived_from"] = config.contract.derived_from;
  json["steps"] = config.run.steps;
  json["batch_tokens"] = config.run.batch_tokens;
  json["target_loss"] = config.run.target_loss;
  json["seed"] = config.run.seed;
  return json;
}

Receipt make_run_receipt(const std::string& run, const std::string& folder,
                         std::optional<int64_t> step) {
  try {
    return RunReceipt(run, folder.empty() ? "." : folder, step).make();
  } catch (const NotAvailable& absent) {
    throw UserError(run + " cannot have a receipt: " + absent.what(),
                    "a receipt is of what a run has logged: train it first, or further");
  }
}

std::optional<int64_t> last_settled_step(const std::string& run) {
  if (!is_run(run) || !folder_in_use(run) || !fs::exists(telemetry_file(run))) return std::nullopt;
  const TelemetryReader telemetry(telemetry_file(run));
  return telemetry.steps_done(telemetry.steps_done() - 1);
}

Receipt make_bundle_receipt(const Bundle& bundle) {
  const fs::path folder = bundle.folder;
  Receipt receipt;
  receipt.kind = "matrix";
  receipt.name = bundle.name;
  receipt.contract = bundle.contract;
  receipt.environment = bundle.environment;
  BundleEvidence evidence(bundle.folder);
  for (const std::string& run : bundle.runs) {
    const std::string path = path_below(folder / run, folder);
    const Receipt of_run = read_receipt(require_receipt((folder / path).string()));
    Json more;
    more["sealed_step"] = of_run.sealed_step;
    receipt.inputs.push_back(
        {.kind = "run", .path = path, .name = of_run.name, .sha256 = of_run.seal, .more = more});
    evidence.add(path, of_run.sealed_step);
  }
  for (const std::string& file : bundle.files) {
    receipt.inputs.push_back({.kind = "file",
                              .path = path_below(folder / file, folder),
                              .name = fs::path(file).filename(),
                              .sha256 = sha256_file((folder / file).string())});
  }
  for (const ClaimSpec& spec : bundle.claims) {
    const Json value = recompute(evidence, spec.how);
    receipt.claims.push_back({.name = spec.name,
                              .value = value,
                              .unit = spec.unit,
                              .tolerance = rule_tolerance(spec.how, value),
                              .how = spec.how});
  }
  return receipt;
}

}  // namespace assay
