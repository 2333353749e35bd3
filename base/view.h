// View<T, Rank>: a non-owning, contiguous, row-major array with its shape. Trivially copyable and
// the same on host and device (nvcc calls the constexpr functions in kernels). View<T> converts to
// View<const T>, never back. Index arithmetic is 64-bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace assay {

template <typename T, int Rank>
struct View {
  T* data = nullptr;
  int64_t dim[Rank] = {};

  constexpr int64_t size() const {
    int64_t n = 1;
    for (int r = 0; r < Rank; ++r) n *= dim[r];
    return n;
  }
  constexpr size_t bytes() const { return static_cast<size_t>(size()) * sizeof(T); }
  // No memory; the shape may still be set.
  constexpr bool empty() const { return data == nullptr; }

  constexpr T& operator[](int64_t i) const { return data[i]; }
  constexpr T& at(int64_t i) const requires(Rank == 1) { return data[i]; }
  constexpr T& at(int64_t i, int64_t j) const requires(Rank == 2) { return data[i * dim[1] + j]; }
  constexpr T& at(int64_t i, int64_t j, int64_t k) const requires(Rank == 3) {
    return data[(i * dim[1] + j) * dim[2] + k];
  }
  constexpr T* row(int64_t i) const requires(Rank == 2) { return data + i * dim[1]; }
  // The i-th slice along the first axis.
  constexpr View<T, Rank - 1> operator()(int64_t i) const requires(Rank >= 2) {
    View<T, Rank - 1> v;
    int64_t stride = 1;
    for (int r = 1; r < Rank; ++r) {
      v.dim[r - 1] = dim[r];
      stride *= dim[r];
    }
    v.data = data + i * stride;
    return v;
  }
  // Rows [begin, begin + count) of the first axis.
  constexpr View rows(int64_t begin, int64_t count) const {
    View v = *this;
    int64_t stride = 1;
    for (int r = 1; r < Rank; ++r) stride *= dim[r];
    v.data = data + begin * stride;
    v.dim[0] = count;
    return v;
  }
  constexpr View<T, 1> flat() const { return {data, {size()}}; }

  constexpr operator View<const T, Rank>() const requires(!std::is_const_v<T>) {
    View<const T, Rank> v;
    v.data = data;
    for (int r = 0; r < Rank; ++r) v.dim[r] = dim[r];
    return v;
  }
};

}  // namespace assay
