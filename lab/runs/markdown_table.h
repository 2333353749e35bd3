// A Markdown table that also reads well as text.
#pragma once

#include <string>
#include <vector>

namespace assay {

using MarkdownRows = std::vector<std::vector<std::string>>;

// The first row is the head; columns from text_columns on are numbers, aligned right.
std::string markdown_table(MarkdownRows rows, size_t text_columns);

}  // namespace assay
