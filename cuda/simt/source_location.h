// The line of a kernel that called a wrapper, for reports and to distinguish barriers.
#pragma once

namespace assay::simt {

struct SourceLocation {
  const char* file = "";
  int line = 0;

  // As a default argument, SourceLocation::caller() is the line of the call.
  static constexpr SourceLocation caller(const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace assay::simt
