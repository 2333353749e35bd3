// A matrix laid out: cells = contracts x models x precisions x seeds, each with its configuration
// for `assay train`. Cells that are the same run (a dense model has as many active as total
// parameters, so two contracts may give it the same steps) are trained once and appear in both
// tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "lab/matrix/cell_data.h"
#include "lab/matrix/file.h"
#include "models/audit/audit.h"
#include "models/audit/checkpoint_disk.h"
#include "models/decoder/training_memory.h"

namespace assay {

struct Cell {
  std::string name;  // MODEL-CONTRACT-PRECISION-seedN
  std::string model, contract, precision;
  int64_t seed = 0;
  // Resolved as `assay train` does it; precision.products may be `auto`, which the machine decides
  // that trains the cell.
  Config config;
  bool configured = true;   // false: of a recorded matrix, which has no configuration of it (yet)
  bool known_steps = true;  // false: the contract measures the machine first
  Audit audit;
  // Planned for a training step, of the device, and of a GPU kReservedBytes; 0 when unavailable.
  int64_t memory_bytes = 0;
  CheckpointDisk disk = {};  // of its run; no bytes when unavailable
  std::string unavailable;   // why it cannot be trained; "" if it can
  std::string run;  // name of the cell that is trained: this one, or an earlier one equal to it
  // Of a branch: the cell whose run it leaves, and its steps there; else "" and 0.
  std::string trunk = "";
  int64_t branch_step = 0;
  // precision.recipe and run.seed as its model has them; the cell has those of the matrix.
  std::string own_recipe = "";
  int64_t own_seed = 0;
  // Of the data that it reads now; empty where that is not known: no run of it has begun, its files
  // are not on this machine, or they are generated from its configuration.
  DataHashes data = {};

  bool trained() const { return run == name && unavailable.empty(); }
  int64_t steps() const { return known_steps ? config.run.steps : 0; }
  int64_t tokens() const { return steps() * config.run.batch_tokens; }
  double flops() const { return double(audit.flops_per_token) * double(tokens()); }
  // Of training, where the contract measures the machine first; else 0.
  double measured_seconds() const {
    return known_steps ? 0 : config.contract.coefficient * config.contract.fraction;
  }
  // Of the steps that its own run takes after `done` of them: a branch has those of its trunk.
  double flops_after(int64_t done) const {
    const int64_t left = std::max<int64_t>(0, steps() - std::max(done, branch_step));
    return double(audit.flops_per_token) * double(left * config.run.batch_tokens);
  }
};

// An error of one of the models, which another choice of models may not meet.
class ModelError : public UserError {
 public:
  ModelError(std::string model, const std::string& message, const std::string& hint)
      : UserError(message, hint), model_(std::move(model)) {}
  const std::string& model() const { return model_; }

 private:
  std::string model_;
};

struct Matrix {
  MatrixFile file;          // its contracts have the coefficients of their references
  std::vector<Cell> cells;  // contract by contract, model by model, precision by precision

  const Cell& cell(const std::string& name) const;
  // The cells that are trained, in starting order: seed by seed, so that an unfinished matrix has
  // all models of its first seeds, and a branch after the run that it leaves.
  std::vector<const Cell*> order() const;
};

// replaced_settings(), and which model sets the length of its step without effect: the matrix has
// no contracts, and the model's own is not in seconds.
std::vector<std::string> setting_notes(const MatrixFile& file);

// Loads every model. ModelError if a configuration is invalid; UserError if a contract is, or if
// two cells have one name. Cells of a precision whose blocks do not fit the model's widths are
// included, marked unavailable.
// place: the device that memory is planned for.
Matrix lay_out(const MatrixFile& file, const ModelPlace& place = {});

// The configuration with all fields reset that do not change the run's numbers: threads,
// checkpoints, cache, collapse_stop, and, if the steps are known, the contract that they came from
// (except landings and horizon).
Config what_matters(const Config& config);

// The differing fields of what_matters(). Paths are compared by file name, so that a matrix may
// move. Any precision.products of `before` is an `auto` of `now`. With a contract in seconds also
// contract.step_seconds, unless both measure it or it gives as many steps.
std::vector<FieldDifference> matrix_differences(Config before, const Config& now);

// SHA-256 of the fields of what_matters(), which matrix_differences compares.
std::string config_sha256(const Config& config);
// Whether a recorded hash is that of the configuration: earlier versions hashed eval.core.bundle
// and eval.samples.file with their folders, and data.check_tokenizer too.
bool is_config_sha256(const std::string& recorded, const Config& config);

// The first field in which two models see other data, are validated on other tokens or in another
// context, or stop at another loss: "data.tokenizer of moe is ..., of dense ...". "" if none. Cells
// without a configuration say nothing.
std::string different_data(const Matrix& matrix);

}  // namespace assay
