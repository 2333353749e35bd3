#include "engine/same_bits.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("the first rank with other bits than rank 0 is told, and what differs") {
  REQUIRE(different_bits({}).empty());
  REQUIRE(different_bits({{1, 2}}).empty());
  REQUIRE(different_bits({{1, 2}, {1, 2}, {1, 2}}).empty());
  REQUIRE(different_bits({{1, 2}, {1, 2}, {0x1234abcd, 2}}) ==
          "rank 2 has other parameters than rank 0: hash 1234abcd, not 00000001");
  REQUIRE(different_bits({{1, 2}, {1, 0x5678}, {3, 2}}) ==
          "rank 1 has other router biases than rank 0: hash 00005678, not 00000002");
  REQUIRE(different_bits({{1, 2}, {3, 4}}).find("other parameters") != std::string::npos);
}

TEST_CASE("the hash of router biases notices a bit, another expert and another layer") {
  float first[] = {0.001f, -0.002f, 0.0f}, second[] = {0.003f, 0.0f, -0.001f};
  const auto hash = [&] {
    std::vector<RouterLayerState> layers(2);
    layers[0].bias = {first, {3}};
    layers[1].bias = {second, {3}};
    return bias_hash(layers);
  };
  const uint64_t before = hash();
  REQUIRE(hash() == before);
  std::swap(first[0], first[1]);
  REQUIRE(hash() != before);
  std::swap(first[0], first[1]);
  std::swap(first[1], second[1]);
  REQUIRE(hash() != before);
  std::swap(first[1], second[1]);
  first[2] = -0.0f;
  REQUIRE(hash() != before);
  first[2] = 0.0f;
  REQUIRE(hash() == before);
  REQUIRE(bias_hash({}) == 0);
}

}  // namespace assay
