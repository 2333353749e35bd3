#include "data/pre_split.h"

#include <string.h>

#include <cstdint>

#include "base/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace assay {

namespace {

// PCRE2's \s is not the Unicode property White_Space, so the class is spelled out.
#define ASSAY_SPACE                                                                               \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{" \
  "205f}\\x{3000}"
constexpr char kPattern[] =
    "'(?:[stmd]|re|ve|ll)"
    "| ?\\p{L}+"
    "| ?\\p{N}+"
    "| ?[^" ASSAY_SPACE
    "\\p{L}\\p{N}]+"
    "|[" ASSAY_SPACE "]+(?![^" ASSAY_SPACE
    "])"
    "|[" ASSAY_SPACE "]+";
#undef ASSAY_SPACE

const pcre2_code* compiled() {
  static const pcre2_code* const code = [] {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), sizeof kPattern - 1,
                                     PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, nullptr);
    CHECK(made != nullptr, "the pre-split does not compile: PCRE2 error %d at %zu", error, offset);
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);  // if it fails, matching is only slower
    return made;
  }();
  return code;
}

// Length in bytes of the valid UTF-8 character at `s`, 0 if there is none. The first byte gives the
// length and bounds the second, which excludes overlong forms, surrogates and values above
// U+10FFFF.
size_t character(const unsigned char* s, size_t left) {
  const unsigned char a = s[0];
  if (a < 0x80) return 1;
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (a >= 0xC2 && a <= 0xDF) length = 2;
  if (a >= 0xE0 && a <= 0xEF) length = 3;
  if (a >= 0xF0 && a <= 0xF4) length = 4;
  if (a == 0xE0) low = 0xA0;
  if (a == 0xED) high = 0x9F;
  if (a == 0xF0) low = 0x90;
  if (a == 0xF4) high = 0x8F;
  if (length == 0 || length > left || s[1] < low || s[1] > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if ((s[i] & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    while (at + sizeof word <= text.size()) {
      memcpy(&word, bytes + at, sizeof word);
      if (word & 0x8080808080808080u) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const size_t length = character(bytes + at, text.size() - at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

std::string pre_split_tables() {
  const auto of = [](uint32_t what) {
    const int units = pcre2_config(what, nullptr);  // with the zero at the end
    CHECK(units > 0, "PCRE2 does not say its version: %d", units);
    std::string text(size_t(units), '\0');
    pcre2_config(what, text.data());
    text.resize(text.find('\0'));
    return text;
  };
  return "PCRE2 " + of(PCRE2_CONFIG_VERSION) + ", Unicode " + of(PCRE2_CONFIG_UNICODE_VERSION);
}

PreSplit::PreSplit() : match_(pcre2_match_data_create(1, nullptr)) {
  CHECK(match_ != nullptr, "PCRE2 gave no match data");
}

PreSplit::~PreSplit() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_));
}

void PreSplit::start(std::string_view text) {
  text_ = text;
  at_ = run_begin_ = run_end_ = 0;
}

bool PreSplit::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  if (at_ == run_end_) {
    run_begin_ = at_;
    run_end_ = at_ + valid_utf8_prefix(text_.substr(at_));
    if (run_end_ == run_begin_) {
      run_end_ = ++at_;
      piece = text_.substr(at_ - 1, 1);
      return true;
    }
  }
  auto* match = static_cast<pcre2_match_data*>(match_);
  const char* run = text_.data() + run_begin_;
  const int found =
      pcre2_match(compiled(), reinterpret_cast<PCRE2_SPTR>(run), run_end_ - run_begin_,
                  at_ - run_begin_, PCRE2_NO_UTF_CHECK, match, nullptr);
  CHECK(found >= 1, "the pre-split matches nothing at byte %zu: PCRE2 error %d", at_, found);
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
  const size_t end = run_begin_ + span[1];
  CHECK(run_begin_ + span[0] == at_ && end > at_, "the pre-split matches bytes %zu to %zu at %zu",
        run_begin_ + span[0], end, at_);
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

}  // namespace assay
