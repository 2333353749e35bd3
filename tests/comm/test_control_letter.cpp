// Letters of the control: there and back, and what is no letter.
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/control_letter.h"
#include "tests/catch.h"

namespace assay::test_control_letter {
namespace {

ControlLetter some_letter() {
  ControlLetter letter;
  letter.kind = ControlLetter::Kind::kOutcome;
  letter.word.me = "node07, pid 4242";
  letter.word.what = "exchange of gradients";
  letter.word.step = 412;
  letter.word.call = UINT64_MAX;
  letter.word.slow = letter.word.reading = true;
  letter.rank = 3;
  letter.message = "rank 3 is silent";
  letter.hint = "see it";
  return letter;
}

TEST_CASE("control letter: there and back") {
  const ControlLetter letter = some_letter();
  const auto back = unpack(pack(letter));
  REQUIRE(back);
  REQUIRE(back->kind == letter.kind);
  REQUIRE(back->rank == 3);
  REQUIRE(back->word.me == letter.word.me);
  REQUIRE(back->word.what == letter.word.what);
  REQUIRE(back->word.step == 412);
  REQUIRE(back->word.call == UINT64_MAX);
  REQUIRE((back->word.slow && back->word.reading && !back->word.leaving));
  REQUIRE_FALSE(back->word.leaving);
  REQUIRE(back->message == letter.message);
  REQUIRE(back->hint == letter.hint);
}

TEST_CASE("control letter: cut, longer and foreign ones are refused") {
  const std::string letter = pack(some_letter());
  for (size_t size = 0; size < letter.size(); ++size) {
    // In memory of exactly this size, so that the address sanitizer sees a read past it.
    const std::vector<char> cut(letter.begin(), letter.begin() + ptrdiff_t(size));
    REQUIRE_FALSE(unpack({cut.data(), cut.size()}));
  }
  REQUIRE_FALSE(unpack(letter + "x"));
  REQUIRE_FALSE(unpack(letter + letter));
  REQUIRE_FALSE(unpack(std::string(1 << 20, 'x')));
  // One with a text that is longer than any that is sent.
  ControlLetter full = some_letter();
  full.message = std::string(kMostMessageBytes, 'x');
  std::string longer = pack(full);
  REQUIRE(unpack(longer));
  const auto length = [](int64_t n) {
    return std::string(reinterpret_cast<const char*>(&n), sizeof n);
  };
  const size_t at = longer.find(length(kMostMessageBytes));
  longer.replace(at, sizeof(int64_t), length(kMostMessageBytes + 1) + "x");
  REQUIRE_FALSE(unpack(longer));
  // Any byte changed, any length replaced: a letter or none, and never more than was sent.
  RandomSequence random({3, 1, 4});
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<char> changed(letter.begin(), letter.end());
    if (i % 2 == 0) {
      changed[random.below(uint32_t(changed.size()))] = char(random.below(256));
    } else {
      const size_t at = random.below(uint32_t(changed.size() - 8));
      for (size_t b = 0; b < 8; ++b)
        changed[at + b] = char(random.below(3) == 0 ? 0xFF : random.below(256));
    }
    const auto read = unpack({changed.data(), changed.size()});
    refused += read ? 0 : 1;
    if (read) REQUIRE(read->message.size() + read->hint.size() < letter.size());
  }
  REQUIRE(refused > 1000);
}

}  // namespace
}  // namespace assay::test_control_letter
