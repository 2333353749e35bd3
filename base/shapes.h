// Shapes of tensors as text, for messages:
//
//   CHECK(a.dy.dim[1] == a.weight.dim[0], "rmsnorm_backward: %s",
//         shapes("dy", a.dy, "weight", a.weight).c_str());           dy (4, 64), weight (64)
//
// A CHECK that holds does not evaluate its message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/view.h"

namespace assay {

// One argument of shapes(): a name, or the dimensions after it, which it does not own.
struct ShapePart {
  const char* name = nullptr;
  const int64_t* dim = nullptr;
  size_t rank = 0;

  explicit ShapePart(const char* text) : name(text) {}
  template <typename T, int Rank>
  explicit ShapePart(const View<T, Rank>& view) : dim(view.dim), rank(Rank) {}
  template <size_t Rank>
  explicit ShapePart(const std::array<int64_t, Rank>& dims) : dim(dims.data()), rank(Rank) {}
};

std::string shapes_of(std::initializer_list<ShapePart> parts);

// Names in turn with views, or with std::array{...} for the shape of something else.
template <typename... Parts>
std::string shapes(const Parts&... parts) {
  static_assert(sizeof...(parts) % 2 == 0);
  return shapes_of({ShapePart(parts)...});
}

}  // namespace assay
