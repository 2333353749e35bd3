#include "lab/live/styled_text.h"

#include <utility>

namespace assay {
namespace {

// Colours that are legible on black and on white.
const char* code_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kGood:
      return "\033[32m";
    case Style::kBad:
      return "\033[1;31m";
    case Style::kWarn:
      return "\033[33m";
    case Style::kRun1:
      return "\033[36m";
    case Style::kRun2:
      return "\033[33m";
    case Style::kRun3:
      return "\033[35m";
    case Style::kRun4:
      return "\033[32m";
    case Style::kRun5:
      return "\033[34m";
    case Style::kRun6:
      return "\033[31m";
  }
  return "";
}

// Bytes of the UTF-8 character that begins at `at`; 0 if there is none.
size_t character_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t bytes = first < 0x80              ? 1
                       : (first >> 5) == 0b110   ? 2
                       : (first >> 4) == 0b1110  ? 3
                       : (first >> 3) == 0b11110 ? 4
                                                 : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) >> 6) != 0b10) return 0;
  }
  return bytes;
}

// C0 and DEL, and C1, whose first byte in UTF-8 is 0xC2.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

Style run_style(size_t index) {
  return static_cast<Style>(static_cast<size_t>(Style::kRun1) + index % size_t{kRunStyles});
}

StyledLine& StyledLine::add(std::string_view text, Style style) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text, at);
    const std::string_view character = text.substr(at, bytes);
    const bool shown = bytes > 0 && !is_control(character);
    glyphs_.push_back({.text = shown ? std::string(character) : "?", .style = style});
    at += bytes > 0 ? bytes : 1;
  }
  return *this;
}

StyledLine& StyledLine::add(Glyph glyph) {
  glyphs_.push_back(std::move(glyph));
  return *this;
}

StyledLine& StyledLine::pad_to(size_t columns) {
  while (glyphs_.size() < columns) glyphs_.emplace_back();
  return *this;
}

void StyledLine::cut(size_t columns) {
  if (glyphs_.size() <= columns) return;
  glyphs_.resize(columns);
  if (columns > 0) glyphs_.back().text = ">";
}

std::string StyledLine::text(Escapes escapes) const {
  size_t end = glyphs_.size();
  while (end > 0 && glyphs_[end - 1].text == " ") --end;
  std::string text;
  Style now = Style::kPlain;
  for (size_t i = 0; i < end; ++i) {
    if (escapes == Escapes::kStyles && glyphs_[i].style != now) {
      if (now != Style::kPlain) text += "\033[0m";
      now = glyphs_[i].style;
      text += code_of(now);
    }
    text += glyphs_[i].text;
  }
  if (now != Style::kPlain) text += "\033[0m";
  return text;
}

}  // namespace assay
