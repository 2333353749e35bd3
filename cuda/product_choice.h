// The algorithms of a GPU's dense products as data. A library has several ways to compute one
// product, and they add in different orders: the choice decides the bits. It is made before a run
// (`assay tune`), kept in files (session/product_files.h) and looked up here, so that speed decides
// nothing while a run computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/view.h"

namespace assay::gpu {

// One product of cuda/matmul.h or cuda/scaled_matmul.h, with all that the choice of its algorithm
// may depend on: d (m, n) = f[0] a b + f[1] c.
struct ProductKey {
  enum class Type { kFloat, kBf16, kE4M3, kE5M2, kE2M1 };
  enum class Scales { kNone, kTensor, k1x128, k128x128, k1x32, k1x16 };
  enum class Form { kPlain, kTransposed };
  struct Operand {
    Type type;
    Form form = Form::kPlain;
    Scales scales = Scales::kNone;
    uint32_t alignment = 256;  // of its address in bytes, at most 256
    auto operator<=>(const Operand&) const = default;
  };
  int64_t m, n, k;
  Operand a, b;
  Type result;                                                              // of c and d
  enum class Added { kNothing, kInPlace, kOther } added = Added::kNothing;  // c: none, d, another
  enum class Factors { kHost, kDevice } factors = Factors::kHost;           // where f is
  // As ScaledMatmul::Sums. Products that are not scaled add in float.
  enum class Sums { kFloat, kPromoted, kFast } sums = Sums::kFloat;
  uint32_t c_alignment = 256, d_alignment = 256;

  auto operator<=>(const ProductKey&) const = default;
};
// "(16384, 768, 768) bf16 by bf16^T"; "to float" if that is not the operands' type, "+=" with c.
std::string text_of(const ProductKey& key);

// The attributes by which cuBLASLt makes an algorithm anew, 0 where it has none.
struct ProductAlgorithm {
  int64_t id = 0, tile = 0, stages = 0, split_k = 0, reduction = 0, swizzling = 0, custom = 0,
          inner_shape = 0, cluster_shape = 0;
  bool operator==(const ProductAlgorithm&) const = default;
};
struct AlgorithmField {
  const char* name;
  int64_t ProductAlgorithm::*value;
};
inline constexpr AlgorithmField kAlgorithmFields[] = {
    {"id", &ProductAlgorithm::id},
    {"tile", &ProductAlgorithm::tile},
    {"stages", &ProductAlgorithm::stages},
    {"split_k", &ProductAlgorithm::split_k},
    {"reduction", &ProductAlgorithm::reduction},
    {"swizzling", &ProductAlgorithm::swizzling},
    {"custom", &ProductAlgorithm::custom},
    {"inner_shape", &ProductAlgorithm::inner_shape},
    {"cluster_shape", &ProductAlgorithm::cluster_shape},
};
std::string text_of(const ProductAlgorithm& algorithm);  // "id 66, tile 20, split_k 4, ..."

// kLibrary: the library's first proposal. kTuning: the fastest, of a tune file.
enum class ChosenBy { kLibrary, kTuning };
struct ProductChoice {
  ProductAlgorithm algorithm;
  ChosenBy by = ChosenBy::kLibrary;
  bool operator==(const ProductChoice&) const = default;
};

// The memory of a call, on the device but for `factors` with Factors::kHost.
struct ProductOperands {
  const void *a, *b;
  const void* c;  // null: nothing is added
  void* d;
  const float* factors;  // null: gain, 1
  float gain = 1.0f;
  const void *a_scales = nullptr, *b_scales = nullptr;
  View<std::byte, 1> workspace = {};  // of the call, in what note_call() remembers
};

// Of one device: what is chosen for its products, and what they took.
class ProductChoices {
 public:
  using Calls = std::map<ProductKey, std::vector<ProductOperands>>;

  // For products that have not been called yet.
  void set(const ProductKey& key, const ProductChoice& choice) { chosen_[key] = choice; }
  // Null: the library's first proposal.
  const ProductChoice* find(const ProductKey& key) const;

  struct Used {
    ProductKey key;
    ProductChoice choice;
    int64_t workspace_bytes;
  };
  // What products took, each once, in the order of their first calls that are noted. Evaluations of
  // texts have products of any number of rows, so a run notes those of its steps alone.
  const std::vector<Used>& used() const { return used_; }
  enum class Notes { kTaken, kNone };
  void set_notes(Notes notes) { notes_ = notes; }
  Notes notes() const { return notes_; }
  // Says that a product took it. Of the library's adapter.
  void note(const Used& used);

  // Between the two every call is remembered, so that it can be repeated (`assay tune`).
  void begin_calls();
  Calls end_calls();
  void note_call(const ProductKey& key, const ProductOperands& operands);

  // Of the library's adapter: what it made for the products.
  std::shared_ptr<void> plans;

 private:
  std::map<ProductKey, ProductChoice> chosen_;
  std::vector<Used> used_;
  Notes notes_ = Notes::kTaken;
  Calls calls_;
  bool keeps_calls_ = false;
};

}  // namespace assay::gpu
