#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/file.h"
#include "data/sha256.h"
#include "engine/config/fields.h"
#include "engine/config/section_visitor.h"
#include "engine/telemetry/sqlite.h"
#include "lab/matrix/state.h"
#include "lab/runs/seed_groups.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/fake_run.h"
#include "tests/lab/matrix_family.h"

namespace assay::test_matrix_edits {
namespace {

using matrix_family::edited;
using matrix_family::Family;
using matrix_family::kMatrix;

// Gives the field at `path` another value.
class Changer : public SectionVisitor<Changer> {
 public:
  explicit Changer(std::string path) : path_(std::move(path)) {}
  bool changed = false;

  template <typename T>
  void operator()(const char* name, T& field, const char*, const FieldCheck&) {
    if (path_of(name) != path_) return;
    changed = true;
    if constexpr (std::is_same_v<T, bool>) {
      field = !field;
    } else if constexpr (std::is_same_v<T, std::string>) {
      field += "x";
    } else if constexpr (std::is_arithmetic_v<T>) {
      field += 1;
    } else {
      changed = false;
    }
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("the changes of an edited matrix are listed") {
  const Family family;
  const Matrix first = family.matrix(kMatrix);
  make_folders(family.runs().path());
  REQUIRE(!find_edits(family.runs(), first).started);
  write_matrix(family.runs(), first, {});
  REQUIRE(!find_edits(family.runs(), first).any());
  family.begin(first.cell("dense-activeDN-fp32-seed1"));
  REQUIRE(!find_edits(family.runs(), first).any());

  const Matrix more = family.matrix(edited("seeds: [1, 2]", "seeds: [1, 3]"));
  const MatrixEdits seeds = find_edits(family.runs(), more);
  REQUIRE(seeds.added.size() == 6);
  REQUIRE(seeds.added[0] == "dense-activeDN-fp32-seed3");
  REQUIRE(seeds.removed.size() == 6);
  REQUIRE(seeds.changed.empty());

  const Matrix faster = family.matrix(std::string(kMatrix) + "set: {optimizer.lr: 2e-3}\n");
  const MatrixEdits rate = find_edits(family.runs(), faster);
  REQUIRE(rate.changed.size() == 1);
  REQUIRE(rate.changed[0].text() == "dense-activeDN-fp32-seed1: optimizer.lr: 0.001 -> 0.002");
  REQUIRE(rate.changed_cells == std::vector<std::string>{"dense-activeDN-fp32-seed1"});
  REQUIRE(rate.moved.size() == 7);  // the runs that had not started
  REQUIRE(rate.added.empty());

  // Threads and checkpoints change no results.
  const Matrix saved =
      family.matrix(std::string(kMatrix) + "set: {run.checkpoint_every: 7}\njobs: 3\n");
  REQUIRE(!find_edits(family.runs(), saved).any());

  // The manifest keeps the history of edits.
  write_matrix(family.runs(), more, seeds);
  const std::string manifest = read_file(family.runs().file("matrix.json"));
  REQUIRE(manifest.find("dense-activeDN-fp32-seed3") != std::string::npos);
  REQUIRE(manifest.find("\"removed\"") != std::string::npos);
}

TEST_CASE("fields that make no other model of runs make no other run of a cell") {
  const Config config;
  const std::string counts = "\n" + model_identity(config);
  int64_t without_effect = 0;
  for (const FieldRow& row : config_fields(config)) {
    // Cells have seeds of their own, and a run that is logged more often has other measures.
    if (row.type == "section" || row.path == "run.seed" || row.path == "run.log_every") continue;
    if (counts.find("\n" + row.path + "=") != std::string::npos) continue;
    ++without_effect;
    INFO(row.path);
    Config other = config;
    Changer changer(row.path);
    visit(changer, other);
    REQUIRE(changer.changed);
    REQUIRE(matrix_differences(config, other).empty());
    REQUIRE(config_sha256(config) == config_sha256(other));
  }
  REQUIRE(without_effect == 14);
}

TEST_CASE("a hash that an earlier version made without a check of the tokenizer is known") {
  const Family family;
  const Config checked = family.matrix(kMatrix).cells.front().config;
  Config unchecked = checked, hashed = what_matters(checked);
  unchecked.data.check_tokenizer = hashed.data.check_tokenizer = false;
  const std::string old = sha256_hex(to_yaml(hashed));
  REQUIRE(old != config_sha256(unchecked));
  REQUIRE((is_config_sha256(old, unchecked) && is_config_sha256(old, checked)));
  unchecked.optimizer.lr *= 2;
  REQUIRE_FALSE(is_config_sha256(old, unchecked));
}

TEST_CASE("seeds that undecided claims add are no edits of the file") {
  const Family family;
  MatrixFile file = family.file(kMatrix);
  make_folders(family.runs().path());
  write_matrix(family.runs(), lay_out(file), {});
  file.seeds.push_back(3);
  file.extra_seeds.push_back(3);
  const Matrix more = lay_out(file);
  const MatrixEdits edits = find_edits(family.runs(), more);
  REQUIRE(!edits.any());
  write_matrix(family.runs(), more, edits);
  const auto record = nlohmann::json::parse(read_file(family.runs().file(kMatrixRecord)));
  REQUIRE((record["cells"].size() == 18 && record["edits"].empty()));
  // A model that is added later is one, with all its seeds.
  file.models.push_back(file.models.back());
  file.models.back().name = "again";
  REQUIRE(find_edits(family.runs(), lay_out(file)).added.size() == 6);
}

TEST_CASE("claims stay sealed while runs of removed cells are in the folder") {
  const Family family;
  const auto with = [&](const std::string& contract, const std::string& bound) {
    return family.matrix("name: m\nmodels: {dense: dense.yaml}\nprecisions: [fp32]\n" +
                         ("contracts: [{kind: steps, name: " + contract + "}]\n") +
                         "claims: [{name: c, measure: val_loss, of: dense, below: " + bound +
                         "}]\n");
  };
  const auto take_over = [&](const Matrix& matrix) {
    const MatrixEdits edits = find_edits(family.runs(), matrix);
    REQUIRE(!edits.claims.any());
    write_matrix(family.runs(), matrix, edits);
  };
  make_folders(family.runs().path() + "/half.part");
  family.write("runs/half.part/config.yaml", "a copy that was cut short is no run");
  std::filesystem::create_directory(family.folder / "runs/configs");
  take_over(with("a", "4"));
  take_over(with("a", "3.9"));  // nothing has begun
  family.begin(with("a", "3.9").cells.front());
  REQUIRE(find_edits(family.runs(), with("a", "3")).claims.added == std::vector<std::string>{"c"});
  REQUIRE(find_edits(family.runs(), with("b", "3")).claims.any());  // the run is of no cell now
  take_over(with("b", "3.9"));
  REQUIRE(find_edits(family.runs(), with("b", "3")).claims.any());  // nor of a recorded one
  const std::optional<ClaimSeal> seal = recorded_seal(family.runs());
  REQUIRE((seal->runs_begun == 0 && seal->edits.empty()));
}

TEST_CASE("no claim is edited while the run of a removed cell may be finished or not") {
  const Family family;
  const auto with = [&](const std::string& bound) {
    return family.matrix(
        "name: m\nmodels: {dense: dense.yaml}\nprecisions: [fp32]\ncontracts: [{kind: steps}]\n"
        "claims: [{name: c, measure: val_loss, of: dense, below: " +
        bound + "}]\n");
  };
  make_folders(family.runs().path());
  write_matrix(family.runs(), with("4"), {});
  FakeRun{.path = family.runs().file("removed"), .data = family.folder / "data"}.write();
  const Matrix edited_claims = with("3");
  const MatrixEdits edits = find_edits(family.runs(), edited_claims);
  REQUIRE(edits.claims.any());
  {
    Database holder(family.runs().file("removed/telemetry.db"), Database::Mode::kCreate);
    holder.run("BEGIN EXCLUSIVE");
    expect_error([&] { write_matrix(family.runs(), edited_claims, edits); },
                 "removed/telemetry.db: ");
    holder.run("ROLLBACK");
  }
  write_matrix(family.runs(), edited_claims, edits);
  const std::optional<ClaimSeal> seal = recorded_seal(family.runs());
  REQUIRE((seal->edits.size() == 1 && seal->edits[0].runs_finished == 1));
}

TEST_CASE("the seal of the claims says that cells were edited after a run had finished") {
  const Family family;
  const auto with = [&](const std::string& models) {
    return family.matrix("name: m\nmodels: {" + models +
                         "}\nprecisions: [fp32]\nseeds: [1]\ncontracts: [{kind: steps}]\n"
                         "claims: [{name: c, measure: val_loss, of: dense, below: 4}]\n");
  };
  const std::string one = "dense: dense.yaml", two = one + ", moe: moe.yaml",
                    three = two + ", large: large.yaml";
  const auto take_over = [&](const std::string& models) {
    const Matrix matrix = with(models);
    write_matrix(family.runs(), matrix, find_edits(family.runs(), matrix));
    return *recorded_seal(family.runs());
  };
  make_folders(family.runs().path());
  write_matrix(family.runs(), with(one), {});
  REQUIRE(take_over(two).cell_edits.empty());  // no run has begun: it is sealed anew
  FakeRun{.path = family.runs().file("removed"), .data = family.folder / "data"}.write();
  REQUIRE(take_over(two).cell_edits.empty());  // no edit
  const ClaimSeal seal = take_over(three);
  REQUIRE(seal.edits.empty());
  REQUIRE((seal.cell_edits.size() == 1 && seal.cell_edits[0].runs_finished == 1));
  INFO(seal_text(seal));
  REQUIRE(seal_text(seal).find(", when 1 run had finished: 1 added (large") != std::string::npos);
  REQUIRE(seal_text(take_over(one)).find(", when 1 run had finished: 2 removed (") !=
          std::string::npos);
}

TEST_CASE("a matrix whose evaluations read files may move with them") {
  const Family family;
  const auto in = [&](const std::string& folder, const std::string& bundle) {
    return family.matrix(edited("models:", "set: {eval.core.bundle: " + folder + "/" + bundle +
                                               ", eval.samples.file: " + folder +
                                               "/prompts.txt}\nmodels:"));
  };
  const Matrix here = in("/clone-a", "core"), there = in("/clone-b", "core/");
  const Cell &cell = here.cells.front(), &moved = there.cells.front();
  REQUIRE(moved.config.eval.core->bundle.starts_with("/clone-b/core"));
  REQUIRE(matrix_differences(cell.config, moved.config).empty());
  REQUIRE(config_sha256(cell.config) == config_sha256(moved.config));
  const Config other = in("/clone-a", "core-2").cells.front().config;
  REQUIRE(matrix_differences(cell.config, other).size() == 1);
  REQUIRE(config_sha256(cell.config) != config_sha256(other));

  make_folders(family.runs().path());
  write_matrix(family.runs(), here, {});
  REQUIRE(!find_edits(family.runs(), there).any());
  // The hash of an earlier version, of a configuration that has not moved.
  std::string text = to_yaml(what_matters(cell.config));
  const std::string old = sha256_hex(text);
  REQUIRE(old != config_sha256(cell.config));
  REQUIRE((is_config_sha256(old, cell.config) && !is_config_sha256(old, other)));
}

TEST_CASE("folders with other contents are refused") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  make_folders(family.runs().path());
  family.write("runs/note.txt", "mine");
  REQUIRE_THROWS_WITH(find_edits(family.runs(), m),
                      Catch::Matchers::ContainsSubstring("has files but no matrix"));
  std::filesystem::remove(family.folder / "runs/note.txt");
  write_matrix(family.runs(), m, {});
  const Matrix other = family.matrix(edited("name: m", "name: n"));
  REQUIRE_THROWS_WITH(find_edits(family.runs(), other),
                      Catch::Matchers::ContainsSubstring("holds the matrix m, not n"));
  const MatrixFolder file(family.folder / "dense.yaml");
  REQUIRE_THROWS_WITH(find_edits(file, m), Catch::Matchers::ContainsSubstring("is a file"));
}

}  // namespace assay::test_matrix_edits
