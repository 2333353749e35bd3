#include <nlohmann/json.hpp>

#include "base/file.h"
#include "engine/config/text.h"
#include "lab/matrix/file.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/seal.h"
#include "lab/matrix/state.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_claim_file {

TEST_CASE("claims of a file") {
  const TempFolder folder;
  write_file_atomic(folder / "a.yaml", "model: {layers: 2}\n");
  const auto load = [&](const std::string& claims) {
    write_file_atomic(folder / "m.yaml",
                      "models: {full: a.yaml, even: a.yaml}\n"
                      "contracts: [{kind: steps, name: short}, {kind: steps, name: long}]\n"
                      "precisions: [bf16, nvfp4]\nclaims:\n" +
                          claims);
    return load_matrix_file(folder / "m.yaml");
  };
  const MatrixFile file = load(
      "  - {name: less, measure: max_load, of: even, below: full}\n"
      "  - {measure: cv, of: full, near: 0.64, within: 0.1}\n"
      "  - {measure: val_loss, of: even, below: full, across: [nvfp4, bf16], contract: long}\n"
      "  - {measure: val_loss, of: even, below: full, across: [0.25, 1]}\n"
      "  - {measure: val_loss, of: even, above: 2, across: [short, long], at: 0.5}\n"
      "  - {measure: dead, of: even, below: full, source: ours}\n");
  REQUIRE(file.claims.size() == 6);
  REQUIRE(file.claims[0].name == "less");
  REQUIRE(file.claims[0].other == "full");
  REQUIRE(file.claims[0].text() == "max_load of even - full < 0");
  REQUIRE(file.claims[1].name == "cv of full - 0.64 within +-0.1");

  REQUIRE(file.claims[2].across->over == ClaimAcross::Over::kPrecisions);
  REQUIRE(file.claims[2].contract == "long");
  // A claim across contracts is judged under the first of them.
  const MatrixFile apart = load(
      "  - {name: x, measure: val_loss, of: even, below: full, across: [short, long]}\n"
      "  - {name: x, measure: val_loss, of: even, below: full, contract: long}\n");
  REQUIRE(apart.claims.size() == 2);
  REQUIRE(file.claims[3].text() == "val_loss of even - full, 100% minus 25%, < 0");
  REQUIRE(file.claims[4].across->over == ClaimAcross::Over::kContracts);
  REQUIRE(file.claims[4].text() == "val_loss at 50% of even, long minus short, > 2");
  REQUIRE(!file.claims[4].source);
  REQUIRE(claim_of_json(claim_to_json(file.claims[5])).source == ClaimSource::kOurs);
  for (const MatrixClaim& claim : file.claims) {
    INFO(claim.name);
    REQUIRE(claim_to_json(claim_of_json(claim_to_json(claim))) == claim_to_json(claim));
    REQUIRE(claim_of_json(claim_to_json(claim)).text() == claim.text());
  }

  struct Bad {
    const char* claim;
    const char* error;
    const char* hint;
  };
  const Bad rows[] = {
      {"{of: full, below: 1}", "m.yaml:5: a claim has no measure", "max_load"},
      {"{measure: max_laod, of: full, below: 1}", "measure max_laod is unknown",
       "did you mean max_load"},
      {"{measure: cv, below: 1}", "a claim has no model", "of: aux-only"},
      {"{measure: cv, of: ful, below: 1}", "of: ful is not a model", "did you mean full"},
      {"{measure: cv, of: full, below: evn}", "below evn is not a model", "did you mean even"},
      {"{measure: cv, of: full}", "neither below nor above nor near", "below: baseline"},
      {"{measure: cv, of: full, below: 1, above: 0}", "a claim has below and above", "two claims"},
      {"{measure: cv, of: full, near: even}", "near, but not within", "within: 0.05"},
      {"{measure: cv, of: full, below: even, within: 1}", "within, but not near", "within: 0.05"},
      {"{measure: cv, of: full, near: even, within: 0}", "within = 0 must be > 0", "within: 0.05"},
      {"{measure: val_loss, of: full, below: even, across: [a]}", "across is not a list of two",
       "across: [activeDN, totalDN]"},
      {"{measure: val_loss, of: full, below: even, across: [0.2, bf16]}",
       "across has a number and a name: 0.2, bf16", "two of one kind"},
      {"{measure: val_loss, of: full, below: even, across: [long, log]}",
       "across: log is not a contract or precision", "did you mean long"},
      {"{measure: val_loss, of: full, below: even, across: [long, bf16]}",
       "across has the precision bf16 beside a contract", "two contracts or two precisions"},
      {"{measure: val_loss, of: full, below: even, across: [bf16, bf16]}",
       "across names bf16 twice", "two of one kind"},
      {"{measure: val_loss, of: full, below: even, across: [0.2, 2]}",
       "across has 2, which is out of range", "at most 1"},
      {"{measure: cv, of: full, below: even, across: [0.2, 1]}",
       "measure cv has no value during a run", "val_loss"},
      {"{measure: val_loss, of: full, below: even, at: 0.5, across: [0.2, 1]}",
       "a claim has at and across with shares", "names both shares"},
      {"{measure: val_loss, of: full, below: even, at: 0}", "at has 0, which is out of range",
       "above 0 and at most 1"},
      {"{measure: cv, of: full, below: 1, contract: lang}",
       "contract: lang is not a contract of this matrix", "did you mean long"},
      {"{measure: cv, of: full, below: 1, precision: fp8}",
       "precision: fp8 is not a precision of this matrix", "it has bf16, nvfp4"},
      {"{measure: cv, of: full, below: 1}\n  - {measure: cv, of: full, below: 1}",
       "two claims are called cv of full < 1", "different names"},
      {"{name: x, measure: cv, of: full, below: 1, contract: long}\n"
       "  - {name: x, measure: cv, of: full, below: 2}",
       "two claims are called x", "different names"},
      {"{measure: cv, of: full, near: full, within: 1}", "a claim compares full with itself",
       "another model"},
      {"{measure: val_loss, of: full, below: even, across: [short, long], contract: long}",
       "a claim across short and long has the contract long", "remove contract: long"},
      {"{measure: val_loss, of: full, below: even, across: [bf16, nvfp4], precision: nvfp4}",
       "a claim across bf16 and nvfp4 has the precision nvfp4", "remove precision: nvfp4"},
      {"{measure: cv, of: full, below: 1, source: mine}",
       "source = mine is not post, review or ours", "the published study says it"},
      {"{measure: cv, of: full, bellow: 1}", "unknown key bellow in a claim", "did you mean below"},
  };
  for (const Bad& row : rows) {
    INFO(row.claim);
    try {
      load("  - " + std::string(row.claim) + "\n");
      FAIL("it was accepted");
    } catch (const UserError& error) {
      INFO(error.what() << "\n" << error.hint());
      REQUIRE(std::string(error.what()).find(row.error) != std::string::npos);
      REQUIRE(error.hint().find(row.hint) != std::string::npos);
    }
  }
}

