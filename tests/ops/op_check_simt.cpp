// op_check_simt [--op NAME] [--filter TEXT] [--list]: every case by the CUDA kernels' own source,
// run on the CPU by cuda/simt: against the scalar reference with threads in forward order, and to
// the same bits in reverse and random orders. Exit 1 when one fails. op_check_race is the same
// program with the race detector, on smaller cases.
#include "cuda/launch.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/race.h"
#include "cuda/simt/run_grid.h"
#include "tests/ops/op_run.h"

namespace {

// Seconds of one variant, roughly: kernels move about 200 MB and multiply about 400 M flops a
// second here.
double seconds(const assay::Cost& cost) {
  return cost.bytes / 200e6 + cost.flops / 400e6;
}
constexpr double kMostSeconds = 0.5;
constexpr double kMostSecondsForRaces = 0.05;  // the race detector takes about six times as long

}  // namespace

int main(int argc, char** argv) {
  using namespace assay;
  set_case_memory({[](size_t bytes) { return simt::device_malloc(bytes); }, simt::device_free});
  static gpu::Context context;
  using Aim = OpBackend::Variant::Aim;
  const auto order = [](const char* text, Aim aim = Aim::kOtherPaths) {
    return OpBackend::Variant{.name = text,
                              .begin =
                                  [text] {
                                    simt::set_schedule(simt::parse_schedule(text));
                                    return Exec{.gpu = &context};
                                  },
                              .aim = aim};
  };
  OpBackend backend = {.program = "op_check_simt",
                       .variants = {order("fwd"), order("rev", Aim::kSameBits), order("rnd:1"),
                                    order("rnd:2", Aim::kSameBits)},
                       .seconds = seconds,
                       .most_seconds = kMostSeconds};
  if (simt::race_detector_present()) {
    // Races do not depend on the order, but which code runs may.
    backend.program = "op_check_race";
    backend.variants = {order("fwd"), order("rnd:1")};
    backend.most_seconds = kMostSecondsForRaces;
    backend.checks_races = true;
  }
  return op_check_main(argc, argv, backend);
}
