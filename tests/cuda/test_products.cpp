// The algorithms of cuBLASLt's products: proposals, choices, repeated bits, refusals. The library
// is ours (fake_cublaslt.cpp), the GPU the SIMT emulator. ASSAY_CUBLASLT_LIBRARY names the
// library.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/matmul.h"
#include "cuda/memory_plan.h"
#include "cuda/product_library.h"
#include "cuda/scaled_matmul.h"
#include "cuda/simt/stream.h"
#include "cuda/transfer.h"
#include "tests/catch.h"

namespace assay::gpu {

namespace {

constexpr int64_t kM = 5, kN = 3, kK = 700;
constexpr int64_t kUsual = int64_t{32} << 20, kLarge = int64_t{128} << 20;

// A product d (kM, kN) = a b^T, in float, on a device of its own.
class Bench {
 public:
  explicit Bench(int64_t workspace_bytes = kUsual) : device_(open_device()) {
    plan_.add(Section::kData, "a", a_, {kM * kK});
    plan_.add(Section::kData, "b", b_, {kN * kK});
    plan_.add(Section::kScratch, "d", d_, {kM * kN});
    plan_.add(Section::kScratch, "workspace", workspace_, {workspace_bytes});
    plan_.allocate(device_->context());
    RandomSequence random({3, stream_id("products"), 0});
    for (int64_t i = 0; i < kM * kK; ++i) a_[i] = float(random.below(1000)) / 999;
    for (int64_t i = 0; i < kN * kK; ++i) b_[i] = float(random.below(1000)) / 997;
  }

  ProductChoices& choices() { return *device_->context()->products; }
  Exec on() { return {.workspace = workspace_, .gpu = device_->context()}; }
  Matmul product() {
    return {.d = d_.data,
            .a = a_.data,
            .b = b_.data,
            .m = kM,
            .n = kN,
            .k = kK,
            .b_form = Matmul::Form::kTransposed,
            .operands = Element::kFloat,
            .result = Element::kFloat};
  }
  std::vector<float> result() {
    std::vector<float> host(size_t(kM * kN));
    copy(on(), View<float, 1>{host.data(), {kM * kN}}, d_);
    wait(on());
    return host;
  }
  std::vector<float> multiplied() {
    matmul(on(), product());
    return result();
  }
  // The key and the memory of the product.
  std::pair<ProductKey, ProductOperands> called() {
    choices().begin_calls();
    matmul(on(), product());
    const ProductChoices::Calls calls = choices().end_calls();
    REQUIRE(calls.size() == 1);
    return {calls.begin()->first, calls.begin()->second.at(0)};
  }
  std::vector<ProductProposal> proposals(int most = 16) {
    const auto [key, call] = called();
    return product_library()->proposals(on(), key, call, most);
  }
  float first() const { return d_[0]; }  // now, without a wait
  void wait_for_launches() { device_->context()->launches = Context::Launches::kWaiting; }
  double exact(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < kK; ++k) sum += double(a_[i * kK + k]) * double(b_[j * kK + k]);
    return sum;
  }

 private:
  std::unique_ptr<Device> device_;
  MemoryPlan plan_;
  View<float, 1> a_, b_, d_;
  View<std::byte, 1> workspace_;
};

// d by `algorithm` as the choice of the product.
std::vector<float> by(const ProductAlgorithm& algorithm, ChosenBy chosen = ChosenBy::kTuning,
                      int64_t workspace = kUsual) {
  Bench asked, place(workspace);
  place.choices().set(asked.called().first, {algorithm, chosen});
  return place.multiplied();
}

std::string message_of(const ProductAlgorithm& algorithm) {
  try {
    by(algorithm);
  } catch (const UserError& error) {
    REQUIRE(error.hint().find("assay tune") != std::string::npos);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a product without a choice takes the library's first proposal, and says which") {
  Bench place;
  const std::vector<float> d = place.multiplied();
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      REQUIRE(std::abs(double(d[size_t(i * kN + j)]) - place.exact(i, j)) < 1e-3);
    }
  }
  REQUIRE(place.multiplied() == d);
  REQUIRE(place.choices().used().size() == 1);
  const ProductChoices::Used used = place.choices().used()[0];
  REQUIRE(used.choice == ProductChoice{{.id = 66, .tile = 20, .split_k = 1}, ChosenBy::kLibrary});
  REQUIRE(used.key.m == kM);
  REQUIRE(used.key.b.form == ProductKey::Form::kTransposed);
  REQUIRE(used.key.added == ProductKey::Added::kNothing);
  REQUIRE(text_of(used.key) == "(5, 3, 700) float by float^T");
  REQUIRE(text_of(used.choice.algorithm) == "id 66, tile 20, split_k 1");
}

