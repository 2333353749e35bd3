// Requires that run() throws a UserError with one message line that contains `says` and a one-line
// hint.
#pragma once

#include <functional>
#include <string>

#include "tests/catch.h"

namespace assay {

inline void expect_error(const std::function<void()>& run, const std::string& says) {
  std::string message, hint;
  try {
    run();
  } catch (const UserError& e) {
    message = e.what();
    hint = e.hint();
  }
  INFO("message: " << message << "\nexpected in it: " << says);
  REQUIRE(message.find(says) != std::string::npos);
  REQUIRE(message.find('\n') == std::string::npos);
  REQUIRE(!hint.empty());
  REQUIRE(hint.find('\n') == std::string::npos);
}

}  // namespace assay
