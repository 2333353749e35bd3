// What does not fit into a GPU's shared memory: the next largest fits, the rest is refused with its
// values and a hint. On the SIMT emulator.
#include <string>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/context.h"
#include "ops/dispatch.h"
#include "ops/router.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using test::DeviceArray;

struct Refusal {
  std::string why, hint;
};
template <typename F>
Refusal refusal(F&& f) {
  try {
    f();
  } catch (const UserError& error) {
    return {error.what(), error.hint()};
  }
  return {};
}

// One token of `experts`, as on a GPU of that compute capability.
Refusal route(int capability, int64_t experts) {
  gpu::Context gpu = simt::make_context(capability);
  const DeviceArray<float> logits(std::vector<float>(size_t(experts), 0.5f));
  const DeviceArray<float> gate(1);
  const DeviceArray<int32_t> expert(1), counts(static_cast<size_t>(experts));
  return refusal([&] {
    router_forward({.gpu = &gpu}, {.expert = {expert.data(), {1, 1}},
                                   .gate = {gate.data(), {1, 1}},
                                   .count_partial = {counts.data(), {1, experts}},
                                   .logits = {logits.data(), {1, experts}},
                                   .settings = {}});
  });
}

Refusal dispatch_to(int capability, int64_t experts) {
  gpu::Context gpu = simt::make_context(capability);
  const DeviceArray<int32_t> expert(std::vector<int32_t>(1, 0));
  const DeviceArray<int32_t> slot(1), token(1), offsets(size_t(experts) + 1),
      partial(static_cast<size_t>(experts));
  return refusal([&] {
    dispatch({.gpu = &gpu}, {.offsets = {offsets.data(), {experts + 1}},
                             .token = {token.data(), {1}},
                             .slot = {slot.data(), {1, 1}},
                             .partial = {partial.data(), {1, experts}},
                             .expert = {expert.data(), {1, 1}}});
  });
}

}  // namespace

TEST_CASE("a router that a GPU's shared memory does not hold is refused with what fits") {
  for (const auto& [capability, fit] :
       {std::pair{86, 7000}, {80, 13000}, {90, 18000}, {120, 7000}}) {
    INFO("compute capability " << capability);
    REQUIRE(route(capability, fit).why == "");
    const Refusal refused = route(capability, 20000);
    REQUIRE(refused.why ==
            "a router of 20000 experts does not fit into the shared memory of this GPU");
    REQUIRE(refused.hint == "use fewer experts (" + std::to_string(fit) + " fit)");
  }
}

TEST_CASE("dispatch to more experts than a GPU's shared memory holds is refused") {
  REQUIRE(dispatch_to(86, 20000).why == "");
  const Refusal refused = dispatch_to(86, 30000);
  REQUIRE(refused.why ==
          "30000 experts with 1 per token do not fit into the shared memory of this GPU");
  REQUIRE(refused.hint == "use fewer experts");
}

TEST_CASE("a plan refuses what the kernels would") {
  for (const int64_t k : {1, 64}) {
    for (int64_t experts = 500; experts < 30000; experts += 500) {
      const int64_t shared_bytes = gpu::gpu_kind(90).shared_bytes;
      const bool one =
          refusal([&] { gpu::require_router_room(experts, k, shared_bytes); }).why == "";
      if (k == 1 && (experts == 18000 || experts == 20000)) {
        REQUIRE(one == (route(90, experts).why == ""));
      }
      REQUIRE(one == (8 * experts + 4 * (round_up(experts, 128) + 2 * k) <= shared_bytes - 7168));
    }
  }
  REQUIRE(refusal([] { gpu::require_router_room(256, 8, 1); }).why == "");  // in registers
  REQUIRE(refusal([] { gpu::require_dispatch_room(20000, 1, 99 << 10); }).why == "");
  REQUIRE(refusal([] { gpu::require_dispatch_room(20000, 64, 99 << 10); }).hint ==
          "use fewer experts");
}

}  // namespace assay