TEST_CASE("proposals add in float, fit in the workspace, and can be made anew") {
  Bench usual, large(kLarge);
  const std::vector<ProductProposal> found = usual.proposals();
  // Not the one that is refused when it is made anew, nor the one that adds in the output's type.
  REQUIRE(found.size() == 3);
  REQUIRE(found[0].algorithm == ProductAlgorithm{.id = 66, .tile = 20, .split_k = 1});
  REQUIRE(found[1].algorithm ==
          ProductAlgorithm{.id = 66, .tile = 18, .split_k = 2, .reduction = 2});
  REQUIRE(found[1].workspace_bytes == 2 * kM * kN * 4);
  REQUIRE(found[2].algorithm ==
          ProductAlgorithm{.id = 67, .tile = 18, .split_k = 1, .custom = 3, .cluster_shape = 4});
  REQUIRE(usual.proposals(1).size() == 1);
  const std::vector<ProductProposal> more = large.proposals();
  REQUIRE(more.size() == 4);
  REQUIRE(more[3].workspace_bytes == int64_t{64} << 20);
}

TEST_CASE("a choice decides the bits, and the same choice gives the same bits") {
  Bench place;
  const std::vector<float> first = place.multiplied();
  const std::vector<ProductProposal> found = place.proposals();
  const std::vector<float> split = by(found[1].algorithm);
  REQUIRE(split != first);
  REQUIRE(by(found[1].algorithm) == split);
  REQUIRE(by(found[2].algorithm) == first);  // it adds in the order of the first

  Bench chosen;
  chosen.choices().set(place.called().first, {found[1].algorithm, ChosenBy::kTuning});
  REQUIRE(chosen.multiplied() == split);
  REQUIRE(chosen.choices().used()[0].choice ==
          ProductChoice{found[1].algorithm, ChosenBy::kTuning});
  // Prepared by itself it is the same product.
  const auto [key, call] = place.called();
  product_library()->prepare(place.on(), key, call, found[1].algorithm)(place.on(), call);
  REQUIRE(place.result() == split);
}

TEST_CASE("a kept first proposal stays, whatever the library proposes first") {
  Bench place;
  const std::vector<float> first = place.multiplied();
  const ProductAlgorithm algorithm = place.choices().used()[0].choice.algorithm;
  setenv("ASSAY_FAKE_CUBLASLT_ORDER", "reversed", 1);
  Bench other;
  const std::vector<ProductProposal> reversed = other.proposals();
  const std::vector<float> kept = by(algorithm, ChosenBy::kLibrary);
  unsetenv("ASSAY_FAKE_CUBLASLT_ORDER");
  REQUIRE(reversed[0].algorithm != algorithm);
  REQUIRE(kept == first);
}

TEST_CASE("an algorithm that the library refuses, or that is none, is an error with its values") {
  REQUIRE(message_of({.id = 99, .tile = 20}) ==
          "the algorithm that is kept for (5, 3, 700) float by float^T (id 99, tile 20) is refused "
          "by cuBLASLt: not supported, says the fake library");
  REQUIRE(message_of({.id = 68, .tile = 1, .split_k = 4, .reduction = 2}).find("is refused") !=
          std::string::npos);
  REQUIRE(message_of({.id = 70, .tile = 5, .split_k = 8, .reduction = 2})
              .find("needs 67108864 bytes of workspace, there are 33554432") != std::string::npos);
  REQUIRE(message_of({.id = 66, .tile = 18, .split_k = 2, .reduction = 4})
              .find("does not add in float alone") != std::string::npos);
  REQUIRE(by({.id = 70, .tile = 5, .split_k = 8, .reduction = 2}, ChosenBy::kTuning, kLarge) !=
          by({.id = 66, .tile = 20, .split_k = 1}));
}

TEST_CASE("what is added, factors on the device and alignments are other products") {
  Bench place;
  Matmul p = place.product();
  matmul(place.on(), p);
  p.c = p.d;
  matmul(place.on(), p);
  p.c = p.a;
  matmul(place.on(), p);
  const auto& used = place.choices().used();
  REQUIRE(used.size() == 3);
  REQUIRE(used[1].key.added == ProductKey::Added::kInPlace);
  REQUIRE(used[2].key.added == ProductKey::Added::kOther);
  REQUIRE(text_of(used[1].key) == "(5, 3, 700) float by float^T +=");
  p = place.product();
  p.a = static_cast<const float*>(p.a) + 4;
  p.k -= 4;
  matmul(place.on(), p);
  REQUIRE(used.size() == 4);
  REQUIRE(used[3].key.a.alignment == 16);
}

