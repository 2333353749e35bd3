// What libFuzzer calls. ASSAY_FUZZ_TARGET names the parser.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {

const assay::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("ASSAY_FUZZ_TARGET");
  if (name != nullptr) chosen = assay::fuzz::find_target(name);
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "error: ASSAY_FUZZ_TARGET is %s\nhint: one of", name ? name : "not set");
  for (const auto& target : assay::fuzz::targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  std::exit(1);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  assay::fuzz::run(*chosen, {reinterpret_cast<const char*>(data), size});
  return 0;
}
