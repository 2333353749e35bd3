#include "cuda/gpu_kind.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "cuda/gpu_kind_text.h"

namespace assay::gpu {

namespace {

constexpr int64_t kKb = 1024;

// Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and what
// ptxas accepts for each architecture.
struct Row {
  GpuKind kind;
  const char* image;  // kind.image is its number
};
constexpr Row kRows[] = {
    // capability, products, shared memory, clusters, fp8 conversions, block-scale mma.sync, image
    {{80, Products::kMmaSync, 163 * kKb, false, false, false, 80}, "80"},   // A100
    {{86, Products::kMmaSync, 99 * kKb, false, false, false, 80}, "80"},    // A40, RTX 3090
    {{89, Products::kMmaSync, 99 * kKb, false, true, false, 89}, "89"},     // L40S, RTX 4090
    {{90, Products::kWgmma, 227 * kKb, true, true, false, 90}, "90a"},      // H100, H200
    {{100, Products::kMmaSync, 227 * kKb, true, true, false, 100}, "100"},  // B200
    {{103, Products::kMmaSync, 227 * kKb, true, true, false, 100}, "100"},  // B300
    {{120, Products::kMmaSync, 99 * kKb, true, true, true, 120}, "120"},    // RTX 5090
    {{121, Products::kMmaSync, 99 * kKb, true, true, true, 120}, "120"},    // GB10
};
const Row* row_of(int capability) {
  for (const Row& row : kRows) {
    if (row.kind.capability == capability) return &row;
  }
  return nullptr;
}

// Tegra's GPUs do not run images of others with their major version.
constexpr int kOrin = 87;

struct Image {
  int capability;
  bool exact;  // runs on this capability only
};
Image read_image(const std::string& name) {
  return {std::atoi(name.c_str()), name.back() == 'a'};
}

}  // namespace

GpuKind gpu_kind(int capability) {
  CHECK(capability >= 80, "gpu_kind: compute capability %d", capability);
  if (const Row* const row = row_of(capability)) return row->kind;
  const std::string image = image_to_build(capability);
  return {capability,
          Products::kMmaSync,
          99 * kKb,
          capability > 90,
          capability >= 89,
          false,
          image.empty() ? capability : read_image(image).capability};
}

std::vector<int> known_capabilities() {
  std::vector<int> all;
  for (const Row& row : kRows) all.push_back(row.kind.capability);
  return all;
}

GpuKind with_chosen_path(GpuKind kind) {
  const char* const path = std::getenv("ASSAY_GPU_PATH");
  if (path == nullptr || *path == '\0') return kind;
  if (std::string(path) != "mma") {
    throw UserError(strprintf("ASSAY_GPU_PATH is \"%s\"", path),
                    "set it to mma for the mma.sync kernels, or unset it for the fastest ones");
  }
  kind.products = Products::kMmaSync;
  return kind;
}

GpuKind gpu_kind_by_environment(int capability) {
  GpuKind kind = with_chosen_path(gpu_kind(capability));
  const std::string image = image_for(capability, built_images());
  if (!image.empty()) kind.image = read_image(image).capability;
  return kind;
}

std::string kind_text(const GpuKind& kind) {
  std::string text = kind.products == Products::kWgmma ? "wgmma" : "mma.sync";
  text += strprintf(", %ld KB of shared memory a block", long(kind.shared_bytes / kKb));
  if (kind.clusters) text += ", clusters";
  if (kind.fp8_conversions) text += ", fp8 conversions";
  if (kind.block_scale_mma) text += ", block-scale mma.sync";
  return text;
}

std::vector<SlowPart> slow_parts(const GpuKind& kind) {
  std::vector<SlowPart> parts;
  // A GPU of 12.0 has no tensor cores for bf16 that mma.sync does not use.
  if (kind.capability == 90 && kind.products != Products::kWgmma) {
    parts.push_back({"attention and the experts' products use mma.sync, not wgmma",
                     "unset ASSAY_GPU_PATH for the kernels that were written for this GPU"});
  }
  if (kind.capability / 10 == 10) {
    parts.push_back(
        {"attention and the experts' products use mma.sync, not the tensor cores' own "
         "instructions of 10.0",
         "nothing to do: this program has no kernels for them yet"});
  }
  if (kind.capability >= 89 && kind.image < 89) {
    parts.push_back({strprintf("image sm_%d lacks the 8-bit instructions of this GPU: it rounds to "
                               "8 bits and multiplies the experts' codes in other ones",
                               kind.image),
                     "build with -DASSAY_GPUS=" + image_to_build(kind.capability)});
  }
  return parts;
}

const std::vector<std::string>& built_images() {
  static const std::vector<std::string> images = [] {
    std::vector<std::string> all;
    for (const char* at = ASSAY_GPU_IMAGES; *at != '\0'; ++at) {
      if (all.empty() || *at == ' ') all.emplace_back();
      if (*at != ' ') all.back() += *at;
    }
    return all;
  }();
  return images;
}

std::string image_for(int capability, const std::vector<std::string>& images) {
  std::string best;
  for (const std::string& name : images) {
    const Image image = read_image(name);
    const bool alone = image.exact || capability == kOrin || image.capability == kOrin;
    const bool runs =
        alone ? image.capability == capability
              : image.capability / 10 == capability / 10 && image.capability <= capability;
    if (runs && (best.empty() || read_image(best).capability < image.capability)) best = name;
  }
  return best;
}

std::string image_to_build(int capability) {
  std::vector<std::string> all;
  for (const Row& row : kRows) all.emplace_back(row.image);
  return image_for(capability, all);
}

std::vector<std::string> images_of(int capability) {
  std::vector<std::string> all;
  for (const char* image :
       {"80", "86", "89", "90a", "100", "103", "120", "121"}) {  // cmake/cuda.cmake
    if (!image_for(capability, {image}).empty()) all.emplace_back(image);
  }
  return all;
}

}  // namespace assay::gpu
