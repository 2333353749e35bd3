// The embedded corpus: an endless sequence of small English-like stories made from a grammar
// (synth_grammar.h, docs/synth.md). Story i depends only on (seed, i) and, computed in integers, is
// the same on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace assay {

class StoryGenerator {
 public:
  explicit StoryGenerator(uint64_t seed, uint64_t first_story = 0)
      : seed_(seed), story_(first_story) {}

  // The next story: some 150 to 350 words in paragraphs, no newline at the end.
  std::string next();

  // Validation stories begin here; training never gets that far.
  static constexpr uint64_t kFirstValidation = uint64_t{1} << 31;

 private:
  uint64_t seed_;
  uint64_t story_;
};

}  // namespace assay
