// op_check_simt [--gpu CAPABILITY [--image CAPABILITY]] [--op NAME] [--filter TEXT] [--list]: runs
// every case with the source of the CUDA kernels on the SIMT emulator (cuda/simt): against the
// scalar reference with threads in forward order, then to the same bits in reverse and in random
// order. --gpu: as on a GPU of that compute capability (80 or 8.0), with its kernels and its
// limits; --image: in an image that an older one runs too. ASSAY_GPU_PATH and
// ASSAY_GPU_PREDECESSORS choose kernels as on a GPU. Exits 1 if a case fails. op_check_race is the
// same program with the race detector, on smaller cases.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "cuda/gpu_kind_text.h"
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

constexpr const char* kOwnOptions =
    "  --gpu CAPABILITY   as on a GPU of this compute capability, 80 or 8.0: its kernels, its\n"
    "                     limits (default: 9.0, and cases of every GPU)\n"
    "  --image NUMBER     with --gpu: in the image of an older one that it runs too\n"
    "ASSAY_GPU_PATH and ASSAY_GPU_PREDECESSORS choose kernels as on a GPU (docs/gpu.md).\n";

// What this program takes out of the command line, for every other option is op_check_main's.
struct Target {
  int capability = 0;  // 0: --gpu is not given
  int image = 0;
  std::string words;  // " --gpu 86"
  std::vector<char*> others;
};

// "8.9" of 89.
std::string version(int capability) {
  return assay::strprintf("%d.%d", capability / 10, capability % 10);
}

int read_capability(const std::string& text) {
  std::string known;
  for (const int capability : assay::gpu::known_capabilities()) {
    if (text == std::to_string(capability) || text == version(capability)) return capability;
    known += (known.empty() ? "" : ", ") + version(capability);
  }
  throw assay::UserError("--gpu " + text + " is no compute capability that this program knows",
                         "it knows " + known);
}

int read_image(const std::string& text, int capability) {
  std::string known;
  for (const std::string& name : assay::gpu::images_of(capability)) {
    const int image = std::atoi(name.c_str());  // "90a" is 90
    if (text == name || text == std::to_string(image)) return image;
    known += (known.empty() ? "" : ", ") + std::to_string(image);
  }
  throw assay::UserError(
      "--image " + text + " is no image that a GPU of " + version(capability) + " runs",
      "its images: " + known + "; --gpu chooses another GPU");
}

Target read_target(int argc, char** argv) {
  Target target;
  std::optional<std::string> gpu, image;
  for (int i = 0; i < argc; ++i) {
    const std::string option = argv[i];
    if (option != "--gpu" && option != "--image") {
      target.others.push_back(argv[i]);
      continue;
    }
    if (i + 1 == argc)
      throw assay::UserError(option + " needs a value", "--help lists the options");
    std::optional<std::string>& value = option == "--gpu" ? gpu : image;
    if (value) throw assay::UserError(option + " is given twice", "--help lists the options");
    value = argv[++i];
    target.words += " " + option + " " + argv[i];
  }
  if (gpu) target.capability = read_capability(*gpu);
  if (image) target.image = read_image(*image, target.capability ? target.capability : 90);
  return target;
}

int run(int argc, char** argv) {
  using namespace assay;
  set_case_memory({.allocate = [](size_t bytes) { return simt::device_malloc(bytes); },
                   .release = simt::device_free,
                   .watched = true});
  Target target = read_target(argc, argv);
  const int capability = target.capability;
  const std::string program =
      (simt::race_detector_present() ? "op_check_race" : "op_check_simt") + target.words;
  static gpu::Context context = simt::make_context(capability > 0 ? capability : 90);
  context.kind = gpu::with_chosen_path(context.kind);
  if (target.image > 0) context.kind.image = target.image;
  context.predecessors = gpu::predecessors_by_environment();
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
      .own_options = kOwnOptions,
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
  return op_check_main(int(target.others.size()), target.others.data(), backend);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
