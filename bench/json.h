// What the JSON of each bench begins with, under the same keys in all. Standard library only.
#pragma once

#include <string>

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

std::string json_string(const std::string& text);  // with its quotes

}  // namespace assay
