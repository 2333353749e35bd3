// The main of op_check, op_check_simt and op_check_cuda: every case of the lists on one backend, in
// each of its variants.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/ops/op_case.h"

namespace assay {

struct OpBackend {
  const char* program;           // "op_check_simt"
  OpBody body = OpBody::kEvery;  // kCpu: its own cases as well
  // How an instance runs; the first is compared with the reference, the others must give its bits.
  struct Variant {
    std::string name;  // "3 threads"
    std::function<Exec()> begin;
    enum class Buffers { kTheCases, kACopy } buffers = Buffers::kTheCases;
    // What it is for: other paths through the code, or only the same bits once more (--sanitized
    // leaves those out).
    enum class Aim { kOtherPaths, kSameBits } aim = Aim::kOtherPaths;
  };
  std::vector<Variant> variants;
  // Of the large cases: with --large those alone run, in these. Are they run without being asked
  // for, beside the others?
  std::vector<Variant> variants_of_large = {};
  enum class Large { kWhenAsked, kAlways } large = Large::kWhenAsked;
  int capability = 1000;  // a GPU's (90: 9.0); cases that need more are left out
  // Where variants with kACopy run: proves that a case's run finds its buffers wherever they lie.
  CopyMemory copies = {};
  // Cases that take longer by this estimate are left out, and counted. 0: none.
  std::function<double(const Cost&)> seconds = {};
  double most_seconds = 0;
  bool checks_races = false;  // runs OpCase::race_checked_at_any_cost whatever they take
  // After each run: until its results are there. Throws what went wrong.
  std::function<void()> wait = {};
  // After a case that failed: can nothing run any more? Then the other cases are left.
  std::function<bool()> broken = {};
};

int op_check_main(int argc, char** argv, OpBackend backend);

}  // namespace assay
