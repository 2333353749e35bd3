// The letters of comm/watch.h. What a rank sends that runs another program is no letter, and
// neither is one that was cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/last_words.h"

namespace assay {

struct ControlLetter {
  enum class Kind : int64_t {
    kBeat = 1,  // to rank 0, and from it: `word`
    kGiveUp,    // to rank 0: message and hint of the sender
    kOutcome,   // how the run ended: all in order (rank -1), or rank, message and hint
    kHeard,     // to rank 0: the outcome has arrived
  };
  Kind kind = Kind::kBeat;
  LastWord word;  // the sender's, in every letter; its rank and age_s do not travel
  int64_t rank = -1;
  std::string message, hint;
};

// What is longer is cut.
inline constexpr size_t kMostMessageBytes = 2000, kMostHintBytes = 1000;

// Below 4 KB whatever the texts are: MPI delivers such a letter without the help of
// the receiver's side, so nobody waits for a rank that has stopped.
std::string pack(const ControlLetter& letter);
std::optional<ControlLetter> unpack(std::string_view bytes);

}  // namespace assay
