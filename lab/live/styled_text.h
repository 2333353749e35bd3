// Lines of a terminal: one glyph per column, each with a style. They are cut by columns, not bytes,
// and written with or without escape codes. Control characters of a text (the name of a run may
// have any) never reach the terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

enum class Style {
  kPlain,
  kBold,
  kDim,
  kGood,
  kBad,
  kWarn,
  kRun1,
  kRun2,
  kRun3,
  kRun4,
  kRun5,
  kRun6
};
inline constexpr int kRunStyles = 6;
Style run_style(size_t index);  // the colour of a run; they repeat

struct Glyph {
  std::string text = " ";  // one character in UTF-8
  Style style = Style::kPlain;
};

class StyledLine {
 public:
  StyledLine() = default;
  StyledLine(std::string_view text, Style style = Style::kPlain) { add(text, style); }

  StyledLine& add(std::string_view text, Style style = Style::kPlain);
  StyledLine& add(Glyph glyph);
  StyledLine& pad_to(size_t columns);  // with spaces
  void cut(size_t columns);            // ">" in the last column says that text is lost
  size_t columns() const { return glyphs_.size(); }

  enum class Escapes { kNone, kStyles };
  std::string text(Escapes escapes) const;

 private:
  std::vector<Glyph> glyphs_;
};

}  // namespace assay
