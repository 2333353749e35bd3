// Items in one text, with a separator between them.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace assay {

// "200, 400, 1000": texts or whole numbers with `between` between them. An empty text at the
// beginning leaves no separator.
template <typename Items>
std::string joined(const Items& items, std::string_view between) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += between;
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(item)>>) {
      text += std::to_string(item);
    } else {
      text += item;
    }
  }
  return text;
}

}  // namespace assay
