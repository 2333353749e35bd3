// Contracts whose coefficient comes from a reference: a configuration or a run.
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/telemetry/telemetry.h"
#include "models/audit/branch.h"
#include "models/audit/contract.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_contract {
namespace {

const std::string kShape =
    "model: {hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: 512}\n"
    "schedule: {warmup: 5}\n";
const std::string kMoe =
    "model: {moe: {experts: 8, top_k: 2, shared: 1, expert_ffn: 64, first_dense_layers: 1}}\n";

std::string run_text(int64_t steps) {
  return "run: {steps: " + std::to_string(steps) +
         ", batch_tokens: 1024, sequence: 64, micro_batch: 8}\n";
}

// Writes the files of a run that a reference reads.
void write_run(const std::string& folder, int64_t steps, const std::string& end, double train_s) {
  std::filesystem::create_directories(folder);
  write_file_atomic(folder + "/config.yaml",
                    to_yaml(parse_config_text(kShape + run_text(100), "run", "/")));
  Telemetry telemetry(folder + "/telemetry.db",
                      {.scalars = {"train_s"}, .spans = {}, .layers = {}});
  telemetry.begin_step(steps).scalars[0] = train_s;
  telemetry.commit();
  if (!end.empty()) telemetry.event(steps, "end", end);
}

// The same model with a different batch, under a contract.
Config under(const TempFolder& folder, const std::string& contract, const std::string& more = "") {
  write_file_atomic(folder / "run.yaml", "include: shape.yaml\n" + more + "contract: " + contract +
                                             "\nrun: {steps: 77, batch_tokens: 512, sequence: 64, "
                                             "micro_batch: 8}\n");
  Config c = load_config(folder / "run.yaml");
  resolve_reference(c);
  return c;
}

}  // namespace

TEST_CASE("the coefficient of a reference gives the reference its own steps") {
  const TempFolder folder;
  write_file_atomic(folder / "shape.yaml", kShape);
  write_file_atomic(folder / "reference.yaml", kShape + run_text(100));
  write_run(folder / "done", 60, "target_loss", 15.0);
  const struct {
    const char* kind;
    int64_t of_config, of_run;  // steps of 512 tokens
  } rows[] = {
      {"steps", 100, 60},    {"active-width", 100, 60}, {"activeDN", 200, 120},
      {"totalDN", 200, 120}, {"flops", 200, 120},
  };
  for (const auto& row : rows) {
    const std::string kind = std::string("{kind: ") + row.kind + ", reference: ";
    for (const auto& [reference, steps] :
         {std::pair("reference.yaml", row.of_config), std::pair("done", row.of_run)}) {
      INFO(row.kind << " of " << reference);
      Config c = under(folder, kind + reference + "}");
      REQUIRE(c.contract.reference.empty());
      REQUIRE(c.contract.derived_from.find(reference) != std::string::npos);
      resolve_steps(c);
      REQUIRE(c.run.steps == steps);
      // The resolved configuration gives the same without the reference.
      Config again = parse_config_text(to_yaml(c), "resolved", "/");
      resolve_reference(again);
      resolve_steps(again);
      REQUIRE(to_yaml(again) == to_yaml(c));
    }
  }
  Config seconds = under(folder, "{kind: seconds, reference: done, step_seconds: 0.5}");
  resolve_steps(seconds);
  REQUIRE(seconds.contract.coefficient == 15);
  REQUIRE(seconds.run.steps == 30);
}

TEST_CASE("a sparse model under contracts of a dense reference, by hand") {
  const TempFolder folder;
  write_file_atomic(folder / "shape.yaml", kShape);
  write_file_atomic(folder / "reference.yaml", kShape + run_text(100));
  // Dense: 2*512*64 + 5*64 + 2*(4*64*64 + 3*64*128) = 147776. With one block sparse: router 512,
  // each expert 12288.
  const int64_t dense = 147776, rest = dense - 3 * 64 * 128 + 512;
  const int64_t active = rest + 3 * 12288, total = rest + 9 * 12288;
  const auto steps = [&](const std::string& contract) {
    Config c = under(folder, "{reference: reference.yaml, " + contract + "}", kMoe);
    resolve_steps(c);
    return c.run.steps;
  };
  REQUIRE(audit(load_config(folder / "reference.yaml")).total == dense);
  REQUIRE(steps("kind: activeDN") == 200 * active / dense);
  REQUIRE(steps("kind: totalDN") == 200 * total / dense);
  REQUIRE(steps("kind: totalDN, shared_in_total: false") == 200 * (total - 12288) / dense);
  expect_error([&] { steps("kind: active-width"); },
               "active FFN width of 128, this one has (K + S) * F = (2 + 1) * 64 = 192");
}

