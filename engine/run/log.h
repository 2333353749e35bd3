// Lines for people: on stderr and in the run's log.txt, with a progress bar below them on a
// terminal.
//
// In a pipe there is no bar and every line is plain. log.txt gets the lines with their time,
// appended, so that it tells the whole history of a run that was resumed.
#pragma once

#include <memory>
#include <string>

namespace assay {

class Log {
 public:
  // file: "" = stderr only. The folder must exist.
  explicit Log(const std::string& file = "");
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();  // takes the bar away

  void info(const std::string& line);
  void warn(const std::string& line);  // "warning: ..."

  // The bar under all lines; "" takes it away. Nothing in a pipe, never in the file.
  void set_bar(const std::string& text);
  bool on_terminal() const;
  int terminal_columns() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
