#include "bench/json.h"

#include "base/build_info.h"
#include "base/cpu_name.h"

namespace assay {

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= 0 && c < ' ' ? ' ' : c;
  }
  return out + '"';
}

std::string json_fields(const BenchHeader& header) {
  const BuildInfo build = build_info();
  std::string text =
      "\"program\": " + json_string(header.program) + ", \"commit\": " + json_string(build.commit) +
      ", \"modified\": " + (build.dirty ? "true" : "false") +
      ", \"cpu\": " + json_string(cpu_name()) + ", \"device\": " + json_string(header.device);
  if (header.threads > 0) text += ", \"threads\": " + std::to_string(header.threads);
  return text;
}

std::string with_header(const BenchHeader& header, const std::string& object) {
  return "{" + json_fields(header) + ", " + object.substr(1);
}

}  // namespace assay
