// base/small_float.h against vectors from independent code (small_float_vectors.py), and its
// stochastic rounding against its definition.
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/random.h"
#include "base/small_float.h"
#include "tests/catch.h"

namespace assay {
namespace {

struct Vectors {
  std::map<std::string, std::vector<int>> codes;  // by format: of all 65536 bf16
  std::map<std::string, std::vector<std::string>> values;
};

Vectors read_vectors() {
  std::ifstream file("tests/base/small_float_vectors.txt");
  REQUIRE(file.good());
  Vectors v;
  std::map<std::string, std::vector<std::pair<int, int>>> runs;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, first, code, value;
    words >> name >> first >> code >> value;
    if (name == "decode") {
      v.values[first].push_back(value);
    } else {
      runs[name].emplace_back(std::stoi(first, nullptr, 16), std::stoi(code, nullptr, 16));
    }
  }
  for (const auto& [name, list] : runs) {
    std::vector<int>& codes = v.codes[name];
    for (size_t i = 0; i < list.size(); ++i) {
      codes.resize(i + 1 < list.size() ? size_t(list[i + 1].first) : 65536, list[i].second);
    }
  }
  return v;
}

int differences(const std::vector<int>& want, const std::function<int(float)>& code) {
  REQUIRE(want.size() == 65536);
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    wrong += code(bf16::from_bits(uint16_t(bits))) != want[bits];
  }
  return wrong;
}

template <typename F>
int decode_differences(const std::vector<std::string>& want) {
  int wrong = 0;
  for (size_t code = 0; code < want.size(); ++code) {
    const float value = F::from_bits(uint32_t(code));
    const bool same = want[code] == "nan"
                          ? std::isnan(value)
                          : std::bit_cast<uint32_t>(value) == std::stoul(want[code], nullptr, 16);
    wrong += !same;
  }
  return wrong;
}

// grid(): the format's values from 0 up. drawn_from(): stochastic rounding by that list.
template <typename F>
std::vector<double> grid() {
  std::vector<double> values;
  for (uint32_t code = 0;; ++code) {
    const double value = double(float(F::from_bits(code)));
    values.push_back(value);
    if (value == double(F::kLargest)) return values;
  }
}
double drawn_from(const std::vector<double>& values, double x, uint32_t random16) {
  const double magnitude = std::fmin(std::abs(x), values.back());
  size_t i = 0;
  while (i + 1 < values.size() && values[i + 1] <= magnitude) ++i;
  if (values[i] == magnitude) return std::copysign(values[i], x);
  const double share = (magnitude - values[i]) / (values[i + 1] - values[i]);
  const bool up = std::floor(share * 65536 + 0.5) + random16 >= 65536;
  return std::copysign(values[up ? i + 1 : i], x);
}

template <typename F>
void stochastic_is_its_definition() {
  const std::vector<double> values = grid<F>();
  RandomSequence random({11, stream_id("small float"), 0});
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    // Magnitudes from far below the smallest value to beyond the largest.
    const double size = std::exp2(std::log2(F::kLargest) + 1 - 40 * random.uniform());
    const float x = float(random.next() % 2 ? size : -size);
    const uint32_t draw = random.next() >> 16;
    wrong += double(float(F::stochastic(x, draw))) != drawn_from(values, double(x), draw);
  }
  for (const double value : values) {  // representable values never change
    wrong += double(float(F::stochastic(float(value), 65535))) != value;
    wrong += double(float(F::stochastic(float(-value), 0))) != -value;
  }
  REQUIRE(wrong == 0);
}

// Over all 65536 draws, the share that rounds up is exact to half a draw, 2^-17 steps.
template <typename F>
void stochastic_is_unbiased() {
  const std::vector<double> values = grid<F>();
  double worst = 0;
  for (const double share : {0.0, 0.1, 1 / 3.0, 0.5, 0.77, 0.99999}) {
    for (size_t i = 0; i + 1 < values.size(); i += 1 + values.size() / 9) {
      const double step = values[i + 1] - values[i];
      const float x = float(values[i] + share * step);
      double sum = 0;
      for (uint32_t draw = 0; draw < 65536; ++draw) sum += double(float(F::stochastic(x, draw)));
      worst = std::fmax(worst, std::abs(sum / 65536 - double(x)) / step);
    }
  }
  INFO("largest bias, steps: " << worst);
  REQUIRE(worst <= 0x1p-17);
}

}  // namespace

TEST_CASE("every bf16 gets the code that independent code computes") {
  const Vectors v = read_vectors();
  REQUIRE(v.codes.size() == 7);
  REQUIRE(differences(v.codes.at("e4m3"), [](float x) { return e4m3(x).bits; }) == 0);
  REQUIRE(differences(v.codes.at("e5m2"), [](float x) { return e5m2(x).bits; }) == 0);
  REQUIRE(differences(v.codes.at("e2m1"), [](float x) { return e2m1(x).bits; }) == 0);
  REQUIRE(differences(v.codes.at("ue4m3"), [](float x) { return ue4m3(x).bits; }) == 0);
  for (const float largest : {448.0f, 57344.0f, 6.0f}) {
    const std::vector<int>& want = v.codes.at("e8m0/" + std::to_string(int(largest)));
    REQUIRE(differences(want, [=](float x) { return e8m0::round_up(x, largest).bits; }) == 0);
  }
}

TEST_CASE("every code decodes to the float that independent code computes") {
  const Vectors v = read_vectors();
  REQUIRE(v.values.at("e4m3").size() == 256);
  REQUIRE(v.values.at("e2m1").size() == 16);
  REQUIRE(decode_differences<e4m3>(v.values.at("e4m3")) == 0);
  REQUIRE(decode_differences<e5m2>(v.values.at("e5m2")) == 0);
  REQUIRE(decode_differences<e2m1>(v.values.at("e2m1")) == 0);
  REQUIRE(decode_differences<e8m0>(v.values.at("e8m0")) == 0);
}

TEST_CASE("a block's scale is the smallest power of two that fits its largest element") {
  for (int exponent = -100; exponent <= 100; ++exponent) {
    for (const float largest : {448.0f, 57344.0f, 6.0f}) {
      const float fits = std::ldexp(largest, exponent);
      REQUIRE(float(e8m0::round_up(fits, largest)) == std::ldexp(1.0f, exponent));
      const float beyond = std::nextafter(fits, INFINITY);
      REQUIRE(float(e8m0::round_up(beyond, largest)) == std::ldexp(1.0f, exponent + 1));
    }
  }
}

TEST_CASE("small floats round stochastically by their definition") {
  stochastic_is_its_definition<e4m3>();
  stochastic_is_its_definition<e5m2>();
  stochastic_is_its_definition<e2m1>();
}

TEST_CASE("small floats round stochastically without bias") {
  stochastic_is_unbiased<e4m3>();
  stochastic_is_unbiased<e5m2>();
  stochastic_is_unbiased<e2m1>();
}

TEST_CASE("every product of an e2m1 and a ue4m3 is exact in bf16") {
  int products = 0;
  for (uint32_t scale = 0; scale < 127; ++scale) {
    for (uint32_t code = 0; code < 16; ++code) {
      if (code == 8) continue;  // -0 once is enough
      const double exact =
          double(float(e2m1::from_bits(code))) * double(float(e4m3::from_bits(scale)));
      products += code < 8;
      const float product = float(e2m1::from_bits(code)) * float(e4m3::from_bits(scale));
      REQUIRE(double(float(bf16(product))) == exact);
    }
  }
  REQUIRE(products == 1016);
}

}  // namespace assay
