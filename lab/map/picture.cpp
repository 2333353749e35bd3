#include "lab/map/picture.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/page/page.h"

namespace assay {
namespace {

// In units of the picture, which the page scales to its width.
constexpr double kWidth = 520, kLeft = 58, kRight = 14;
constexpr double kTop = 20, kValues = 190, kGap = 34, kDifferences = 110, kBottom = 40;
constexpr double kHeight = kTop + kValues + kGap + kDifferences + kBottom;

struct Range {
  double low = 0, high = 0;
  bool empty = true;
  void add(double value) {
    low = empty ? value : std::min(low, value);
    high = empty ? value : std::max(high, value);
    empty = false;
  }
  void pad(double share) {
    const double more = high > low ? share * (high - low) : std::max(0.05 * std::abs(high), 0.01);
    low -= more;
    high += more;
  }
};

// Even steps of 1, 2 or 5 times a power of ten, at most `most` of them.
std::vector<double> even_ticks(const Range& range, int most) {
  const double raw = (range.high - range.low) / most;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double times : {5.0, 2.0, 1.0}) {
    if (times * power >= raw) step = times * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(range.low / step); i * step <= range.high; ++i)
    ticks.push_back(i * step);
  return ticks;
}

// Of a logarithmic axis: 1, 2 and 5 times powers of ten, or even steps where these are under 3.
std::vector<double> cost_ticks(const Range& log_cost) {
  std::vector<double> ticks;
  for (double power = std::floor(log_cost.low); power <= log_cost.high; ++power) {
    for (const double times : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(times);
      if (log_cost.low <= at && at <= log_cost.high) ticks.push_back(std::pow(10, at));
    }
  }
  if (ticks.size() >= 3) return ticks;
  return even_ticks({std::pow(10, log_cost.low), std::pow(10, log_cost.high), false}, 5);
}

// "20k", "1.5M", "2e+12".
std::string tick_text(double value) {
  if (value >= 1e12)
    return strprintf("%.3ge%d", value / std::pow(10, std::floor(std::log10(value))),
                     int(std::floor(std::log10(value))));
  for (const auto& [size, unit] : {std::pair(1e9, "B"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (value >= size) return strprintf("%.4g%s", value / size, unit);
  }
  return strprintf("%.4g", value);
}

class Picture {
 public:
  Picture(const ContractMap& map, const MapAxis& axis) : map_(map), axis_(axis) { find_ranges(); }

  std::string svg() {
    const std::string title = std::string(words_of(axis_.axis).title);
    out_ = strprintf("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s against %s\">\n",
                     kWidth, kHeight, measure_title(map_.measure).c_str(), title.c_str());
    draw_frames();
    draw_crossings();
    for (size_t m = 0; m < map_.set.models.size(); ++m) draw_model(m);
    for (const MapPair& pair : axis_.pairs) {
      if (pair.first == 0) draw_differences(pair);
    }
    return out_ + "</svg>\n";
  }

 private:
  void find_ranges() {
    for (const MapModel& model : map_.set.models) {
      for (const Endpoint& e : model.endpoints) {
        const auto& cost = e.of(axis_.axis).value;
        if (!cost) continue;
        cost_.add(std::log10(*cost));
        value_.add(e.value);
      }
    }
    difference_.add(0);
    for (const MapPair& pair : axis_.pairs) {
      if (pair.first != 0) continue;
      for (const BudgetRow& row : pair.on.budgets) {
        const Summary& d = row.difference.summary;
        difference_.add(d.mean);
        if (!d.interval95) continue;
        difference_.add(d.interval95->low);
        difference_.add(d.interval95->high);
      }
    }
    cost_.pad(0.04);
    value_.pad(0.06);
    difference_.pad(0.1);
  }

  double x(double cost) const {
    const double share = (std::log10(cost) - cost_.low) / (cost_.high - cost_.low);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kTop + kValues * (value_.high - value) / (value_.high - value_.low);
  }
  double y_difference(double value) const {
    return kTop + kValues + kGap +
           kDifferences * (difference_.high - value) / (difference_.high - difference_.low);
  }

  void line(const char* what, double x0, double y0, double x1, double y1) {
    out_ += strprintf("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                      what, x0, y0, x1, y1);
  }
  void text(const char* what, double at_x, double at_y, const char* anchor,
            const std::string& words) {
    out_ += strprintf("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", what, at_x,
                      at_y, anchor) +
            escaped_html(words) + "</text>\n";
  }
  // `tip` shows under the mouse.
  void dot(const std::string& what, double at_x, double at_y, double radius,
           const std::string& tip) {
    out_ += strprintf("<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>", what.c_str(),
                      at_x, at_y, radius) +
            escaped_html(tip) + "</title></circle>\n";
  }

  void draw_frames() {
    const double right = kWidth - kRight, middle = kTop + kValues + kGap;
    const double bottom = middle + kDifferences;
    for (const double cost : cost_ticks(cost_)) {
      line("grid", x(cost), kTop, x(cost), kTop + kValues);
      line("grid", x(cost), middle, x(cost), bottom);
      text("tick", x(cost), bottom + 16, "middle", tick_text(cost));
    }
    for (const double value : even_ticks(value_, 5)) {
      line("grid", kLeft, y(value), right, y(value));
      text("tick", kLeft - 6, y(value) + 4, "end", strprintf("%.4g", value));
    }
    for (const double value : even_ticks(difference_, 4)) {
      line("grid", kLeft, y_difference(value), right, y_difference(value));
      text("tick", kLeft - 6, y_difference(value) + 4, "end",
           std::abs(value) < 1e-12 ? "0" : strprintf("%+.3g", value));
    }
    line("zero", kLeft, y_difference(0), right, y_difference(0));
    text("name", kLeft - 40, kTop - 7, "start", measure_title(map_.measure));
    text("name", kLeft - 40, middle - 9, "start", "minus " + map_.set.models.front().name);
    text("name", (kLeft + right) / 2, kHeight - 5, "middle", words_of(axis_.axis).title);
  }

  // Of pairs with the first model: a line, and a band for the interval as far as it is in view.
  void draw_crossings() {
    for (const MapPair& pair : axis_.pairs) {
      if (pair.first != 0 || !pair.on.crossing) continue;
      const double bottom = kTop + kValues + kGap + kDifferences;
      const double from = kLeft, to = kWidth - kRight;
      if (pair.on.crossing95) {
        const double low = std::clamp(x(pair.on.crossing95->low), from, to);
        const double high = std::clamp(x(pair.on.crossing95->high), from, to);
        out_ += strprintf(
            "<rect class=\"band m%zu\" x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%g\"/>\n",
            pair.second, low, kTop, high - low, bottom - kTop);
      }
      const double at = x(*pair.on.crossing);
      line(strprintf("turn m%zu", pair.second).c_str(), at, kTop, at, bottom);
    }
  }

  void draw_model(size_t index) {
    const MapModel& model = map_.set.models[index];
    const std::string colour = strprintf("m%zu", index);
    for (const int64_t seed : model.seeds()) {
      std::string points;
      std::vector<const Endpoint*> drawn;
      for (const Endpoint& e : model.endpoints) {
        const auto& cost = e.of(axis_.axis).value;
        if (e.seed != seed || !cost) continue;
        points += strprintf("%.1f,%.1f ", x(*cost), y(e.value));
        drawn.push_back(&e);
      }
      if (drawn.size() > 1) {
        out_ += "<polyline class=\"curve " + colour + "\" points=\"" + points + "\"/>\n";
      }
      for (const Endpoint* e : drawn) {
        const double cost = *e->of(axis_.axis).value;
        dot("point " + colour, x(cost), y(e->value), 3,
            strprintf("%s, seed %ld, %ld steps: %.4f at %s", model.name.c_str(), long(seed),
                      long(e->steps), e->value, cost_text(cost).c_str()));
      }
    }
  }

  void draw_differences(const MapPair& pair) {
    const std::string colour = strprintf("m%zu", pair.second);
    const std::string& name = map_.set.models[pair.second].name;
    std::string points;
    for (const BudgetRow& row : pair.on.budgets) {
      points += strprintf("%.1f,%.1f ", x(row.cost), y_difference(row.difference.summary.mean));
    }
    if (pair.on.budgets.size() > 1) {
      out_ += "<polyline class=\"curve " + colour + "\" points=\"" + points + "\"/>\n";
    }
    for (const BudgetRow& row : pair.on.budgets) {
      const Summary& d = row.difference.summary;
      std::string tip = name + strprintf(": %+.4f at ", d.mean) + cost_text(row.cost);
      if (d.interval95) {
        line(("bar " + colour).c_str(), x(row.cost), y_difference(d.interval95->low), x(row.cost),
             y_difference(d.interval95->high));
        tip += strprintf(" [%+.4f, %+.4f]", d.interval95->low, d.interval95->high);
      } else {
        tip += std::string(", ") + (d.no_spread() ? kNoSpread : "one seed");
      }
      const bool interpolated = row.first_interpolated || row.second_interpolated;
      dot((interpolated ? "ring " : "point ") + colour, x(row.cost), y_difference(d.mean), 4, tip);
    }
  }

  const ContractMap& map_;
  const MapAxis& axis_;
  Range cost_, value_, difference_;  // cost_ in powers of ten
  std::string out_;
};

}  // namespace

std::string axis_picture(const ContractMap& map, const MapAxis& axis) {
  CHECK(axis.absent.empty(), "axis %s has no pairs", words_of(axis.axis).name);
  return Picture(map, axis).svg();
}

}  // namespace assay
