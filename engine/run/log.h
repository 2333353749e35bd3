// Log lines for people, on stderr and in the run's log.txt, with a progress bar below them on a
// terminal.
//
// If stderr is not a terminal, or one without escape sequences, there is no bar. Lines are appended
// to log.txt with their time, so that it has the whole history of a resumed run.
#pragma once

#include <memory>
#include <string>

namespace assay {

class Log {
 public:
  // file: "" = stderr only. The folder must exist. kFileOnly: nothing is shown on stderr.
  enum class Shown { kStderr, kFileOnly };
  explicit Log(const std::string& file = "", Shown shown = Shown::kStderr);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();  // removes the bar

  void info(const std::string& line);
  void warn(const std::string& line);  // "warning: ..."
  // `line` for the file, `shown` for stderr; "" = nothing is shown.
  void info(const std::string& line, const std::string& shown);

  // Quiet: stderr gets only warnings and what is said after set_quiet(kNo), the file everything.
  enum class Quiet { kNo, kYes };
  void set_quiet(Quiet quiet);

  // Shows the bar under all lines; "" removes it. On a terminal only, never in the file.
  void set_bar(const std::string& text);
  bool on_terminal() const;
  int terminal_columns() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
