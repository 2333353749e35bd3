#include "eval/csv.h"

#include "base/check.h"
#include "data/utf8.h"

namespace assay {

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name) {
  text = without_mark(text);
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record;
  std::string field;
  enum { kBare, kQuoted } state = kBare;
  long line = 1, quote_line = 0;
  const auto end_field = [&] { record.push_back(std::move(field)), field.clear(); };
  const auto end_record = [&] {
    end_field();
    if (record.size() > 1 || !record[0].empty()) records.push_back(std::move(record));
    record.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (state == kQuoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        state = kBare;
      }
    } else if (c == '"') {
      state = kQuoted;
      quote_line = line;
    } else if (c == ',') {
      end_field();
    } else if (c == '\n') {
      end_record();
    } else if (c != '\r') {
      field += c;
    }
  }
  if (state == kQuoted) {
    throw UserError(strprintf("%s:%ld: this quote is never closed", name.c_str(), quote_line),
                    "the file is cut off or damaged: fetch it again");
  }
  end_record();
  return records;
}

}  // namespace assay
