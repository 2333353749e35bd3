// Catch2 with its CHECK taken away: CHECK is ours (base/check.h), whatever was included before;
// tests use REQUIRE.
#pragma once

#include "base/check.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <catch2/catch.hpp>
#pragma pop_macro("CHECK")
