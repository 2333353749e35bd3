// Catch2 without its CHECK macro: CHECK stays ours (base/check.h), whatever the include order.
// Tests use REQUIRE.
#pragma once

#include "base/check.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <catch2/catch.hpp>
#pragma pop_macro("CHECK")
