// The main function of op_check, op_check_simt and op_check_cuda: runs every case on one backend,
// in each of its variants.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/ops/op_case.h"

namespace assay {

struct OpBackend {
  const char* program;           // "op_check_simt"; may be followed by options of its own
  const char* own_options = "";  // the lines of --help for these
  OpBody body = OpBody::kEvery;  // kCpu: runs the CPU's cases; else the GPU's
  // One way to run an instance. The first variant is compared with the reference; the others must
  // give its bits.
  struct Variant {
    std::string name;  // "3 threads"
    std::function<Exec()> begin;
    enum class Buffers { kTheCases, kACopy } buffers = Buffers::kTheCases;
    // Purpose: other paths through the code, or only a repetition to the same bits, which
    // --sanitized skips.
    enum class Aim { kOtherPaths, kSameBits } aim = Aim::kOtherPaths;
  };
  std::vector<Variant> variants;
  // The variants of the large cases. kWhenAsked: large cases run only with --large, and then alone;
  // kAlways: also by default, with the others.
  std::vector<Variant> variants_of_large = {};
  enum class Large { kWhenAsked, kAlways } large = Large::kWhenAsked;
  int capability = 0;  // of the GPU (90: 9.0); cases that do not run on it are skipped
  // Memory of the buffers' copies in kACopy variants, which prove that a case's run uses located().
  CopyMemory copies = {};
  // Cases whose estimated seconds exceed most_seconds are skipped and counted. Empty: no limit.
  std::function<double(const Cost&)> seconds = {};
  double most_seconds = 0;
  bool checks_races = false;  // runs cases with race_checked_at_any_cost despite the limit
  // Called after each run: waits for its results. Throws on errors.
  std::function<void()> wait = {};
  // Called after a failed case: if true, nothing can run any more and the remaining cases are
  // skipped.
  std::function<bool()> broken = {};
};

enum class CaseOutcome { kPassed, kFailed, kLeftOut };

// Runs a case in every variant and prints how it went. `most`: of a case that is run. `workspace`:
// of the case before, which this one takes if it asks for as much.
CaseOutcome run_case(const OpBackend& backend, const OpCase& c,
                     std::optional<CaseWorkspace>& workspace, Cost most);

// The exit status of a check whose cases are all skipped here, as ctest's SKIP_RETURN_CODE.
inline constexpr int kAllSkipped = 77;

// 0: every case passed, or with --shard some are skipped; kAllSkipped; else 1.
int op_check_main(int argc, char** argv, OpBackend backend);

}  // namespace assay
