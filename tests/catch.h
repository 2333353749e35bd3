// Catch2 with its CHECK taken away: CHECK is ours (base/check.h); tests use REQUIRE.
#pragma once

#include <catch2/catch.hpp>
#undef CHECK
#include "base/check.h"