TEST_CASE("claims are sealed before the first run; later edits are recorded") {
  const TempFolder place;
  write_file_atomic(place / "a.yaml",
                    "model: {hidden: 64, layers: 2, heads: 2, vocab_size: 512, ffn: 64}\n"
                    "schedule: {warmup: 2, warmdown: 4}\n"
                    "run: {steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8}\n"
                    "eval: {every: 20, tokens: 4096}\n"
                    "data: {synth: {train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}\n");
  const MatrixFolder folder(place / "runs");
  const auto matrix_with = [&](const std::string& claims) {
    write_file_atomic(place / "m.yaml",
                      "models: {a: a.yaml, b: a.yaml}\nprecisions: [fp32]\n"
                      "set: {run.print_every: 1}\nclaims:\n" +
                          claims);
    return lay_out(load_matrix_file(place / "m.yaml"));
  };
  const auto record = [&](const Matrix& matrix) {
    make_folders(folder.path());
    const MatrixEdits edits = find_edits(folder, matrix);
    write_matrix(folder, matrix, edits);
    return edits.claims;
  };
  const std::string first = "  - {name: one, measure: val_loss, of: a, below: 3}\n";
  const Matrix before = matrix_with(first);
  REQUIRE(!record(before).any());
  const ClaimSeal seal = recorded_seal(folder).value();
  REQUIRE(seal.sha256 == claims_sha256(before.file.claims));
  REQUIRE(seal.runs_begun == 0);
  REQUIRE(!seal.added_after(before.file.claims[0]));

  // No run has begun: another claim is as good as the first.
  const Matrix other = matrix_with(first + "  - {name: two, measure: val_loss, of: a, below: 2}\n");
  REQUIRE(!record(other).any());
  REQUIRE(recorded_seal(folder)->sha256 == claims_sha256(other.file.claims));
  REQUIRE(recorded_seal(folder)->edits.empty());

  const std::string run = folder.run(*other.order().front());
  make_folders(run);
  write_file_atomic(run + "/config.yaml", to_yaml(other.order().front()->config));
  REQUIRE(!record(other).any());
  const Matrix edited =
      matrix_with(first + "  - {name: two, measure: val_loss, of: a, below: 4}\n");
  const ClaimChanges changes = record(edited);
  REQUIRE(changes.added == std::vector<std::string>{"two"});
  REQUIRE(changes.removed == std::vector<std::string>{"two"});
  const ClaimSeal after = recorded_seal(folder).value();
  REQUIRE(after.edits.size() == 1);
  REQUIRE(after.edits[0].runs_finished == 0);
  REQUIRE(after.added_after(edited.file.claims[1]) == 0);
  REQUIRE(!after.added_after(edited.file.claims[0]));
  REQUIRE(after.sha256 == claims_sha256(edited.file.claims));
  REQUIRE(!record(edited).any());
  REQUIRE(recorded_seal(folder)->edits.size() == 1);
  // Whose claim it is, said afterwards, is no edit of it, and is recorded.
  const Matrix sourced =
      matrix_with(first + "  - {name: two, measure: val_loss, of: a, below: 4, source: review}\n");
  REQUIRE(!record(sourced).any());
  REQUIRE(recorded_seal(folder)->sha256 == after.sha256);
  REQUIRE(read_file(folder.file("matrix.json")).find("\"source\": \"review\"") !=
          std::string::npos);
  REQUIRE(!record(edited).any());

  // matrix.json edited by hand: its claims are not the sealed ones.
  const std::string manifest = folder.file("matrix.json");
  std::string text = read_file(manifest);
  const size_t at = text.find("\"name\": \"two\"");
  REQUIRE(at != std::string::npos);
  write_file_atomic(manifest, text.replace(at, 13, "\"name\": \"too\""));
  const Matrix same = matrix_with(first + "  - {name: too, measure: val_loss, of: a, below: 4}\n");
  expect_error([&] { record(same); }, "its claims are not those that were sealed");
  expect_error([&] { recorded_seal(folder); }, "its claims are not those that were sealed");
  expect_error([&] { read_matrix_folder(folder.path()); },
               "its claims are not those that were sealed");

  for (const char* wrong : {"{}", "null", "[]"}) {
    INFO(wrong);
    auto damaged = nlohmann::ordered_json::parse(text);
    damaged["claims_seal"] = nlohmann::ordered_json::parse(wrong);
    write_file_atomic(manifest, damaged.dump());
    expect_error([&] { recorded_seal(folder); }, "is damaged: it is not the record of a matrix");
  }
}

