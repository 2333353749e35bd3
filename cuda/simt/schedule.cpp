#include <charconv>
#include <cstdlib>

#include "base/check.h"
#include "cuda/simt/run_grid.h"

namespace assay::simt {
namespace {

Schedule& current() {
  static Schedule schedule = [] {
    const char* text = std::getenv("SIMT_ORDER");
    return text ? parse_schedule(text) : Schedule{};
  }();
  return schedule;
}

}  // namespace

void set_schedule(Schedule schedule) {
  current() = schedule;
}

Schedule schedule() {
  return current();
}

Schedule parse_schedule(const std::string& text) {
  if (text == "fwd") return {.order = Order::kForward};
  if (text == "rev") return {.order = Order::kReverse};
  if (text.starts_with("rnd:")) {
    Schedule s{.order = Order::kRandom};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 4, end, s.seed);
    if (error == std::errc{} && stop == end) return s;
  }
  throw UserError("unknown schedule '" + text + "'", "use fwd, rev or rnd:SEED");
}

std::string to_string(Schedule schedule) {
  if (schedule.order == Order::kForward) return "fwd";
  if (schedule.order == Order::kReverse) return "rev";
  return "rnd:" + std::to_string(schedule.seed);
}

}  // namespace assay::simt
