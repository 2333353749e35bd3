// op_check_simt [--gpu CAPABILITY [--image CAPABILITY]] [--op NAME] [--filter TEXT] [--list]: runs
// every case with the source of the CUDA kernels on the SIMT emulator (cuda/simt): against the
// scalar reference with threads in forward order, then to the same bits in reverse and in random
// order. --gpu: as on a GPU of that compute capability (80: 8.0), with its kernels and its limits;
// --image: in an image that an older one runs too. Exits 1 if a case fails. op_check_race is the
// same program with the race detector, on smaller cases.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/check.h"
#include "cuda/launch.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/race.h"
#include "cuda/simt/run_grid.h"
#include "tests/ops/op_run.h"

namespace {

// Estimated seconds of one variant: the emulator runs about 200 MB and 400 MFLOP per second.
double seconds(const assay::Cost& cost) {
  return cost.bytes / 200e6 + cost.flops / 400e6;
}
constexpr double kMostSeconds = 0.5;
constexpr double kMostSecondsForRaces = 0.052;  // the race detector takes about six times as long

}  // namespace

int main(int argc, char** argv) {
  using namespace assay;
  set_case_memory({.allocate = [](size_t bytes) { return simt::device_malloc(bytes); },
                   .release = simt::device_free,
                   .watched = true});
  std::string program = simt::race_detector_present() ? "op_check_race" : "op_check_simt";
  int capability = 0;
  int image = 0;
  for (const auto& [option, number] : {std::pair{"--gpu", &capability}, {"--image", &image}}) {
    if (argc < 3 || std::strcmp(argv[1], option) != 0) continue;
    *number = std::atoi(argv[2]);
    program += std::string(" ") + option + " " + argv[2];
    argc -= 2;
    argv += 2;
  }
  static gpu::Context context = simt::make_context(capability > 0 ? capability : 90);
  if (image > 0) context.kind.image = image;
  try {
    context.predecessors = gpu::predecessors_by_environment();
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
  using Aim = OpBackend::Variant::Aim;
  // Other orders seldom touch other bytes, so --sanitized leaves them to builds without sanitizers.
  const auto order = [](const char* text, Aim aim = Aim::kOtherPaths) {
    return OpBackend::Variant{.name = text,
                              .begin =
                                  [text] {
                                    simt::set_schedule(simt::parse_schedule(text));
                                    return Exec{.gpu = &context};
                                  },
                              .aim = aim};
  };
  OpBackend backend = {
      .program = program.c_str(),
      .variants = {order("fwd"), order("rev", Aim::kSameBits), order("rnd:1", Aim::kSameBits)},
      .capability = capability,
      .seconds = seconds,
      .most_seconds = kMostSeconds};
  if (capability > 0) backend.variants.pop_back();  // other kernels, but the same wrappers
  if (simt::race_detector_present()) {
    // The detection of races does not depend on the order, but the code that runs may.
    backend.variants = {order("fwd"), order("rnd:1")};
    backend.most_seconds = kMostSecondsForRaces;
    backend.checks_races = true;
  }
  return op_check_main(argc, argv, backend);
}
