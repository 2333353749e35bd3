// A matrix of three models and the folder of its files, for tests of the matrix.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "engine/config/text.h"
#include "lab/matrix/file.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/matrix.h"
#include "lab/matrix/state.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::matrix_family {

inline constexpr const char* kBase = R"(
model: {hidden: 64, layers: 2, heads: 2, vocab_size: 512, ffn: 64}
schedule: {warmup: 2, warmdown: 4}
run: {steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8}
eval: {every: 20, tokens: 4096}
data: {synth: {train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}
)";
inline constexpr const char* kMatrix = R"(name: m
models: {dense: dense.yaml, moe: moe.yaml, large: large.yaml}
contracts:
  - {kind: activeDN, reference: dense}
  - {kind: totalDN, reference: dense}
seeds: [1, 2]
precisions: [fp32]
)";

// A folder with the configurations of three models.
struct Family {
  TempFolder folder;
  Family() {
    write("dense.yaml", kBase);
    write("large.yaml", "include: dense.yaml\nmodel: {ffn: 128}\n");
    write("moe.yaml",
          "include: dense.yaml\nmodel: {moe: {experts: 4, top_k: 2, expert_ffn: 32}}\n");
  }
  void write(const std::string& name, const std::string& text) const {
    write_file_atomic(folder / name, text);
  }
  MatrixFile file(const std::string& text, const std::vector<std::string>& sets = {}) const {
    write("m.yaml", text);
    return load_matrix_file(folder / "m.yaml", sets);
  }
  Matrix matrix(const std::string& text) const { return lay_out(file(text)); }
  MatrixFolder runs() const { return MatrixFolder(folder / "runs"); }
  // Makes a run as `assay train` leaves it before the first step: with its configuration only.
  void begin(const Cell& cell) const {
    make_folders(runs().run(cell));
    write_file_atomic(runs().run(cell) + "/config.yaml", to_yaml(cell.config));
  }
};

// kMatrix with other words in one place.
inline std::string edited(const std::string& from, const std::string& to) {
  std::string text = kMatrix;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace assay::matrix_family
