// A file of data as a run reads it: a run's files in their order are what decides its batches.
#pragma once

#include <string>

namespace assay {

inline constexpr const char* kTokenizerPart = "data.tokenizer";

struct ReadFile {
  std::string
      part;  // "data.train", "data.train, source 2" of a mixture, "data.val", the tokenizer's
  std::string path;
  std::string sha256;
};

}  // namespace assay
