// The file of a matrix: which models are trained under which contracts, in which precisions, with
// which seeds.
//
//   name: cpu                                  # runs/<name>/ (the file's own name)
//   models: {dense: dense.yaml, moe: moe.yaml} # in the order of the tables; the first is what others are compared with
//   contracts:                                 # (one: what each model's configuration says)
//     - {kind: activeDN, coefficient: 20}
//     - {kind: totalDN, reference: dense}      # the coefficient with which `dense` trains its own run.steps;
//                                              # also name, fraction, landings
//   precisions: [bf16]                         # (auto)
//   seeds: [1, 2, 3]                           # (1)
//   claims:                                    # what the runs are asked: lab/matrix/claims.h
//     - {name: balanced by the loss, measure: max_load, of: aux-only, below: baseline}
//     - {measure: cv, of: baseline, near: 0.64, within: 0.1}
//   set: {run.checkpoint_every: 100}           # changes every model, as --set does
//   jobs: 1                                    # runs at a time
//   threads: 0                                 # of all of them together; 0 = all cores
//   memory: 8GiB                               # planned for all of them together (what the machine has)
//
// Paths start from the file's folder. What a user can get wrong is a UserError with file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/yaml.h"

namespace assay {

struct MatrixModel {
  std::string name;
  std::string config;  // path
};

struct MatrixContract {
  std::string name;                             // of its table: the kind unless given
  std::string kind;                             // "" = what each model's configuration says
  double coefficient = 0;                       // 0 = of the reference, or none
  std::string reference;                        // a model of the matrix
  double fraction = 1;                          // of the horizon
  std::optional<std::vector<double>> landings;  // as contract.landings of a configuration
  std::string where;                            // file and line
};

// `measure` of `of` is below, above or near a number or what another model has.
struct MatrixClaim {
  std::string name;     // as in the table; made from the rest unless given
  std::string measure;  // of lab/runs/run_measures.h
  std::string of;       // a model of the matrix
  enum class Relation { kBelow, kAbove, kNear } relation = Relation::kBelow;
  std::string other;  // a model of the matrix; "": the number
  double number = 0;
  double within = 0;  // with kNear
  std::string where;  // file and line

  std::string text() const;  // "max_load of aux-only - baseline < 0"
};

struct MatrixFile {
  std::string path;
  std::string name;
  std::vector<MatrixModel> models;  // never empty, like the three below
  std::vector<MatrixContract> contracts;
  std::vector<std::string> precisions;
  std::vector<int64_t> seeds;
  std::vector<MatrixClaim> claims;
  std::vector<ConfigChange> changes;  // `set`, then --set
  int64_t jobs = 1;
  int64_t threads = 0;
  int64_t memory_bytes = 0;  // 0 = what the machine has
};

// sets: of the command line, after those of the file.
MatrixFile load_matrix_file(const std::string& path, const std::vector<std::string>& sets = {});

// "8GiB", "500 MB", "1e9"; nothing for anything else.
std::optional<int64_t> read_bytes(const std::string& text);

// A name that can be part of a file's name.
bool is_plain_name(const std::string& name);

}  // namespace assay
