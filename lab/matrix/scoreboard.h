// The scoreboard of published claims: what trained matrices say of the claims in models/presets/posts,
// as a page of markdown.
#pragma once

#include <string>
#include <vector>

namespace assay {

// folders: of trained matrices. files: matrices whose claims are listed as untested if no folder has
// a matrix of that name. Both are sorted into studies by their names: "0003-mini" belongs to 0003.
// UserError for a folder without a matrix.
std::string scoreboard_markdown(const std::vector<std::string>& folders,
                                const std::vector<std::string>& files);

}  // namespace assay
