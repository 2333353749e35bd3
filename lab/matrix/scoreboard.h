// The scoreboard of published claims: what trained matrices say of the claims of the studies, as a
// page of markdown.
//
// Matrices are sorted into studies by their names: "0003" and "0003-mini" belong to 0003.
#pragma once

#include <string>
#include <vector>

namespace assay {

struct ScoreboardSource {
  std::vector<std::string> folders;  // of trained matrices
  std::vector<std::string> files;    // matrices whose claims are untested if no folder is theirs
  std::string evidence;  // folder with NAME.tar.zst of each trained matrix; "" = link the folders
  std::string page;      // where the page will be, from which links start; "" = here
};

// UserError for a folder that is no matrix, two folders of one name, and a NAME.tar.zst that is
// missing.
std::string scoreboard_markdown(const ScoreboardSource& source);

}  // namespace assay
