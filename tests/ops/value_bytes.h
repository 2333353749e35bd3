// value_bytes<A>(): which bytes of an aggregate hold a value, and which are padding.
//
// Every member is written by aggregate initialisation into memory that was filled before, twice,
// with two different bytes: padding keeps what was there. A compiler that writes into padding makes
// it look like a value, never a value like padding. (__builtin_clear_padding of g++ 12 clears bytes
// of the values of a struct that holds an array of structs.)
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace assay {

// Becomes a value of any type, all of whose bytes are 1.
struct BytesOfOne {
  template <typename T>
  operator T() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memset(static_cast<void*>(&value), 1, sizeof value);
    return value;
  }
};

template <typename A, size_t... I>
constexpr bool takes_members(std::index_sequence<I...>) {
  return requires {
    A{(void(I), BytesOfOne())...};
  };
}

// The members of A: the most values that its initialisation takes.
template <typename A, size_t n = 0>
constexpr size_t member_count() {
  constexpr size_t kMost = 64;
  static_assert(n <= kMost, "an aggregate of at most 64 members");
  if constexpr (!takes_members<A>(std::make_index_sequence<n + 1>())) {
    return n;
  } else {
    return member_count<A, n + 1>();
  }
}

template <typename A, size_t... I>
void write_members(std::byte* memory, std::index_sequence<I...>) {
  ::new (static_cast<void*>(memory)) A{(void(I), BytesOfOne())...};
}

template <typename A>
std::bitset<sizeof(A)> value_bytes() {
  static_assert(std::is_aggregate_v<A> && std::is_trivially_copyable_v<A>);
  std::bitset<sizeof(A)> holds;
  holds.set();
  for (const int before : {0x00, 0xff}) {
    alignas(A) std::array<std::byte, sizeof(A)> memory;
    std::memset(memory.data(), before, memory.size());
    write_members<A>(memory.data(), std::make_index_sequence<member_count<A>()>());
    for (size_t at = 0; at < sizeof(A); ++at) holds[at] = holds[at] && memory[at] == std::byte{1};
  }
  return holds;
}

}  // namespace assay
