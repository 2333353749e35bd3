// The GPU as host code sees it: the reason reported if it cannot be used; otherwise copies, events
// and graphs.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "cuda/device.h"
#include "cuda/gpu_kind_text.h"
#include "cuda/graph.h"
#include "cuda/predecessors_text.h"
#include "cuda/shared_library.h"
#include "cuda/stuck_wait.h"
#include "tests/catch.h"
#if ASSAY_HAS_CUDA
#include "cuda/cublaslt.h"
#include "cuda/cuda_error.h"
#endif

namespace assay::gpu {

namespace {

namespace fs = std::filesystem;

// A GPU that this program has an image for.
const DeviceFacts kGpu{.driver = 13000,
                       .toolkit = 13000,
                       .devices = 1,
                       .name = "a GPU",
                       .capability = std::atoi(built_images()[0].c_str()),
                       .multiprocessors = 132};

std::string refusal(const DeviceFacts& facts) {
  try {
    require_usable(facts);
  } catch (const UserError& error) {
    REQUIRE(!error.hint().empty());
    return error.what();
  }
  return "";
}

std::string hint(const DeviceFacts& facts) {
  try {
    require_usable(facts);
  } catch (const UserError& error) {
    return error.hint();
  }
  return "";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an unusable GPU is refused with the reason") {
  REQUIRE(refusal(kGpu).empty());
  DeviceFacts facts = kGpu;
  facts.driver = 13020;  // a newer driver is accepted
  REQUIRE(refusal(facts).empty());

  facts = kGpu;
  facts.driver = 0;
  REQUIRE(has(refusal(facts), "no NVIDIA driver"));
  facts.driver = 12080;
  REQUIRE(refusal(facts) == "the NVIDIA driver is for CUDA 12.8, this program needs CUDA 13.0");

  facts = kGpu;
  facts.devices = 0;
  REQUIRE(has(refusal(facts), "no GPU"));
  facts.driver_problem = "system has unsupported display driver / cuda driver combination";
  REQUIRE(refusal(facts) == "the NVIDIA driver does not work: " + facts.driver_problem);
  REQUIRE(has(hint(facts), "restart after an update"));
  REQUIRE(refusal({}) == "this program was built without CUDA");

  facts = kGpu;
  facts.capability = 75;
  REQUIRE(refusal(facts) == "a GPU has compute capability 7.5, the kernels need 8.0 or newer");
  // The images are those that CMake was told to build.
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    facts.capability = capability;
    const bool runs = !image_for(capability, built_images()).empty();
    REQUIRE(refusal(facts).empty() == runs);
    if (runs) continue;
    REQUIRE(has(refusal(facts), ("this program was built for sm_" + built_images()[0]).c_str()));
    REQUIRE(has(hint(facts), ("-DASSAY_GPUS=" + image_to_build(capability)).c_str()));
  }

  // Nor can it be built for every GPU.
  facts.name = "Thor";
  facts.capability = 110;
  REQUIRE(has(refusal(facts), "Thor has compute capability 11.0, this program was built for sm_"));
  REQUIRE(hint(facts) ==
          "it can be built for sm_80, sm_89, sm_90a, sm_100, sm_120, none of which runs on this "
          "GPU: choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu");

