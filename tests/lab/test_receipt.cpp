#include <algorithm>
#include <filesystem>
#include <functional>

#include "engine/config/yaml.h"
#include "engine/run/folder_lock.h"
#include "lab/receipt/make.h"
#include "lab/receipt/receipt.h"
#include "lab/receipt/telemetry_dump.h"
#include "lab/receipt/verify.h"
#include "lab/runs/launches.h"
#include "lab/runs/run_record.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/fake_run.h"

namespace assay::test_receipt {
namespace {

namespace fs = std::filesystem;

const VerifyOptions kThisBuild{
    .data = {}, .program_sha256 = sha256_hex("program"), .commit = "0123456789abcdef"};

struct Sealed {
  TempFolder folder;
  std::string run = folder / "bundle/moe";
  std::string receipt = run + "/receipt.json";
  explicit Sealed(int64_t planned = FakeRun::kSteps) {
    FakeRun{.path = run, .data = folder / "data", .planned = planned}.write();
    write_receipt(receipt, make_run_receipt(run, run));
  }
};

std::string text_of(const Verification& v) {
  std::string text;
  for (const Check& check : v.checks) {
    text += std::string(finding_name(check.finding)) + " " + check.run +
            (check.run.empty() ? "" : ": ") + check.what + ": " + check.detail + "\n";
  }
  return text;
}

void sql(const std::string& run, const std::string& statement) {
  Database(run + "/telemetry.db", Database::Mode::kCreate).run(statement);
}

void cut(const std::string& path, int64_t to) {
  fs::resize_file(path, static_cast<size_t>(to));
}

void replace(const std::string& path, const std::string& from, const std::string& to) {
  std::string text = read_file(path);
  const size_t at = text.find(from);
  INFO(from << " in\n" << text);
  REQUIRE(at != std::string::npos);
  write_file_atomic(path, text.replace(at, from.size(), to));
}

Receipt with_claim(const Receipt& receipt, const std::string& name,
                   const std::function<void(Claim&)>& change) {
  Receipt changed = receipt;
  for (Claim& claim : changed.claims) {
    if (claim.name == name) change(claim);
  }
  return changed;
}

const Claim& claim_of(const Receipt& receipt, const std::string& name) {
  for (const Claim& claim : receipt.claims) {
    if (claim.name == name) return claim;
  }
  FAIL("no claim " << name);
  return receipt.claims.front();
}

// A change to a sealed run, and the drift that verify must report.
struct Change {
  const char* what;
  std::function<void(const Sealed&)> make;
  std::vector<std::string> named;
};
template <typename... Names>
Change change(const char* what, std::function<void(const Sealed&)> make, Names... named) {
  return {.what = what, .make = std::move(make), .named = {named...}};
}

// An edit of the receipt alone, which is then sealed again.
struct Edit {
  const char* what;
  std::function<Receipt(const Receipt&)> make;
  const char* drift;
};
Edit edit(const char* what, std::function<Receipt(const Receipt&)> make, const char* drift) {
  return {.what = what, .make = std::move(make), .drift = drift};
}

}  // namespace

TEST_CASE("a receipt claims what the run's files say") {
  const Sealed s;
  const Receipt receipt = read_receipt(s.receipt);
  const std::pair<const char*, ReceiptJson> rows[] = {
      {"planned_steps", 40},
      {"steps_done", 40},
      {"tokens", 40 * 8192},
      {"train_loss_final", 5.0},
      {"train_seconds", 20.0},
      {"val_loss_final", 4.25},
      {"val_loss_best", 4.0},
      {"val_loss_best_step", 20},
      {"target_loss_step", 20},
      {"target_loss_seconds", 10.0},
      {"router_max_load_norm_worst", 0.95},
      {"router_saturated_layers", 1},
      {"router_dead_share", 0.125},
      {"layer_1_saturated_at_step", nullptr},
      {"layer_2_saturated_at_step", 31},
      {"layer_2_dead_share", 0.25},
  };
  for (const auto& [name, value] : rows) {
    INFO(name);
    REQUIRE(claim_of(receipt, name).value == value);
  }
  const Claim& total = claim_of(receipt, "parameters_total");
  REQUIRE(total.value == audit(load_config(s.run + "/config.yaml")).total);
  REQUIRE(total.tolerance == 0);
  REQUIRE(receipt.sealed_step == 40);
}

TEST_CASE("a receipt reads back equal, and its seal covers it") {
  const Sealed s;
  const Receipt receipt = read_receipt(s.receipt);
  REQUIRE(to_text(receipt) == read_file(s.receipt));
  REQUIRE(seal_of(receipt) == receipt.seal);
  Receipt other = receipt;
  other.environment["host"] = "elsewhere";
  REQUIRE(seal_of(other) != receipt.seal);
}

TEST_CASE("an untouched run verifies at any path") {
  const Sealed s;
  Verification v = verify_receipt(s.run, kThisBuild);
  INFO(text_of(v));
  REQUIRE(v.count(Finding::kDrift) == 0);
  REQUIRE(v.count(Finding::kNotAvailable) == 0);
  fs::rename(s.folder / "bundle", s.folder / "moved");
  v = verify_receipt(s.folder / "moved/moe", kThisBuild);
  REQUIRE(v.count(Finding::kDrift) == 0);
  REQUIRE(v.count(Finding::kNotAvailable) == 0);
}

TEST_CASE("a second receipt of the same run is identical") {
  const Sealed s;
  const std::string before = read_file(s.receipt);
  nlohmann::json meta = nlohmann::json::parse(read_file(s.run + "/meta.json"));
  const nlohmann::json first = meta;
  meta["first_step"] = 40;  // a launch by another program after the run had finished
  meta["program_sha256"] = sha256_hex("newer");
  meta["before"] = nlohmann::json::array({first});
  write_file_atomic(s.run + "/meta.json", meta.dump());
  sql(s.run, "INSERT INTO event VALUES(40, 'now', 'end', 'steps')");
  REQUIRE(to_text(make_run_receipt(s.run, s.run)) == before);
  REQUIRE(contributing_launches(s.run, 60).size() == 2);  // if it had trained on
}

TEST_CASE("a receipt of a run that is being trained leaves out the newest step") {
  const Sealed s;
  REQUIRE_FALSE(last_settled_step(s.run));
  const FolderLock training(s.run, "");
  sql(s.run, "DELETE FROM eval WHERE step = 40");  // its validation still runs
  write_receipt(s.receipt, make_run_receipt(s.run, s.run, last_settled_step(s.run)));
  REQUIRE(read_receipt(s.receipt).sealed_step == 39);
  sql(s.run, "INSERT INTO eval VALUES(40, 'val', 'loss_nats', 4.25, 4096)");
  REQUIRE(verify_receipt(s.run, kThisBuild).count(Finding::kDrift) == 0);
  sql(s.run, "DELETE FROM scalar WHERE step > 1; DELETE FROM eval; DELETE FROM event");
  expect_error([&] { make_run_receipt(s.run, s.run, last_settled_step(s.run)); },
               "the run has no logged step yet");
}

TEST_CASE("nothing is read from a run with a step after its last") {
  const Sealed s;
  sql(s.run, "INSERT INTO eval VALUES(41, 'val', 'loss_nats', 3.0, 4096)");
  const char* what = "its telemetry has a value of step 41, but run.steps is 40";
  expect_error([&] { make_run_receipt(s.run, s.run); }, what);
  expect_error([&] { read_run(s.run); }, what);
}

TEST_CASE("every change is reported as drift by name") {
  const Change rows[] = {
      change(
          "an evaluation after the last step",
          [](const Sealed& s) {
            sql(s.run, "INSERT INTO eval VALUES(41, 'val', 'loss_nats', 3.0, 4096)");
          },
          "telemetry: ", "a value of step 41, but run.steps is 40"),
      change(
          "an evaluation",
          [](const Sealed& s) { sql(s.run, "UPDATE eval SET value = 3.9 WHERE step = 20"); },
          "input telemetry telemetry.db", "(table eval)", "claim val_loss_best: recomputed 3.9"),
      change(
          "a step's loss",
          [](const Sealed& s) { sql(s.run, "UPDATE scalar SET value = 4.99999 WHERE step = 3"); },
          "input telemetry telemetry.db", "(table scalar)"),
      change(
          "the last bit of a loss",
          [](const Sealed& s) {
            sql(s.run, "UPDATE eval SET value = 4.2500000000000009 WHERE step = 40");
          },
          "input telemetry telemetry.db", "claim val_loss_final"),
      change(
          "a load", [](const Sealed& s) { sql(s.run, "DELETE FROM expert_load WHERE step = 7"); },
          "(table expert_load)"),
      change(
          "a router's figure",
          [](const Sealed& s) {
            sql(s.run, "UPDATE router_layer SET window_max_load_norm = 0.6 WHERE step = 40");
          },
          "(table router_layer)", "claim router_max_load_norm_worst",
          "claim layer_2_max_load_norm"),
      change(
          "a shard",
          [](const Sealed& s) { write_file_atomic(s.folder / "data/t.bin", "other tokens"); },
          "input data t.bin"),
      change(
          "a shard cut short", [](const Sealed& s) { cut(s.folder / "data/v.bin", 5); },
          "input data v.bin"),
      change(
          "the configuration",
          [](const Sealed& s) { replace(s.run + "/config.yaml", "ffn: ", "ffn: 1"); },
          "input config config.yaml", "claim parameters_total", "claim parameters_dense_ffn"),
      change(
          "the configuration cut short", [](const Sealed& s) { cut(s.run + "/config.yaml", 100); },
          "input config config.yaml"),
      change(
          "another checkpoint",
          [](const Sealed& s) {
            FakeRun{.path = s.folder / "other", .data = s.folder / "data", .loss = 3}.write();
            fs::remove_all(s.run + "/checkpoints");
            fs::rename(s.folder / "other/checkpoints", s.run + "/checkpoints");
          },
          "input checkpoint checkpoints/step-00000040/MANIFEST.json",
          "input checkpoint checkpoints/step-00000040/model.safetensors"),
      change(
          "a checkpoint cut short",
          [](const Sealed& s) { cut(s.run + "/checkpoints/step-00000040/model.safetensors", 100); },
          "input checkpoint checkpoints/step-00000040/model.safetensors"),
      change(
          "telemetry cut short", [](const Sealed& s) { cut(s.run + "/telemetry.db", 3000); },
          "input telemetry telemetry.db", "claim val_loss_final", "claim tokens"),
      change(
          "empty telemetry", [](const Sealed& s) { cut(s.run + "/telemetry.db", 0); },
          "input telemetry telemetry.db", "claim val_loss_final"),
      change(
          "a claim",
          [](const Sealed& s) { replace(s.receipt, "\"value\": 4.25", "\"value\": 4.0"); },
          "receipt: edited", "claim val_loss_final: recomputed 4.25, the receipt has 4.0"),
      change(
          "the data that meta.json names",
          [](const Sealed& s) {
            replace(s.run + "/meta.json", sha256_file(s.folder / "data/v.bin"),
                    std::string(64, 'a'));
          },
          "meta.json: it does not name v.bin"),
      change(
          "a damaged meta.json", [](const Sealed& s) { cut(s.run + "/meta.json", 20); },
          "meta.json: it is damaged: not a JSON object"),
      change(
          "a null claim",
          [](const Sealed& s) { replace(s.receipt, "\"value\": null", "\"value\": 3"); },
          "claim layer_1_saturated_at_step: recomputed null, the receipt has 3"),
      change(
          "the contract", [](const Sealed& s) { replace(s.receipt, "\"seed\": 1", "\"seed\": 2"); },
          "contract: seed is 1, the receipt has 2"),
      change(
          "the sealed step",
          [](const Sealed& s) { replace(s.receipt, "\"sealed_step\": 40", "\"sealed_step\": 39"); },
          "input telemetry telemetry.db", "claim steps_done: recomputed 39, the receipt has 40"),
      change(
          "a receipt cut short", [](const Sealed& s) { cut(s.receipt, 500); },
          "receipt: the file is damaged: not JSON (500 bytes)"),
      change(
          "a receipt cut to nothing", [](const Sealed& s) { cut(s.receipt, 0); },
          "receipt: the file is damaged"),
      change(
          "a receipt without a section",
          [](const Sealed& s) { replace(s.receipt, "\"claims\":", "\"remarks\":"); },
          "receipt: the receipt has no claims"),
      change(
          "a value before the sealed one",
          [](const Sealed& s) {
            replace(s.receipt, "\"value\": 4.25", "\"value\": 3.5, \"value\": 4.25");
          },
          "receipt: the key value is there twice"),
      change(
          "a line more than the seal covers",
          [](const Sealed& s) {
            replace(s.receipt, "\"sealed_step\":", "\"headline\": 2.5, \"sealed_step\":");
          },
          "receipt: no receipt has the key /headline"),
      change(
          "a remark in a claim",
          [](const Sealed& s) {
            replace(s.receipt, "\"value\": 4.25", "\"value\": 4.25, \"note\": \"best\"");
          },
          "receipt: no receipt has the key /claims/"),
      change(
          "a value that is no number",
          [](const Sealed& s) { replace(s.receipt, "\"value\": 4.25", "\"value\": \"low\""); },
          "receipt: claim val_loss_final: its value is not a number"),
  };
  for (const auto& row : rows) {
    const Sealed s;
    row.make(s);
    const Verification v = verify_receipt(s.run, kThisBuild);
    INFO(row.what << "\n" << text_of(v));
    for (const std::string& drift : row.named) {
      INFO(drift);
      bool named = false;
      for (const Check& check : v.checks) {
        named |= check.finding == Finding::kDrift &&
                 (check.what + ": " + check.detail).find(drift) != std::string::npos;
      }
      REQUIRE(named);
    }
  }
}

TEST_CASE("a claim edited together with the seal is still drift") {
  const Edit rows[] = {
      edit(
          "value",
          [](const Receipt& r) {
            return with_claim(r, "val_loss_final", [](Claim& c) { c.value = 4.2; });
          },
          "claim val_loss_final: recomputed 4.25, the receipt has 4.2"),
      edit(
          "tolerance",
          [](const Receipt& r) {
            return with_claim(r, "val_loss_final",
                              [](Claim& c) { c.value = 4.2, c.tolerance = 0.1; });
          },
          "claim val_loss_final: its tolerance is 0.1, the rule allows 0"),
      edit(
          "rule",
          [](const Receipt& r) {
            return with_claim(r, "val_loss_final", [](Claim& c) {
              c.value = 4.0;
              c.how = how_eval("val", "loss_nats", "best");
            });
          },
          "claim val_loss_final: its rule is"),
      edit(
          "unit",
          [](const Receipt& r) {
            return with_claim(r, "val_loss_final", [](Claim& c) { c.unit = "bits"; });
          },
          "claim val_loss_final: its unit is nats, the receipt has bits"),
      edit(
          "removed",
          [](const Receipt& r) {
            Receipt changed = r;
            std::erase_if(changed.claims,
                          [](const Claim& c) { return c.name == "val_loss_final"; });
            return changed;
          },
          "claim val_loss_final: missing from the receipt"),
      edit(
          "twice",
          [](const Receipt& r) {
            Receipt changed = r;
            changed.claims.push_back(claim_of(r, "val_loss_final"));
            return changed;
          },
          "claim val_loss_final: claimed twice"),
      edit(
          "unknown rule",
          [](const Receipt& r) {
            Receipt changed = r;
            changed.claims.push_back({.name = "luck", .value = 1, .unit = "", .how = {}});
            changed.claims.back().how["rule"] = "fortune";
            return changed;
          },
          "claim luck: unknown name fortune"),
      edit(
          "no telemetry listed",
          [](const Receipt& r) {
            Receipt changed = r;
            std::erase_if(changed.inputs,
                          [](const ReceiptInput& i) { return i.kind == "telemetry"; });
            return changed;
          },
          "input telemetry: the receipt does not list it"),
  };
  const Sealed s;
  const Receipt receipt = read_receipt(s.receipt);
  for (const auto& row : rows) {
    write_receipt(s.receipt, row.make(receipt));
    const Verification v = verify_receipt(s.receipt, kThisBuild);
    INFO(row.what << "\n" << text_of(v));
    REQUIRE(v.count(Finding::kDrift) == 1);
    REQUIRE(text_of(v).find(row.drift) != std::string::npos);
  }
}

TEST_CASE("missing inputs are reported as not available, not as drift") {
  const Change rows[] = {
      change(
          "data", [](const Sealed& s) { fs::remove_all(s.folder / "data"); }, "input data t.bin",
          "input data v.bin"),
      change(
          "checkpoint", [](const Sealed& s) { fs::remove_all(s.run + "/checkpoints"); },
          "input checkpoint checkpoints/step-00000040/MANIFEST.json"),
      change(
          "telemetry", [](const Sealed& s) { fs::remove(s.run + "/telemetry.db"); },
          "input telemetry telemetry.db", "claim val_loss_final"),
      change(
          "config", [](const Sealed& s) { fs::remove(s.run + "/config.yaml"); },
          "input config config.yaml", "claim parameters_total", "contract"),
      change(
          "the record of what it was trained on",
          [](const Sealed& s) { fs::remove(s.run + "/meta.json"); }, "meta.json: there is no "),
  };
  for (const auto& row : rows) {
    const Sealed s;
    row.make(s);
    const Verification v = verify_receipt(s.run, kThisBuild);
    INFO(row.what << "\n" << text_of(v));
    REQUIRE(v.count(Finding::kDrift) == 0);
    for (const std::string& missing : row.named)
      REQUIRE(text_of(v).find("not available " + missing) != std::string::npos);
    const auto without_data = std::count_if(v.checks.begin(), v.checks.end(),
                                            [](const Check& check) { return check.no_data; });
    const bool finds_data = fs::exists(s.folder / "data") && fs::exists(s.run + "/meta.json");
    REQUIRE(without_data == (finds_data ? 0 : 2));
  }
  const Sealed s;
  // The run was made by a different build of the program.
  const Verification v = verify_receipt(s.run, {});
  REQUIRE(v.count(Finding::kDrift) == 0);
  REQUIRE(v.count(Finding::kNotAvailable) == 2);
}

TEST_CASE("data that moved is found by name and hash") {
  const Sealed s;
  fs::create_directories(s.folder / "disk/old");
  fs::rename(s.folder / "data", s.folder / "disk/shards");
  write_file_atomic(s.folder / "disk/old/t.bin", "older tokens");
  VerifyOptions options = kThisBuild;
  options.data = {s.folder / "disk"};
  const Verification v = verify_receipt(s.run, options);
  INFO(text_of(v));
  REQUIRE(v.count(Finding::kDrift) + v.count(Finding::kNotAvailable) == 0);
}

TEST_CASE("later evaluations and steps do not invalidate a receipt, which does not cover them") {
  const Sealed s(60);
  make_folders(s.run + "/evals");
  write_file_atomic(s.run + "/evals/core.json", "{}");
  sql(s.run, "INSERT INTO eval VALUES(60, 'val', 'loss_nats', 3.0, 4096)");
  sql(s.run, "INSERT INTO scalar VALUES(60, 'train_loss_nats', 3.0)");
  sql(s.run, "INSERT INTO event VALUES(60, 'now', 'end', 'steps')");
  sql(s.run, "UPDATE event SET time = 'then'; VACUUM");
  const Verification v = verify_receipt(s.run, kThisBuild);
  INFO(text_of(v));
  REQUIRE(v.count(Finding::kDrift) == 0);
  REQUIRE(v.count(Finding::kNotAvailable) == 1);
  REQUIRE(text_of(v).find("not available telemetry: the run went on to step 60: the receipt, made "
                          "at step 40, does not cover") != std::string::npos);
}

TEST_CASE("the results of two runs are compared without their times") {
  const Sealed a, b;
  sql(b.run, "UPDATE scalar SET value = 2 * value WHERE name = 'train_s'");
  sql(b.run, "UPDATE span SET milliseconds = 2");
  const auto dump = [](const Sealed& s) { return dump_telemetry(s.run + "/telemetry.db", 40); };
  REQUIRE(dump(a).sha256 != dump(b).sha256);
  REQUIRE(dump(a).results_sha256 == dump(b).results_sha256);
  sql(b.run, "UPDATE scalar SET value = 6 WHERE step = 40 AND name = 'hash'");
  REQUIRE(dump(a).results_sha256 != dump(b).results_sha256);
  REQUIRE(dump_telemetry(a.run + "/telemetry.db", 39).results_sha256 ==
          dump_telemetry(b.run + "/telemetry.db", 39).results_sha256);
}

TEST_CASE("a column that is named by an expression is read as a column") {
  const Sealed s;
  sql(s.run, "ALTER TABLE router_layer ADD COLUMN \"random()\" REAL");
  const std::string telemetry = s.run + "/telemetry.db";
  REQUIRE(dump_telemetry(telemetry, 40).sha256 == dump_telemetry(telemetry, 40).sha256);
}

TEST_CASE("files that are not receipts are refused") {
  const Sealed s;
  expect_error([&] { verify_receipt(s.folder / "nowhere", {}); }, "nowhere does not exist");
  expect_error([&] { verify_receipt(s.folder / "data", {}); }, "no receipt in");
  std::filesystem::create_symlink("loop", s.folder / "data/loop");
  expect_error([&] { verify_receipt(s.folder / "data/loop", {}); }, "cannot read");
  expect_error([&] { verify_receipt(s.folder / "data/t.bin", {}); }, "t.bin is not a receipt");
  expect_error([&] { verify_receipt(s.run + "/meta.json", {}); }, "meta.json is not a receipt");
  replace(s.receipt, "\"assay_receipt\": 1", "\"assay_receipt\": 2");
  expect_error([&] { verify_receipt(s.run, {}); }, "has schema 2, this version reads up to 1");
  expect_error([&] { make_run_receipt(s.folder / "data", s.folder.path()); }, "is not a run");
  expect_error([&] { make_run_receipt(s.run, s.folder / "data"); }, "is not in");
}

}  // namespace assay::test_receipt
