#include "comm/control_letter.h"

#include <array>
#include <cstring>

namespace assay {

namespace {

// The letter: kMagic, kNumbers numbers of 8 bytes, and kTexts texts, each behind its length in 8
// bytes. All ranks have the byte order of the program that they all run.
constexpr std::string_view kMagic = "assay control 1\n";
constexpr size_t kNumbers = 5, kTexts = 4;
constexpr std::array<size_t, kTexts> kMostText = {200, 200, kMostMessageBytes, kMostHintBytes};
constexpr int64_t kSlow = 1, kLeaving = 2, kReading = 4;

void append(std::string& bytes, int64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::optional<std::string_view> take(std::string_view& bytes, size_t size) {
  if (bytes.size() < size) return std::nullopt;
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

std::optional<int64_t> take_number(std::string_view& bytes) {
  const auto taken = take(bytes, sizeof(int64_t));
  if (!taken) return std::nullopt;
  int64_t number;
  std::memcpy(&number, taken->data(), sizeof number);
  return number;
}

}  // namespace

std::string pack(const ControlLetter& letter) {
  const LastWord& word = letter.word;
  std::string bytes(kMagic);
  const int64_t flags =
      (word.slow ? kSlow : 0) | (word.leaving ? kLeaving : 0) | (word.reading ? kReading : 0);
  const std::array<int64_t, kNumbers> numbers = {int64_t(letter.kind), letter.rank, word.step,
                                                 int64_t(word.call), flags};
  for (const int64_t number : numbers) append(bytes, number);
  const std::array<const std::string*, kTexts> texts = {&word.me, &word.what, &letter.message,
                                                        &letter.hint};
  for (size_t i = 0; i < kTexts; ++i) {
    const std::string text = one_line(*texts[i], kMostText[i]);
    append(bytes, int64_t(text.size()));
    bytes += text;
  }
  return bytes;
}

std::optional<ControlLetter> unpack(std::string_view bytes) {
  if (take(bytes, kMagic.size()) != kMagic) return std::nullopt;
  std::array<int64_t, kNumbers> numbers;
  for (int64_t& number : numbers) {
    const auto taken = take_number(bytes);
    if (!taken) return std::nullopt;
    number = *taken;
  }
  std::array<std::string, kTexts> texts;
  for (size_t i = 0; i < kTexts; ++i) {
    const auto size = take_number(bytes);
    if (!size || *size < 0 || *size > int64_t(kMostText[i])) return std::nullopt;
    const auto text = take(bytes, size_t(*size));
    if (!text) return std::nullopt;
    texts[i] = one_line(*text, kMostText[i]);
  }
  const auto [kind, rank, step, call, flags] = numbers;
  const bool known =
      kind >= int64_t(ControlLetter::Kind::kBeat) && kind <= int64_t(ControlLetter::Kind::kHeard);
  if (!bytes.empty() || !known || (flags & ~(kSlow | kLeaving | kReading)) != 0)
    return std::nullopt;
  ControlLetter letter;
  letter.kind = ControlLetter::Kind(kind);
  letter.rank = rank;
  letter.word.step = step;
  letter.word.call = uint64_t(call);
  letter.word.slow = (flags & kSlow) != 0;
  letter.word.leaving = (flags & kLeaving) != 0;
  letter.word.reading = (flags & kReading) != 0;
  letter.word.me = std::move(texts[0]);
  letter.word.what = std::move(texts[1]);
  letter.message = std::move(texts[2]);
  letter.hint = std::move(texts[3]);
  return letter;
}

}  // namespace assay
