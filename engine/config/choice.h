// Enumerations as fields of the configuration. Each has one table of names, which are its text in
// YAML, in messages and in JSON:
//
//   enum class DecayShape { kLinear, kCosine };
//   template <>
//   struct Choice<DecayShape> {
//     static constexpr const char* kNames[] = {"linear", "cosine"};  // in the enumerators' order
//   };
#pragma once

#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

template <typename E>
struct Choice;
template <typename E>
concept IsChoice = requires {
  Choice<E>::kNames;
};

template <IsChoice E>
constexpr const char* name_of(E value) {
  return Choice<E>::kNames[static_cast<size_t>(value)];
}

template <typename T>
struct OptionalChoice;
template <IsChoice E>
struct OptionalChoice<std::optional<E>> {
  using Enum = E;
};
// A std::optional of an enumeration with names.
template <typename T>
concept IsOptionalChoice = requires {
  typename OptionalChoice<T>::Enum;
};

// Nothing if no enumerator has the name.
template <IsChoice E>
constexpr std::optional<E> choice_named(std::string_view name) {
  int index = 0;
  for (const char* const known : Choice<E>::kNames) {
    if (name == known) return static_cast<E>(index);
    ++index;
  }
  return std::nullopt;
}

template <IsChoice E>
std::vector<E> choices() {
  std::vector<E> all;
  for (size_t i = 0; i < std::size(Choice<E>::kNames); ++i) all.push_back(static_cast<E>(i));
  return all;
}
template <IsChoice E>
std::vector<std::string> choice_names() {
  return {std::begin(Choice<E>::kNames), std::end(Choice<E>::kNames)};
}

}  // namespace assay