TEST_CASE("claims recorded when finished runs are taken over are no predictions") {
  const TempFolder place;
  write_file_atomic(place / "a.yaml", "model: {layers: 2}\n");
  write_file_atomic(place / "m.yaml",
                    "models: {a: a.yaml}\nclaims: [{measure: val_loss, of: a, below: 3}]\n");
  const Matrix matrix = lay_out(load_matrix_file(place / "m.yaml"));
  const MatrixFolder folder(place / "runs");
  make_folders(folder.path());
  write_matrix(folder, matrix, {}, 6);
  REQUIRE(recorded_seal(folder)->runs_begun == 6);
  REQUIRE(seal_text(*recorded_seal(folder)).starts_with("Recorded when 6 runs had begun"));
  REQUIRE(recorded_seal(folder)->added_after(matrix.file.claims[0]) == 6);
}

TEST_CASE("claims of one name are told apart by their places") {
  MatrixClaim here, there;
  here.name = there.name = "same";
  here.contract = "short";
  there.contract = "long";
  const ClaimChanges changes = claim_changes({here}, {here, there});
  REQUIRE(changes.added == std::vector<std::string>{"same (long)"});
  const ClaimSeal seal{
      .time = {},
      .sha256 = {},
      .edits = {{.time = {}, .runs_finished = 2, .added = changes.added, .removed = {}}}};
  REQUIRE(seal.added_after(there) == 2);
  REQUIRE(!seal.added_after(here));
}

TEST_CASE("a number that is the name of a model means the model") {
  const TempFolder place;
  write_file_atomic(place / "a.yaml", "model: {layers: 2}\n");
  write_file_atomic(place / "m.yaml",
                    "models: {16: a.yaml, 64: a.yaml}\nclaims:\n"
                    "  - {measure: val_loss, of: 16, below: 64}\n"
                    "  - {measure: val_loss, of: 16, below: 3.5}\n");
  const MatrixFile file = load_matrix_file(place / "m.yaml");
  REQUIRE(file.claims[0].text() == "val_loss of 16 - 64 < 0");
  REQUIRE(file.claims[1].text() == "val_loss of 16 < 3.5");
}

}  // namespace assay::test_claim_file
