// Parsers of bytes from outside, each as a function that a fuzzer calls. A parser may return or
// throw UserError with a message and a hint; anything else ends the process: another exception, a
// crash, a hang, memory without bound, or a value that does not survive being written and read.
//
//   fuzz_parsers        the fuzzer: ASSAY_FUZZ_TARGET=NAME fuzz_parsers CORPUS (tools/fuzz.sh)
//   fuzz_seeds          no fuzzer needed: replays the seeds, whole and damaged, in every build
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::fuzz {

struct Target {
  const char* name;
  void (*parse)(std::string_view bytes);
  std::vector<std::string> (*seeds)();  // valid inputs, small
};

std::span<const Target> targets();
const Target* find_target(std::string_view name);  // null if unknown

// Calls the parser, and aborts on what it may not do.
void run(const Target& target, std::string_view bytes);

// A folder of this process, in TMPDIR or else in memory; removed at its end, but not by a crash.
const std::string& scratch();
// Writes a file there; returns its path. Aborts if it cannot, as on a full disk.
std::string put(const std::string& name, std::string_view bytes);

// The seeds of targets/*.cpp.
extern const Target kConfigTarget, kMatrixTarget, kMapClaimsTarget, kTokenizerTarget, kMergesTarget,
    kShardTarget, kManifestTarget, kDocumentsTarget, kSafetensorsTarget, kStateTarget,
    kCheckpointTarget, kTelemetryTarget, kLoadsTarget, kLetterTarget, kModelFolderTarget,
    kCoreRowsTarget, kCoreListTarget, kPromptsTarget, kReceiptTarget, kAnchorLogTarget,
    kPublishedTarget, kUsedTarget;

}  // namespace assay::fuzz
