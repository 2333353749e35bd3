// The GPU as host code sees it: what is said where it cannot be used, and, where it can, that copies, events and graphs work.
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "cuda/device.h"
#include "tests/catch.h"

namespace assay::gpu {

namespace {

const DeviceFacts kHopper{.driver = 13000,
                          .toolkit = 13000,
                          .devices = 1,
                          .name = "NVIDIA H200",
                          .capability = 90,
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

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a GPU that cannot be used is refused for its reason") {
  REQUIRE(refusal(kHopper).empty());
  DeviceFacts facts = kHopper;
  facts.driver = 13020;  // newer
  REQUIRE(refusal(facts).empty());

  facts = kHopper;
  facts.driver = 0;
  REQUIRE(has(refusal(facts), "no NVIDIA driver"));
  facts.driver = 12080;
  REQUIRE(refusal(facts) == "the NVIDIA driver is for CUDA 12.8, this program needs CUDA 13.0");

  facts = kHopper;
  facts.devices = 0;
  REQUIRE(has(refusal(facts), "no GPU"));

  for (const int capability :
       {75, 80, 89, 100, 120}) {  // code for sm_90a runs on no later GPU either
    facts = kHopper;
    facts.capability = capability;
    REQUIRE(has(refusal(facts), "compute capability"));
  }
}

TEST_CASE("open_device opens the GPU, or says why not") {
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
#if ASSAY_HAS_CUDA
    REQUIRE(why != "");
    REQUIRE(why == refusal(device_facts()));
#else
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

TEST_CASE("more memory than the GPU has is refused with figures") {
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