  facts = kGpu;
  facts.products_problem = "libcublasLt.so.13 cannot be loaded (no such file)";
  REQUIRE(refusal(facts) ==
          "libcublasLt.so.13 cannot be loaded (no such file): matrix products on the GPU need "
          "cuBLASLt");
}

TEST_CASE("an image runs on its own GPU, and without an a on later ones of its major version") {
  const std::vector<std::string> all{"80", "86", "90a", "100", "120"};
  REQUIRE(image_for(80, all) == "80");
  REQUIRE(image_for(86, all) == "86");
  REQUIRE(image_for(89, all) == "86");
  REQUIRE(image_for(90, all) == "90a");
  REQUIRE(image_for(103, all) == "100");
  REQUIRE(image_for(121, all) == "120");
  REQUIRE(image_for(75, all).empty());
  REQUIRE(image_for(110, all).empty());
  REQUIRE(image_for(80, {"86", "90a"}).empty());
  REQUIRE(image_for(91, {"90a"}).empty());
  // Orin runs no image of the other GPUs of 8.x, nor these one of its own.
  REQUIRE(image_for(87, {"80"}).empty());
  REQUIRE(image_for(89, {"87"}).empty());
  // What is proposed runs on the GPU that it is proposed for.
  for (const int capability : {80, 86, 88, 89, 90, 100, 101, 103, 120, 121}) {
    REQUIRE(!image_to_build(capability).empty());
    REQUIRE(image_for(capability, {image_to_build(capability)}) == image_to_build(capability));
  }
  REQUIRE(image_to_build(101) == "100");
  for (const int capability : {75, 87, 91, 110, 130}) REQUIRE(image_to_build(capability).empty());
  REQUIRE(images_of(86) == std::vector<std::string>{"80", "86"});
  REQUIRE(images_of(89) == std::vector<std::string>{"80", "86", "89"});
  REQUIRE(images_of(103) == std::vector<std::string>{"100", "103"});
  REQUIRE(images_of(90) == std::vector<std::string>{"90a"});
  REQUIRE(images_of(87).empty());
  REQUIRE(known_capabilities() == std::vector<int>{80, 86, 89, 90, 100, 103, 120, 121});
}

TEST_CASE("the kind of a GPU has its limits, and products that the environment may choose") {
  REQUIRE(gpu_kind(90).products == Products::kWgmma);
  REQUIRE(gpu_kind(90).shared_bytes == 232448);
  REQUIRE(gpu_kind(86).shared_bytes == 101376);
  for (const int capability : {80, 86, 87, 89, 100, 103, 120, 121, 130}) {
    REQUIRE(gpu_kind(capability).products == Products::kMmaSync);
    REQUIRE(gpu_kind(capability).capability == capability);
  }
  REQUIRE(gpu_kind(130).image == 130);
  for (const int capability : {80, 86, 89, 90, 100, 103, 120, 121}) {
    REQUIRE(gpu_kind(capability).image == std::atoi(image_to_build(capability).c_str()));
    REQUIRE(slow_parts(gpu_kind(capability)).size() == (capability / 10 == 10 ? 1 : 0));
  }
  GpuKind old_image = gpu_kind(89);
  old_image.image = 80;
  const std::vector<SlowPart> slow = slow_parts(old_image);
  REQUIRE(slow.size() == 1);
  REQUIRE(has(slow[0].what, "image sm_80 lacks the 8-bit instructions"));
  REQUIRE(slow[0].todo == "build with -DASSAY_GPUS=89");
  REQUIRE(kind_text(gpu_kind(89)) == "mma.sync, 99 KB of shared memory a block, fp8 conversions");

  unsetenv("ASSAY_GPU_PATH");
  REQUIRE(gpu_kind_by_environment(90).products == Products::kWgmma);
  // An image that this program has replaces the one that was proposed.
  for (const int capability : {80, 86, 89, 90, 103, 121}) {
    const std::string image = image_for(capability, built_images());
    REQUIRE(gpu_kind_by_environment(capability).image ==
            (image.empty() ? gpu_kind(capability).image : std::atoi(image.c_str())));
  }
  setenv("ASSAY_GPU_PATH", "mma", 1);
  REQUIRE(gpu_kind_by_environment(90).products == Products::kMmaSync);
  REQUIRE(gpu_kind_by_environment(90).capability == 90);
  // Alone, as in the emulator: any image.
  GpuKind other_image = gpu_kind(90);
  other_image.image = 80;
  REQUIRE(with_chosen_path(other_image).products == Products::kMmaSync);
  REQUIRE(with_chosen_path(other_image).image == 80);
  REQUIRE(slow_parts(gpu_kind_by_environment(90)).size() == 1);
  setenv("ASSAY_GPU_PATH", "wgmma", 1);
  std::string why;
  try {
    gpu_kind_by_environment(90);
  } catch (const UserError& error) {
    why = error.what() + ("; " + error.hint());
  }
  unsetenv("ASSAY_GPU_PATH");
  REQUIRE(
      why ==
      "ASSAY_GPU_PATH is \"wgmma\"; set it to mma for the mma.sync kernels, or unset it for the "
      "fastest ones");
}

TEST_CASE("the environment takes predecessors of the GPU's ways, by name") {
  unsetenv("ASSAY_GPU_PREDECESSORS");
  REQUIRE(predecessors_by_environment().bits == 0);
  std::string all;
  for (const PredecessorName& p : kPredecessorNames) {
    setenv("ASSAY_GPU_PREDECESSORS", p.name, 1);
    REQUIRE(names_of(predecessors_by_environment()) == p.name);
    REQUIRE(predecessors_by_environment().has(p.which));
    all += (all.empty() ? "" : ",") + std::string(p.name);
  }
  for (const std::string& names : {all, std::string("all")}) {
    setenv("ASSAY_GPU_PREDECESSORS", names.c_str(), 1);
    REQUIRE(names_of(predecessors_by_environment()) == all);
  }
  setenv("ASSAY_GPU_PREDECESSORS", (all + ",old").c_str(), 1);
  std::string why;
  try {
    predecessors_by_environment();
  } catch (const UserError& error) {
    why = error.what() + ("; " + error.hint());
  }
  unsetenv("ASSAY_GPU_PREDECESSORS");
  REQUIRE(why == "ASSAY_GPU_PREDECESSORS names \"old\"; it takes all, or some of " + all);
}

TEST_CASE("a kernel that waits for too long says where in one word") {
  REQUIRE(stuck_wait_text(0) == "");
  const StuckWait wait{.block = 4000000000, .thread = 1023, .barrier = 0x38FF8, .parity = 1};
  REQUIRE(stuck_wait_text(packed(wait)) ==
          "; block 4000000000, thread 1023 waits at the mbarrier at shared address 0x38ff8, parity "
          "1");
  REQUIRE(stuck_wait_text(packed({})) ==
          "; block 0, thread 0 waits at the mbarrier at shared address 0x0, parity 0");
}

TEST_CASE("a library opens through the loader or from a folder, else with the loader's reason") {
  const SharedLibrary standard = open_shared_library("libm.so.6", {});
  REQUIRE(standard.handle != nullptr);
  REQUIRE(standard.problem.empty());

  const fs::path folder = fs::temp_directory_path() / strprintf("assay-library-%d", int(getpid()));
  fs::create_directory(folder);
  const std::string broken = "libassay_broken.so.1";
  std::ofstream(folder / broken) << "not a library";
  const std::vector<std::string> folders{"/nowhere", folder.string()};
  REQUIRE(open_shared_library(broken, folders).handle == nullptr);

  const SharedLibrary absent = open_shared_library("libassay_absent.so.1", folders);
  REQUIRE(absent.handle == nullptr);
  REQUIRE(has(absent.problem, "libassay_absent.so.1: cannot open shared object file"));

  // A copy under a name that the loader does not know.
  Dl_info there;
  REQUIRE(dladdr(dlsym(standard.handle, "cos"), &there) != 0);
  fs::copy(there.dli_fname, folder / "libassay_here.so.1");
  const SharedLibrary here = open_shared_library("libassay_here.so.1", folders);
  REQUIRE(here.handle != nullptr);
  REQUIRE(here.problem.empty());
  fs::remove_all(folder);
}

TEST_CASE("the toolkit's own folders are searched before the default one") {
  setenv("CUDA_HOME", "/opt/cuda-x", 1);
  setenv("CUDA_PATH", "", 1);
  REQUIRE(toolkit_library_folders() ==
          std::vector<std::string>{"/opt/cuda-x/lib64", "/usr/local/cuda/lib64"});
  unsetenv("CUDA_HOME");
  unsetenv("CUDA_PATH");
}

#if ASSAY_HAS_CUDA
TEST_CASE("every function of cuBLASLt is found where the library is") {
  if (cublaslt_problem().find("cannot be loaded") != std::string::npos) {
    std::printf("not run: the functions of cuBLASLt (%s)\n", cublaslt_problem().c_str());
    return;
  }
  REQUIRE(cublaslt_problem() == "");
  REQUIRE(std::string(cublaslt().status_string(CUBLAS_STATUS_SUCCESS)) == "success");
}
#endif

TEST_CASE("too little memory is said of the memory that is short") {
  const UserError of_gpu = out_of_gpu_memory(size_t{3} << 30, int64_t{1} << 29);
  REQUIRE(std::string(of_gpu.what()) ==
          "cannot allocate 3.00 GiB of device memory, 0.50 GiB of GPU memory is free");
  REQUIRE(of_gpu.hint() == kFullGpuHint);
  const UserError pinned = out_of_pinned_memory(size_t{3} << 30);
  REQUIRE(std::string(pinned.what()) == "cannot pin 3.00 GiB of the machine's memory for the GPU");
  REQUIRE(has(pinned.hint(), "on this machine"));
  REQUIRE(!has(pinned.hint(), "nvidia-smi"));
}

#if ASSAY_HAS_CUDA
TEST_CASE("a CUDA call that finds the GPU's memory full says what to do about that") {
  const auto hint_of = [](cudaError_t status) {
    try {
      cuda_check(status, "starting rmsnorm");
    } catch (const UserError& error) {
      REQUIRE(has(error.what(), "CUDA failed while starting rmsnorm: "));
      return error.hint();
    }
    return std::string();
  };
  REQUIRE(hint_of(cudaSuccess) == "");
  REQUIRE(hint_of(cudaErrorMemoryAllocation) == kFullGpuHint);
  REQUIRE(has(hint_for(cudaErrorLaunchFailure, true), "ASSAY_SYNC_LAUNCHES=1"));
  REQUIRE(hint_for(cudaErrorMemoryAllocation, false) == kFullGpuHint);
}

TEST_CASE("a CUDA call that fails before any kernel does not blame one") {
  const std::string hint = hint_for(cudaErrorUnknown, false);
  REQUIRE(!has(hint, "kernel"));
  REQUIRE(has(hint, "nvidia-smi"));
  REQUIRE(has(hint, "--device cpu"));
}
#endif

TEST_CASE("open_device opens the GPU or reports why it cannot") {
  std::unique_ptr<Device> device;
  std::string why;
  try {
    device = open_device();
  } catch (const UserError& error) {
    why = error.what();
    REQUIRE(has(error.hint(), "--device cpu"));
  }
  if (device == nullptr) {
    std::printf("not run: copies, events and graphs on a GPU (%s)\n", why.c_str());
    REQUIRE(why != "");
    REQUIRE(why == refusal(device_facts()));
#if !ASSAY_HAS_CUDA
    REQUIRE(why == "this program was built without CUDA");
#endif
    return;
  }

  const Context& on = *device->context();
  constexpr size_t kBytes = 1 << 20;
  const DeviceBuffer there(kBytes);
  const PinnedBuffer from(kBytes), back(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from.data()[i] = std::byte(i * 7);
  Event begin, end;
  const Graph round_trip = Graph::capture(on, [&] {
    copy(on, there.data(), from.data(), kBytes);
    copy(on, back.data(), there.data(), kBytes);
  });
  std::memset(back.data(), 0, kBytes);
  begin.record(on);
  round_trip.replay(on);
  end.record(on);
  end.wait();
  REQUIRE(end.microseconds_since(begin) > 0);
  REQUIRE(std::memcmp(from.data(), back.data(), kBytes) == 0);

  fill(on, there.data(), 0x5A, kBytes);
  copy(on, back.data(), there.data(), kBytes);
  device->wait();
  REQUIRE(back.data()[kBytes - 1] == std::byte{0x5A});
  REQUIRE(!device->broken());
}

TEST_CASE("a request for more memory than the GPU has is refused with figures") {
  std::unique_ptr<Device> device;
  try {
    device = open_device();
  } catch (const UserError& error) {
    std::printf("not run: more memory than the GPU has (%s)\n", error.what());
    return;
  }
  const auto much = size_t(device->facts().memory_bytes) * 4;
  REQUIRE_THROWS_AS(DeviceBuffer(much), UserError);
  REQUIRE_NOTHROW(DeviceBuffer(1 << 20));
}

}  // namespace assay::gpu
