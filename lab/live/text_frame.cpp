#include "lab/live/text_frame.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "engine/run/progress.h"
#include "engine/telemetry/router_stats.h"
#include "lab/live/run_names.h"
#include "models/audit/model_table.h"

namespace assay {
namespace {

constexpr int kLeastChartRows = 6;
constexpr double kCrowded = 0.5;  // K * max_load from which a bar is marked

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Style verdict_style(const std::string& state) {
  if (state == "healthy" || state == "recovered") return Style::kGood;
  if (state == "collapsed") return Style::kBad;
  return state == "uneven" || state == "restless" ? Style::kWarn : Style::kDim;
}

Style state_style(const RunStatus& s) {
  switch (s.state) {
    case RunState::kStarting:
    case RunState::kTraining:
      return Style::kGood;
    case RunState::kEnded:
      return s.end == "non_finite" || s.end == "collapse_stop" ? Style::kBad : Style::kBold;
    case RunState::kBrokenOff:
    case RunState::kMissing:
      return Style::kWarn;
    case RunState::kExport:
      return Style::kPlain;
    case RunState::kUnreadable:
      return Style::kBad;
  }
  return Style::kPlain;
}

std::string short_state(const RunView& run) {
  const RunStatus& s = run.status;
  switch (s.state) {
    case RunState::kMissing:
      return run.seen == Seen::kBefore ? "gone" : "not started";
    case RunState::kBrokenOff:
      return "not running";
    case RunState::kEnded:
      return s.end == "steps" || s.end == "target_loss" ? "finished" : "stopped";
    default:
      return run_state_name(s.state);
  }
}

std::string letter_of(size_t run) {
  return std::string(1, char('a' + run % 26));
}

// The end of a path says more than its beginning.
std::string path_end(const std::string& path, int columns) {
  if (int(path.size()) <= columns) return path;
  return "<" + path.substr(path.size() - size_t(columns) + 1);
}

// A bar of `columns` characters.
void add_bar(double share, int columns, Glyphs glyphs, Style style, StyledLine& line) {
  const int filled = std::clamp(int(std::lround(share * columns)), 0, columns);
  for (int i = 0; i < columns; ++i) {
    const bool full = i < filled;
    if (glyphs == Glyphs::kUtf8) {
      line.add(full ? "█" : "░", full ? style : Style::kDim);
    } else {
      line.add(full ? "#" : ".", full ? style : Style::kDim);
    }
  }
}

StyledLine numbers_line(const RunView& run) {
  StyledLine line;
  const auto add = [&](const char* name, const std::string& value) {
    if (line.columns() > 0) line.add("  ");
    line.add(name, Style::kDim).add(" ").add(value, Style::kBold);
  };
  if (!run.train_loss_nats.empty()) {
    const StepValue& loss = run.train_loss_nats.back();
    add("loss", strprintf("%.4f", loss.value));
    // A run may stop between two logged steps.
    if (loss.step < run.status.step) line.add(" at " + grouped(loss.step), Style::kDim);
  }
  if (!run.val_loss_nats.empty()) {
    const EvalValue& val = run.val_loss_nats.back();
    add("val", strprintf("%.4f", val.value));
    line.add(" at " + grouped(val.step), Style::kDim);
  }
  if (run.lr) add("lr", strprintf("%.1e", *run.lr));
  if (run.gradient_norm) add("norm", strprintf("%.2f", unsigned_nan(*run.gradient_norm)));
  if (run.tokens_per_s) add("tok/s", count_text(*run.tokens_per_s));
  if (run.mfu_share) add("mfu", strprintf("%.0f%%", 100 * *run.mfu_share));
  return line;
}

std::vector<StyledLine> one_run_head(const RunView& run, FrameSize size, Glyphs glyphs) {
  std::vector<StyledLine> lines;
  const std::string status = status_text(run.status, run.seen);
  const int room = std::max(16, size.columns - int(status.size()) - 2);
  StyledLine head(path_end(run.status.path, room), Style::kBold);
  head.add(": ").add(status, state_style(run.status));
  lines.push_back(std::move(head));
  if (run.status.step == 0) return lines;
  StyledLine bar;
  add_bar(double(run.status.step) / double(std::max<int64_t>(1, run.status.steps)), size.columns,
          glyphs, Style::kRun1, bar);
  lines.push_back(std::move(bar));
  lines.push_back(numbers_line(run));
  lines.emplace_back();
  return lines;
}

StyledLine layer_line(const RouterView& router, const LayerHealth& layer, Glyphs glyphs,
                      int columns) {
  StyledLine line(
      strprintf("layer %3ld  K*max_load %5.3f ", long(layer.layer), layer.max_load_norm));
  const std::string experts = grouped(router.experts);
  const std::string entropy =
      layer.entropy_norm ? strprintf("  H/ln E %.3f", *layer.entropy_norm) : "";
  // The bars of all layers end in one column, so the count of dead experts has all digits' room.
  const size_t others =
      line.columns() + strlen("  dead  of ") + 2 * experts.size() + entropy.size();
  const double limit = saturation_limit(router.experts, router.top_k);
  const Style style = layer.max_load_norm >= limit      ? Style::kBad
                      : layer.max_load_norm >= kCrowded ? Style::kWarn
                                                        : Style::kGood;
  add_bar(layer.max_load_norm, std::clamp(columns - int(others), 6, 40), glyphs, style, line);
  const double dead = std::round((1 - layer.active_norm) * double(router.experts));
  line.add("  dead ").add(grouped(int64_t(dead)), dead > 0 ? Style::kWarn : Style::kPlain);
  line.add(" of " + experts).add(entropy);
  return line;
}

std::vector<StyledLine> one_run_routers(const RunView& run, FrameSize size, int rows,
                                        Glyphs glyphs) {
  std::vector<StyledLine> lines;
  if (!run.router) return lines;
  const RouterView& router = *run.router;
  StyledLine verdict("router: ");
  verdict.add(words(router.verdict), verdict_style(router.verdict));
  const std::string steps =
      router.last == 1 ? "logged step" : grouped(router.last) + " logged steps";
  verdict.add(" (last " + steps + "; `assay router RUN` explains)", Style::kDim);
  lines.push_back(std::move(verdict));
  // If there are more layers than rows, those with the largest loads.
  std::vector<LayerHealth> layers = router.layers;
  const auto room = size_t(std::max(1, rows - 1));
  const bool cut = layers.size() > room;
  if (cut) {
    std::stable_sort(layers.begin(), layers.end(), [](const LayerHealth& a, const LayerHealth& b) {
      return a.max_load_norm > b.max_load_norm;
    });
    layers.resize(std::max<size_t>(1, room - 1));
  }
  for (const LayerHealth& layer : layers) {
    lines.push_back(layer_line(router, layer, glyphs, size.columns));
  }
  if (cut) {
    lines.emplace_back(
        strprintf("and %zu layers with smaller loads", router.layers.size() - layers.size()),
        Style::kDim);
  }
  return lines;
}

struct Column {
  const char* head;
  int width;  // negative: aligned left
};
constexpr Column kColumns[] = {{"state", -11}, {"step", 7},  {"", 4},     {"loss", 6},
                               {"val", 6},     {"tok/s", 5}, {"left", 6}, {"router", -9}};

// Five digits: "3.4121", "12.345".
std::string loss_text(double loss) {
  return strprintf("%.*f", std::abs(loss) < 10 ? 4 : 3, loss);
}

std::vector<std::string> cells_of(const RunView& run) {
  const RunStatus& s = run.status;
  const double share = double(s.step) / double(std::max<int64_t>(1, s.steps));
  return {short_state(run),
          s.step > 0 ? grouped(s.step) : "-",
          s.step > 0 ? strprintf("%.0f%%", 100 * share) : "",
          run.train_loss_nats.empty() ? "-" : loss_text(run.train_loss_nats.back().value),
          run.val_loss_nats.empty() ? "-" : loss_text(run.val_loss_nats.back().value),
          run.tokens_per_s ? count_text(*run.tokens_per_s) : "-",
          s.state == RunState::kTraining && s.seconds_left ? duration_text(*s.seconds_left) : "-",
          run.router ? words(run.router->verdict) : "-"};
}

void add_cell(const std::string& text, int width, Style style, StyledLine& line) {
  const int room = std::abs(width), blank = std::max(0, room - int(text.size()));
  line.add(" ");
  if (width > 0) line.add(std::string(size_t(blank), ' '));
  line.add(text, style);
  if (width < 0) line.add(std::string(size_t(blank), ' '));
}

bool is_training(const RunView& run) {
  return run.status.state == RunState::kTraining || run.status.state == RunState::kStarting;
}

// The wanted runs that `rows` lines show, in their order: where not all fit, those that are
// training, and then the first of the others.
std::vector<size_t> shown_runs(const std::vector<RunView>& runs, size_t rows,
                               bool (*wanted)(const RunView&)) {
  std::vector<size_t> shown;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (wanted(runs[i])) shown.push_back(i);
  }
  if (shown.size() <= rows) return shown;
  std::stable_partition(shown.begin(), shown.end(), [&](size_t i) { return is_training(runs[i]); });
  shown.resize(rows);
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::vector<StyledLine> run_table(const std::vector<RunView>& runs, FrameSize size, int rows) {
  int others = 3;  // letter and blanks
  for (const Column& column : kColumns) others += std::abs(column.width) + 1;
  int longest = 3;
  std::vector<std::string> paths;
  for (const RunView& run : runs) {
    longest = std::max(longest, int(run.status.path.size()));
    paths.push_back(run.status.path);
  }
  const int name = std::clamp(longest, 3, std::max(8, size.columns - others));
  const std::vector<std::string> names = short_run_names(paths, name);
  StyledLine head("  ");
  add_cell("run", -name, Style::kDim, head);
  for (const Column& column : kColumns) add_cell(column.head, column.width, Style::kDim, head);
  std::vector<StyledLine> lines = {head};
  const bool cut = int(runs.size()) > rows - 1;
  const std::vector<size_t> shown = shown_runs(
      runs, cut ? size_t(std::max(1, rows - 2)) : runs.size(), [](const RunView&) { return true; });
  for (const size_t i : shown) {
    StyledLine line(letter_of(i), run_style(i));
    line.add(" ");
    add_cell(names[i], -name, Style::kPlain, line);
    const std::vector<std::string> cells = cells_of(runs[i]);
    for (size_t c = 0; c < cells.size(); ++c) {
      const Style style = c == 0 ? state_style(runs[i].status)
                          : c + 1 == cells.size() && runs[i].router
                              ? verdict_style(runs[i].router->verdict)
                              : Style::kPlain;
      add_cell(cells[c], kColumns[c].width, style, line);
    }
    lines.push_back(std::move(line));
  }
  if (cut)
    lines.emplace_back(strprintf("and %zu more runs", runs.size() - shown.size()), Style::kDim);
  return lines;
}

// One line per run with experts: K * max_load of each layer.
std::vector<StyledLine> router_lines(const std::vector<RunView>& runs, int rows) {
  std::vector<StyledLine> lines;
  for (const size_t i :
       shown_runs(runs, size_t(rows - 1), [](const RunView& r) { return r.router.has_value(); })) {
    if (lines.empty())
      lines.emplace_back("K*max_load by layer, dead experts in brackets:", Style::kDim);
    StyledLine line(letter_of(i), run_style(i));
    line.add(" ");
    const double limit = saturation_limit(runs[i].router->experts, runs[i].router->top_k);
    for (const LayerHealth& l : runs[i].router->layers) {
      const auto dead = std::llround((1 - l.active_norm) * double(runs[i].router->experts));
      line.add(strprintf(" %.2f", l.max_load_norm),
               l.max_load_norm >= limit ? Style::kBad : Style::kPlain);
      if (dead > 0) line.add(strprintf("(%lld)", dead), Style::kWarn);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<StyledLine> problem_lines(const std::vector<RunView>& runs) {
  std::vector<StyledLine> lines;
  for (const RunView& run : runs) {
    if (run.status.state != RunState::kUnreadable) continue;
    lines.emplace_back(run.status.path + ": " + status_text(run.status, run.seen), Style::kBad);
  }
  return lines;
}

std::vector<StyledLine> chart_lines(const std::vector<RunView>& runs, FrameSize size, int rows,
                                    Glyphs glyphs, Colours colours) {
  std::vector<ChartCurve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    curves.push_back({.points = runs[i].train_loss_nats,
                      .style = run_style(i),
                      .letter = runs.size() == 1 ? "*" : letter_of(i)});
  }
  // Without colours only letters tell several curves apart.
  const bool braille = glyphs == Glyphs::kUtf8 && (runs.size() == 1 || colours == Colours::kYes);
  std::vector<StyledLine> lines = {StyledLine("training loss, nats", Style::kDim)};
  for (StyledLine& line : text_chart(curves, {.columns = size.columns, .rows = rows - 1},
                                     braille ? ChartDots::kBraille : ChartDots::kLetters)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

void append(std::vector<StyledLine>& to, std::vector<StyledLine> lines) {
  for (StyledLine& line : lines) to.push_back(std::move(line));
}

}  // namespace

std::vector<StyledLine> text_frame(const std::vector<RunView>& runs, FrameSize size, Glyphs glyphs,
                                   Colours colours) {
  std::vector<StyledLine> above, below;
  if (runs.size() == 1) {
    above = one_run_head(runs.front(), size, glyphs);
    below =
        one_run_routers(runs.front(), size,
                        std::max(3, size.rows - int(above.size()) - kLeastChartRows - 4), glyphs);
  } else {
    above = run_table(runs, size, std::max(3, size.rows / 2));
    append(above, problem_lines(runs));
    above.emplace_back();
    below = router_lines(runs, std::max(2, size.rows / 4));
  }
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunView& r) { return !r.train_loss_nats.empty(); });
  const int room = size.rows - int(above.size()) - int(below.size());
  std::vector<StyledLine> lines = std::move(above);
  if (any && room >= kLeastChartRows) append(lines, chart_lines(runs, size, room, glyphs, colours));
  append(lines, std::move(below));
  if (int(lines.size()) > size.rows) lines.resize(size_t(size.rows));
  for (StyledLine& line : lines) line.cut(size_t(size.columns));
  return lines;
}

}  // namespace assay
