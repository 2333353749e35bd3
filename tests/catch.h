// Catch2, version 2 or 3, without its CHECK macro: CHECK stays ours (base/check.h), whatever the
// include order. Tests use REQUIRE, and the names of version 3.
#pragma once

#include "base/check.h"

#pragma push_macro("CHECK")
#undef CHECK
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
using Catch::Approx;  // version 2 has it in the global namespace
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline StdString::ContainsMatcher ContainsSubstring(const std::string& part) {
  return StdString::ContainsMatcher(StdString::CasedString(part, CaseSensitive::Yes));
}
// In version 3 this name takes an element of a range: a test that used it would not compile there.
[[deprecated("Catch2 3 calls it ContainsSubstring")]] StdString::ContainsMatcher Contains(
    const std::string& part, CaseSensitive::Choice sensitivity);
}  // namespace Catch::Matchers
#endif
#pragma pop_macro("CHECK")
