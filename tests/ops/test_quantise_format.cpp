// User errors with quantised tensors, and the sizes of their scales.
#include <functional>
#include <string>

#include "base/check.h"
#include "ops/quantise_format.h"
#include "tests/catch.h"

namespace assay {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "a K that is not a multiple of the block is refused with the tensor and both nearest sizes") {
  REQUIRE(message_of([] { require_whole_blocks("blocks.0.ffn.down", ScaleKind::k1x32, 1000); }) ==
          "blocks.0.ffn.down: 1000 elements along the sum, not a multiple of the block of 32 | "
          "make it 992 or 1024, or leave this tensor in bf16");
  REQUIRE(message_of([] { require_whole_blocks("w", ScaleKind::k128x128, 2304); }).empty());
  REQUIRE(message_of([] { require_whole_blocks("w", ScaleKind::kTensor, 8); }) ==
          "w: 8 elements along the sum, not a multiple of the block of 16 | make it 0 or 16, or "
          "leave this tensor in bf16");
}

TEST_CASE("scales in the hardware's layout are padded") {
  const auto count = [](ScaleKind kind, ScaleLayout layout, int64_t lines, int64_t k) {
    return scale_count({.element = ElementFormat::kE4M3, .scale = kind, .layout = layout}, lines,
                       k);
  };
  REQUIRE(count(ScaleKind::k1x128, ScaleLayout::kPlain, 130, 384) == 130 * 3);
  REQUIRE(count(ScaleKind::k1x128, ScaleLayout::kHardware, 130, 384) == 3 * 132);
  REQUIRE(count(ScaleKind::k128x128, ScaleLayout::kHardware, 130, 384) == 2 * 4);
  REQUIRE(count(ScaleKind::k1x16, ScaleLayout::kHardware, 130, 384) == 2 * 6 * 512);
  REQUIRE(count(ScaleKind::k16x16, ScaleLayout::kPlain, 130, 384) == 9 * 24);
  REQUIRE(count(ScaleKind::k16x16, ScaleLayout::kHardware, 130, 384) == 2 * 6 * 512);
  REQUIRE(count(ScaleKind::kTensor, ScaleLayout::kHardware, 130, 384) == 0);
}

}  // namespace assay
