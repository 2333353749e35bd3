// Several lines below a log that change in place: a block redrawn on a terminal, nothing in a pipe.
#pragma once

#include <string>
#include <vector>

namespace assay {

class LiveLines {
 public:
  LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;
  ~LiveLines();  // removes the block

  bool on_terminal() const { return terminal_; }
  void print(const std::string& line);               // a log line above the block, on stderr
  void show(const std::vector<std::string>& lines);  // sets the block, cut to the terminal's width

 private:
  void clear();
  void draw();

  const bool terminal_;
  std::vector<std::string> lines_;
};

}  // namespace assay
