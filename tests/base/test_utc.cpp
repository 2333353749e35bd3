#include "base/utc.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("a time is written in UTC, to the second") {
  REQUIRE(utc_text(0) == "1970-01-01T00:00:00Z");
  REQUIRE(utc_text(951827696) == "2000-02-29T12:34:56Z");
  const time_t before = time(nullptr);
  const std::string now = utc_now();
  REQUIRE((now == utc_text(before) || now == utc_text(time(nullptr))));
}

}  // namespace assay
