// The file of a matrix: which models are trained under which contracts, in which precisions, with
// which seeds. Defaults are in brackets.
//
//   name: cpu                                  # runs/<name>/ (the file's own name)
//   models:                                    # in the order of the tables; others are compared
//     dense: dense.yaml                        # with the first
//     slow: {config: dense.yaml, set: {optimizer.lr: 1e-4}}   # also contract.step_seconds
//   contracts:                                 # (one: each model's own configuration)
//     - {kind: activeDN, coefficient: 20}
//     - {kind: totalDN, reference: dense}      # the coefficient at which `dense` takes its own
//                                              # run.steps; also name, fraction, landings,
//                                              # shared_in_total
//     - {kind: flops, coefficient: 1e15, branches: [0.2, 0.5]}   # annealed ends at these shares of
//                                              # the horizon, which go on from checkpoints of the
//                                              # contract's own run; branch_warmdown: share of
//                                              # each one's steps (as the model's own run)
//   precisions: [bf16]                         # (auto)
//   seeds: [1, 2, 3]                           # (1)
//   claims:                                    # tested on the runs: lab/matrix/claim.h
//     - {name: balanced by the loss, measure: max_load, of: aux-only, below: baseline}
//   set: {run.checkpoint_every: 100}           # changes every model, as --set does
//   jobs: 1                                    # runs at a time
//   threads: 0                                 # for all of them together; 0 = all usable cores
//   device: auto                               # cpu, cuda or auto, as --device of assay train
//   memory: 8GiB                               # planned for all of them together (the device's)
//
// Paths start from the file's folder. Mistakes in the file are UserErrors with file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/yaml.h"
#include "lab/matrix/claim.h"

namespace assay {

struct MatrixModel {
  std::string name;
  std::string config;                 // path
  std::vector<ConfigChange> changes;  // its own `set`
};

struct MatrixContract {
  std::string name;                             // of its table: the kind unless given
  std::optional<ContractKind> kind;             // nothing: the contract of each configuration
  double coefficient = 0;                       // 0 = taken from the reference, or none
  std::string reference;                        // a model of the matrix
  double fraction = 1;                          // of the horizon
  std::optional<std::vector<double>> landings;  // as contract.landings of a configuration
  bool shared_in_total = true;                  // as contract.shared_in_total
  // Shares of the horizon at which branches end; each is a contract of its own in MatrixFile.
  std::vector<double> branches = {};
  double branch_warmdown = 0;  // share of a branch's steps; 0 = as the model's own run
  std::string branch_of = "";  // of such a contract: the one whose runs are its trunks
  std::string where;           // file and line

  std::string kind_text() const { return kind ? name_of(*kind) : ""; }
};

struct MatrixFile {
  std::string path;
  std::string name;
  std::vector<MatrixModel> models;  // never empty, like the three below
  std::vector<MatrixContract> contracts;
  std::vector<std::string> precisions;
  std::vector<int64_t> seeds;
  bool precisions_given = true, seeds_given = true;  // in the file; else their defaults
  std::vector<int64_t> extra_seeds;  // those of `seeds` that undecided claims added, not the file
  std::vector<MatrixClaim> claims;
  std::vector<ConfigChange> changes;  // `set`; a model's own changes follow
  std::vector<ConfigChange> sets;     // --set, the last
  int64_t jobs = 1;
  int64_t threads = 0;
  std::string device = "auto";
  int64_t memory_bytes = 0;  // 0 = the device's
};

// sets: --set of the command line, applied after `set` of the file.
MatrixFile load_matrix_file(const std::string& path, const std::vector<std::string>& sets = {});

// Whether a --set gives the field, a section that has it or a part of it.
bool set_gives(const std::string& set, const std::string& field);

// For each --set that replaces what models set: "--set model.moe.experts=64 replaces what
// 15 models set themselves, and is given to the 20 others too".
std::vector<std::string> replaced_settings(const MatrixFile& file);

// "8GiB", "500 MB", "1e9"; nullopt for anything else.
std::optional<int64_t> read_bytes(const std::string& text);

// True if the name can be part of a file's name.
bool is_plain_name(const std::string& name);

}  // namespace assay
