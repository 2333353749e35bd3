#include "engine/run/log.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <mutex>

#include "base/check.h"
#include "base/file.h"
#include "base/standard_output.h"

namespace assay {

// Lines above, the bar below: a new line replaces the bar, which is drawn again under it.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit TerminalSink(bool terminal) : terminal_(terminal) {}

  void set_bar(const std::string& text) {
    if (!terminal_) return;
    const std::lock_guard lock(mutex_);
    clear_bar();
    bar_ = text;
    draw_bar();
    fflush(stderr);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    clear_bar();
    fwrite(line.data(), 1, line.size(), stderr);
    draw_bar();
    fflush(stderr);
  }
  void flush_() override { fflush(stderr); }

 private:
  void clear_bar() {
    if (!bar_.empty()) control_terminal(stderr, "\r\033[K");
  }
  void draw_bar() {
    if (!bar_.empty()) fputs(bar_.c_str(), stderr);
  }

  const bool terminal_;
  std::string bar_;
};

struct Log::Impl {
  explicit Impl(const std::string& file)
      : terminal(can_move_cursor(STDERR_FILENO)),
        sink(std::make_shared<TerminalSink>(terminal)),
        shown("terminal", sink),
        kept("file") {
    sink->set_pattern("%v");
    if (!file.empty()) {
      require_no_link(file);
      try {
        auto lines = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
        lines->set_pattern("%Y-%m-%d %H:%M:%S %v");
        kept.sinks().push_back(std::move(lines));
      } catch (const spdlog::spdlog_ex&) {
        throw UserError("cannot write " + file + ": " + strerror(errno),
                        "check the folder and its permissions");
      }
    }
    for (spdlog::logger* logger : {&shown, &kept}) {
      logger->flush_on(spdlog::level::info);
      // A full disk must not end a run because of its log.
      logger->set_error_handler([](const std::string&) {});
    }
  }

  const bool terminal;
  std::shared_ptr<TerminalSink> sink;
  spdlog::logger shown, kept;
};

Log::Log(const std::string& file, Shown shown) : impl_(std::make_unique<Impl>(file)) {
  if (shown == Shown::kFileOnly) impl_->shown.set_level(spdlog::level::off);
}

Log::~Log() {
  set_bar("");
}

void Log::info(const std::string& line) {
  info(line, line);
}

void Log::info(const std::string& line, const std::string& shown) {
  impl_->kept.info(spdlog::string_view_t(line));
  if (!shown.empty()) impl_->shown.info(spdlog::string_view_t(shown));
}

void Log::set_quiet(Quiet quiet) {
  using spdlog::level::level_enum;
  if (impl_->shown.level() == level_enum::off) return;
  impl_->shown.set_level(quiet == Quiet::kYes ? level_enum::warn : level_enum::info);
  if (quiet == Quiet::kYes) set_bar("");
}

void Log::warn(const std::string& line) {
  const std::string text = "warning: " + line;
  impl_->kept.warn(spdlog::string_view_t(text));
  impl_->shown.warn(spdlog::string_view_t(text));
}

void Log::set_bar(const std::string& text) {
  if (text.empty() || impl_->shown.level() == spdlog::level::info) impl_->sink->set_bar(text);
}

bool Log::on_terminal() const {
  return impl_->terminal;
}

int Log::terminal_columns() const {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace assay