TEST_CASE("a fraction of the horizon keeps the whole horizon") {
  const TempFolder folder;
  write_file_atomic(folder / "shape.yaml", kShape);
  for (const char* contract : {"{kind: steps, fraction: 0.25, landings: [0.1, 0.25]}",
                               "{kind: activeDN, coefficient: 1, fraction: 0.25}"}) {
    INFO(contract);
    Config c = under(folder, contract);
    const int64_t full = horizon(c);
    resolve_steps(c);
    REQUIRE(c.run.steps == fraction_of_steps(full, 0.25));
    Config again = parse_config_text(to_yaml(c), "resolved", "/");
    REQUIRE(horizon(again) == full);
    resolve_steps(again);
    REQUIRE(to_yaml(again) == to_yaml(c));
  }
}

TEST_CASE("invalid references are refused") {
  const TempFolder folder;
  write_file_atomic(folder / "shape.yaml", kShape);
  write_file_atomic(folder / "reference.yaml", kShape + run_text(100));
  write_file_atomic(folder / "chain.yaml",
                    kShape + "contract: {kind: flops, reference: reference.yaml}\n");
  write_file_atomic(folder / "slow.yaml", kShape + "contract: {kind: seconds, coefficient: 9}\n");
  write_run(folder / "stopped", 60, "interrupted", 15.0);
  write_run(folder / "old", 100, "steps", std::nan(""));
  std::filesystem::create_directory(folder / "empty");
  const struct {
    const char* contract;
    const char* says;
  } rows[] = {
      {"{kind: flops, reference: gone.yaml}", "there is no "},
      {"{kind: flops, reference: empty}", "is not a run"},
      {"{kind: flops, reference: stopped}", "is not finished (step 60 of 100)"},
      {"{kind: flops, reference: chain.yaml}", "its own contract flops needs a reference"},
      {"{kind: flops, reference: slow.yaml}", "its own contract seconds needs a measurement"},
      {"{kind: seconds, reference: reference.yaml}", "has no seconds of training"},
      {"{kind: seconds, reference: old}", "has no seconds of training"},
      {"{kind: flops, coefficient: 3, reference: reference.yaml}", "are both given"},
  };
  for (const auto& row : rows) {
    INFO(row.contract);
    expect_error([&] { under(folder, row.contract); }, row.says);
  }
}

TEST_CASE("a branch has the precision of its trunk up to where it leaves") {
  const Config trunk =
      parse_config_text(kShape + run_text(400) + "precision: {bf16_tail: 0.5}\n", "", ".");
  // Its steps are in bf16 from 201 on; the branches' own tails begin later, earlier and later.
  expect_error([&] { branch_config(trunk, {.step = 210, .steps = 440}); }, "from step 220 on");
  expect_error([&] { branch_config(trunk, {.step = 300, .steps = 390}); }, "from step 195 on");
  expect_error([&] { branch_config(trunk, {.step = 150, .steps = 200}); }, "from step 100 on");
  REQUIRE(branch_config(trunk, {.step = 150, .steps = 320}).run.steps == 320);
}

TEST_CASE("a branch's schedule is that of its own steps, not of its trunk's") {
  const Config trunk = parse_config_text(kShape + run_text(400), "", ".");
  // Warm-up and warm-down together are longer than the trunk.
  const Config longer = branch_config(trunk, {.step = 50, .steps = 450});
  REQUIRE(longer.run.steps == 450);
  REQUIRE(longer.schedule.warmdown == 400);
  Config landing =
      parse_config_text(kShape + run_text(40) + "contract: {landings: [0.2, 1]}\n", "", ".");
  resolve_steps(landing);
  expect_error([&] { branch_config(landing, {.step = 8, .steps = 80}); },
               "the branch ends at step 80, after the contract's horizon of 40");
  const Config within = branch_config(landing, {.step = 8, .steps = 40});
  REQUIRE(within.run.steps == 40);
  REQUIRE(within.schedule.warmdown == 32);
}

}  // namespace assay::test_contract
