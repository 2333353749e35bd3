#include <sstream>

#include "base/bf16.h"
#include "cuda/memory_plan.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("a memory plan counts, prints, and allocates zeroed aligned views") {
  MemoryPlan plan;
  View<float, 2> a;
  View<bf16, 1> b0, b1;
  plan.add(Section::kParameters, "head", a, {3, 5});
  plan.add(Section::kActivations, "blocks.0.norm", b0, {7});
  plan.add(Section::kActivations, "blocks.1.norm", b1, {7});
  REQUIRE(a.data == nullptr);
  REQUIRE(plan.section_bytes(Section::kParameters) == 256);
  REQUIRE(plan.total_bytes() == 3 * 256);
  std::ostringstream table;
  plan.print(table);
  REQUIRE(table.str().find("blocks.*.norm x2") != std::string::npos);
  plan.allocate();
  REQUIRE(a.data != nullptr);
  REQUIRE(reinterpret_cast<uintptr_t>(b1.data) % 256 == 0);
  for (int64_t i = 0; i < a.size(); ++i) REQUIRE(a[i] == 0);
}

TEST_CASE("a section of a memory plan is one block, entries in order, zeros between them") {
  MemoryPlan plan;
  View<float, 1> a, b;
  plan.add(Section::kGradients, "head", a, {3});
  plan.add(Section::kGradients, "embed", b, {65});
  plan.allocate();
  const View<std::byte, 1> block = plan.block(Section::kGradients);
  REQUIRE(block.dim[0] == 256 + 512);
  REQUIRE(block.data == reinterpret_cast<std::byte*>(a.data));
  REQUIRE(block.data + 256 == reinterpret_cast<std::byte*>(b.data));
  a[2] = b[64] = 1;
  int64_t set = 0;
  for (int64_t i = 0; i < block.dim[0]; ++i) set += block[i] != std::byte{0};
  REQUIRE(set == 4);  // two bytes of each 1.0f
  REQUIRE(plan.block(Section::kSums).empty());
}

TEST_CASE("a plan larger than the machine is a user error with both sizes") {
  MemoryPlan plan;
  View<float, 1> huge;
  plan.add(Section::kOptimizer, "moments", huge, {int64_t{1} << 48});
  try {
    plan.allocate();
    FAIL("allocated a petabyte");
  } catch (const UserError& e) {
    REQUIRE(std::string(e.what()).find("1048576.0 GiB") != std::string::npos);
  }
}

}  // namespace assay
