// The JSON of the benches: what that of each begins with, and the row of a timed case of an op. The
// same keys in all. Standard library only.
#pragma once

#include <cstdint>
#include <string>

#include "base/cost.h"

namespace assay {

struct BenchHeader {
  std::string program;         // "bench_ops"
  std::string device = "cpu";  // or the GPU's name
  int threads = 0;             // of the CPU; 0: they do not matter
};
// "program": "bench_ops", "commit": "361fc3...", "modified": false, "cpu": "AMD EPYC 9554",
// "device": "cpu", "threads": 2
std::string json_fields(const BenchHeader& header);
// The text of a JSON object that has these fields too.
std::string with_header(const BenchHeader& header, const std::string& object);

struct CaseRow {
  std::string op, name;
  double p50_us = 0, min_us = 0;
  int64_t runs = 0;
  Cost cost = {};
  const char* bound = "";  // the limit that `share` is of: "copy", "matmul"
  double share = 0;
};
// "op": ..., "case": ..., and the others by their names; bytes and flops of the cost.
std::string json_fields(const CaseRow& row);

std::string json_string(const std::string& text);  // with its quotes

}  // namespace assay
