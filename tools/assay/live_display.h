// Several lines that change in place below a log: on a terminal a block that is drawn again, in a
// pipe nothing.
#pragma once

#include <string>
#include <vector>

namespace assay {

class LiveLines {
 public:
  LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;
  ~LiveLines();  // takes the block away

  bool on_terminal() const { return terminal_; }
  void print(const std::string& line);               // above the block, on stderr
  void show(const std::vector<std::string>& lines);  // the block; cut to the width of the terminal

 private:
  void clear();
  void draw();

  const bool terminal_;
  std::vector<std::string> lines_;
};

}  // namespace assay