TEST_CASE("what is called while no notes are taken is noted when it is called again") {
  Bench place;
  place.choices().set_notes(ProductChoices::Notes::kNone);
  place.multiplied();
  REQUIRE(place.choices().used().empty());
  place.choices().set_notes(ProductChoices::Notes::kTaken);
  place.multiplied();
  place.multiplied();
  REQUIRE(place.choices().used().size() == 1);
}

TEST_CASE("a product that the library has no algorithm for is an error with its shape") {
  Bench place;
  const CodeKind e4m3{CodeFormat::kE4M3, CodeScales::kTensor};
  const Matmul p = place.product();
  const CodeOperand a{p.a, p.a, e4m3}, b{p.b, p.b, e4m3};
  const ScaledMatmul scaled{
      .d = p.d, .a = a, .b = b, .m = 16, .n = 16, .k = 16, .result = Element::kBf16};
  try {
    scaled_matmul(place.on(), scaled);
    FAIL("no error");
  } catch (const UserError& error) {
    REQUIRE(std::string(error.what()) ==
            "cuBLASLt has no algorithm for (16, 16, 16) e4m3 tensor by e4m3 tensor^T");
  }
}

TEST_CASE("a library older than scales of operands has no such products, and says so") {
  Bench place;
  const CodeKind e4m3{CodeFormat::kE4M3, CodeScales::kTensor};
  const Matmul p = place.product();
  const CodeOperand a{p.a, p.a, e4m3}, b{p.b, p.b, e4m3};
  REQUIRE(scaled_products_problem(product_library()) == "");
  REQUIRE(scaled_products_problem(nullptr) == "");
  setenv("ASSAY_FAKE_CUBLASLT_VERSION", "120805", 1);
  std::string why, hint;
  try {
    scaled_matmul(place.on(),
                  {.d = p.d, .a = a, .b = b, .m = 16, .n = 16, .k = 16, .result = Element::kBf16});
  } catch (const UserError& error) {
    why = error.what();
    hint = error.hint();
  }
  unsetenv("ASSAY_FAKE_CUBLASLT_VERSION");
  REQUIRE(why == "products of quantised operands need cuBLASLt 12.9 or newer, this is 12.8.5");
  REQUIRE(hint.find("precision.products: decoded") != std::string::npos);
}

TEST_CASE("where launches are waited for a product is too, and a failure names it") {
  Bench place;
  simt::set_pace(simt::Pace::kLate);
  matmul(place.on(), place.product());
  REQUIRE(place.first() == 0);  // it is queued
  place.wait_for_launches();
  matmul(place.on(), place.product());
  REQUIRE(std::abs(double(place.first()) - place.exact(0, 0)) < 1e-3);
  setenv("ASSAY_FAKE_CUBLASLT_FAULT", "1", 1);
  std::string why;
  try {
    matmul(place.on(), place.product());
  } catch (const UserError& error) {
    why = error.what();
  }
  unsetenv("ASSAY_FAKE_CUBLASLT_FAULT");
  simt::set_pace(simt::Pace::kPrompt);
  REQUIRE(why == "the product (5, 3, 700) float by float^T failed: an illegal access");
}

TEST_CASE("where launches are waited for, a lost rank ends the wait for a product") {
  struct Lost : Watcher {
    void check() override { throw RankIsLost(); }
    struct RankIsLost {};
  } lost;
  Bench place;
  place.wait_for_launches();
  place.on().gpu->watch = &lost;
  bool over = false;
  simt::enqueue_operation(nullptr, [&]() -> simt::Poll { return [&] { return over; }; });
  REQUIRE_THROWS_AS(matmul(place.on(), place.product()), Lost::RankIsLost);
  place.on().gpu->watch = nullptr;
  over = true;
  simt::wait_for_all();
  REQUIRE(std::abs(double(place.first()) - place.exact(0, 0)) < 1e-3);
}

TEST_CASE("a product of no terms is what is added, or zero") {
  Bench place;
  const std::vector<float> before = place.multiplied();
  Matmul p = place.product();
  p.k = 0;
  p.c = p.d;
  matmul(place.on(), p);
  REQUIRE(place.result() == before);
  p.c = nullptr;
  matmul(place.on(), p);
  REQUIRE(place.result() == std::vector<float>(size_t(kM * kN), 0.0f));
}

}  // namespace assay::gpu
