// What a user's file gives an imported run: everything but the model.
#include "interop/imported_config.h"
#include "tests/data/expect_error.h"
#include "tests/interop/interop_fixture.h"

namespace assay::test_imported_config {
namespace {

// A file with these router fields, which includes what only describes the batch.
struct UserFile {
  explicit UserFile(const std::string& router) {
    const std::string model = router.empty() ? "" : "model: {moe: {router: {" + router + "}}}\n";
    write_file_atomic(folder / "batch.yaml",
                      "run: {sequence: 64, micro_batch: 4, batch_tokens: 1024}\n" + model);
    write_file_atomic(folder / "user.yaml", "include: batch.yaml\noptimizer: {lr: 2e-3}\n");
  }
  Imported imports(const std::string& name, const std::vector<std::string>& sets = {}) {
    return imported(fixture(name), folder / "run-" + std::to_string(++runs), sets,
                    folder / "user.yaml");
  }

  TempFolder folder;
  int runs = 0;
};

RouterConfig router_of(const Imported& run) {
  REQUIRE(run.config.optimizer.lr == 2e-3);
  return run.config.model.moe->router;
}

bool is_noted(const Imported& run, const std::string& says) {
  for (const std::string& note : run.notes) {
    if (note.find(says) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the rate of a selection bias is that of the user's file") {
  REQUIRE(router_of(UserFile("").imports("glm4_moe")).bias_rate == 1e-3);
  REQUIRE(router_of(UserFile("aux: none").imports("glm4_moe")).bias_rate == 1e-3);

  UserFile number("bias_rate: 0.01");
  const Imported run = number.imports("glm4_moe");
  REQUIRE(router_of(run).bias_rate == 0.01);
  REQUIRE_FALSE(is_noted(run, "bias_rate"));
  REQUIRE(router_of(number.imports("glm4_moe", {"model.moe.router.bias_rate=0.02"})).bias_rate ==
          0.02);

  const RouterConfig automatic =
      router_of(UserFile("bias_rate: auto, bias_steps: 50").imports("glm4_moe"));
  REQUIRE(automatic.bias_rate.automatic);
  REQUIRE(automatic.bias_steps == 50.0);

  UserFile none("bias_rate: 0.0");
  expect_error([&] { none.imports("glm4_moe"); },
               "has selection biases, but model.moe.router.bias_rate is 0");
}

TEST_CASE("a class without a selection bias has none, and a file that asks for one is told") {
  const std::string rate = "model.moe.router.bias_rate";
  const auto imports = [&](const std::string& router, const std::vector<std::string>& sets) {
    return UserFile(router).imports("mixtral", sets);
  };
  for (const std::string asked : {"0.01", "auto"}) {
    const Imported run = imports("bias_rate: " + asked, {});
    REQUIRE(router_of(run).bias_rate == 0.0);
    REQUIRE(is_noted(
        run, rate + " is 0 and not " + asked + " as in the configuration or by default: Mixtral"));
  }
  REQUIRE_FALSE(is_noted(imports("bias_rate: 0", {}), rate));
  REQUIRE_FALSE(is_noted(imports("bias_rate: 0.01", {rate + "=0"}), rate));
  REQUIRE_FALSE(is_noted(imports("", {"model.moe.router.aux=none"}), rate));
  REQUIRE_FALSE(is_noted(imported(fixture("mixtral"), TempFolder() / "run"), rate));
}

}  // namespace assay::test_imported_config
