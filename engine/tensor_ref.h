// A named tensor of any type, for heterogeneous lists (parameters, checkpoints, dumps). Non-owning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/check.h"
#include "base/view.h"

namespace assay {

enum class DType { kF32, kBF16, kI64 };

inline int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
  }
  return 0;
}
// The name in the safetensors format.
inline const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

struct TensorRef {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // row-major, contiguous
  void* data;

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
  int64_t bytes() const { return size() * dtype_bytes(dtype); }

  // "(6, 256)", for messages.
  std::string shape_text() const {
    std::string text = "(";
    for (size_t i = 0; i < shape.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    }
    return text + ")";
  }

  // The typed view. A wrong type or rank fails a CHECK that names the tensor.
  template <typename T, int Rank>
  View<T, Rank> as() const {
    CHECK(dtype == DTypeOf<T>::value && static_cast<int>(shape.size()) == Rank,
          "%s: is %s %s, not %s of rank %d", name.c_str(), dtype_name(dtype), shape_text().c_str(),
          dtype_name(DTypeOf<T>::value), Rank);
    View<T, Rank> view;
    view.data = static_cast<T*>(data);
    for (size_t r = 0; r < shape.size(); ++r) view.dim[r] = shape[r];
    return view;
  }
};

// Contiguous elements of a tensor, as one of several ranks holds them.
struct Slice {
  TensorRef whole;  // name, type and full shape; its data is not used
  int64_t first = 0, count = 0;
  void* data = nullptr;  // element `first`

  int64_t bytes() const { return count * dtype_bytes(whole.dtype); }
};

template <typename T, int Rank>
TensorRef tensor_ref(std::string name, View<T, Rank> view) {
  return {.name = std::move(name),
          .dtype = DTypeOf<T>::value,
          .shape = std::vector<int64_t>(view.dim, view.dim + Rank),
          .data = view.data};
}

}  // namespace assay
