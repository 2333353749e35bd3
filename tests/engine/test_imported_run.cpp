#include "base/file.h"
#include "engine/config/yaml.h"
#include "engine/run/imported_run.h"
#include "engine/run/run_dir.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_imported_run {
namespace {

using Start = RunDir::Start;

Config config_with(double lr) {
  Config c;
  c.data.train = {"/data/t.bin"};
  c.optimizer.lr = lr;
  return c;
}

// A run in the folder, with this imported.json.
std::string make_run(const std::string& path, const std::string& imported) {
  RunDir(path, Start::kContinue).write_config(config_with(1e-3));
  write_file_atomic(path + "/imported.json", imported);
  write_file_atomic(path + "/tokenizer.json", "x");
  return path;
}

template <typename F>
std::string hint_of(const F& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.hint();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an imported run is not deleted to start over") {
  const TempFolder folder;
  const std::string path = make_run(folder / "a", R"({"folder": "/models/of mine"})");
  REQUIRE(is_imported(path));
  REQUIRE(imported_tokenizer(path) == path + "/tokenizer.json");
  const std::string config = path + "/config.yaml", before = read_file(config);
  const std::string command =
      "assay import '/models/of mine' -o NEW --config " + config + " --set FIELD=VALUE";
  REQUIRE(import_again(path) == command);
  expect_error([&] { const RunDir run(path, Start::kFresh); }, "began from imported weights");
  REQUIRE(has(hint_of([&] { const RunDir run(path, Start::kFresh); }), command));
  REQUIRE(read_file(config) == before);
  REQUIRE(is_imported(path));
  REQUIRE(RunDir(path, Start::kContinue).previous());
}

TEST_CASE("the hints of an imported run lead to its weights") {
  const TempFolder folder;
  const std::string path = make_run(folder / "a", R"({"folder": "/models/llama"})");
  const auto lead_there = [&](const std::string& hint) {
    return has(hint, "import the model again") && has(hint, import_again(path)) &&
           !has(hint, "--fresh");
  };
  const Config begun = config_with(1e-3), other = config_with(5e-5);
  REQUIRE(lead_there(hint_of([&] { require_same_run(path, begun, other, 0); })));
  REQUIRE(lead_there(hint_of([&] { require_unedited(path, begun, other, 5); })));
  Config another = begun;
  another.model.layers += 1;
  another.model.hidden *= 2;
  another.model.ffn *= 2;
  another.model.heads *= 2;
  REQUIRE(!has(hint_of([&] { require_same_run(path, begun, another, 0); }), "--fresh"));
}

TEST_CASE("a configuration of an imported run says that a run elsewhere is not one") {
  const TempFolder folder;
  const std::string path = make_run(folder / "a", R"({"folder": "/models/llama"})");
  const std::string text = random_weights_text(path + "/config.yaml");
  REQUIRE(has(text, "a/config.yaml is of an imported model, but a run in another folder begins"));
  REQUIRE(has(text, "from random weights"));
  REQUIRE(has(text, import_again(path)));
  REQUIRE(random_weights_text(folder / "config.yaml").empty());
}

TEST_CASE("an imported.json that does not say where the model was") {
  const TempFolder folder;
  REQUIRE(!is_imported(""));
  REQUIRE(!is_imported(folder / "none"));
  REQUIRE(imported_folder(folder / "none").empty());
  const std::string path = make_run(folder / "a", "{}");
  for (const char* none : {"{}", "not JSON", R"({"folder": 1})"}) {
    write_file_atomic(path + "/imported.json", none);
    REQUIRE(is_imported(path));
    REQUIRE(imported_folder(path).empty());
    REQUIRE(import_again(path).starts_with("assay import MODEL -o NEW --config "));
  }
}

}  // namespace assay::test_imported_run
