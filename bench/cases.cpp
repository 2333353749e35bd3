#include "bench/cases.h"

#include <algorithm>

#include "base/median.h"
#include "base/suggest.h"
#include "bench/json.h"

namespace assay {
namespace {

// Families of ops.
constexpr const char* kProducts[] = {"attention",      "grouped_linear", "grouped_scaled",
                                     "grouped_swiglu", "head_loss",      "linear",
                                     "newton_schulz",  "scaled_linear",  "varlen_attention"};

// Every name that --op knows: ops, and families of them.
std::vector<std::string> known_ops() {
  std::vector<std::string> known;
  const auto add = [&](const std::string& name) {
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  };
  for (const OpCase& c : all_op_cases()) {
    add(c.op);
    const size_t end = c.op.rfind('_');
    if (end != std::string::npos) add(c.op.substr(0, end));
  }
  return known;
}

// "did you mean --op rmsnorm? " for the first name that is none; "" if all are known, or none is
// near.
std::string suggestion(const std::vector<std::string>& ops) {
  const std::vector<std::string> known = known_ops();
  for (const std::string& op : ops) {
    if (std::find(known.begin(), known.end(), op) != known.end()) continue;
    const std::string near = nearest_name(op, known);
    if (!near.empty()) return "did you mean --op " + near + "? ";
  }
  return "";
}

}  // namespace

bool multiplies(const OpCase& c) {
  return std::any_of(std::begin(kProducts), std::end(kProducts),
                     [&](const char* op) { return selected(c, op, ""); });
}

Share share_of(const Cost& cost, double copy_bytes_per_s, double product_flop_per_s,
               double p50_us) {
  const double copy_us = 1e6 * cost.bytes / copy_bytes_per_s;
  const double matmul_us = product_flop_per_s > 0 ? 1e6 * cost.flops / product_flop_per_s : 0;
  return {std::max(copy_us, matmul_us) / p50_us, matmul_us > copy_us ? "matmul" : "copy"};
}

CaseTiming timing_of(const std::vector<double>& us) {
  return {.p50_us = median(us),
          .min_us = *std::min_element(us.begin(), us.end()),
          .runs = int64_t(us.size())};
}

std::string json_fields(const OpCase& c, const Cost& cost, const CaseTiming& t,
                        const Share& share) {
  return "\"op\": " + json_string(c.op) + ", \"case\": " + json_string(c.name) +
         strprintf(
             ", \"p50_us\": %.3f, \"min_us\": %.3f, \"runs\": %ld, \"bytes\": %.0f, "
             "\"flops\": %.0f, \"bound\": \"%s\", \"share\": %.4f",
             t.p50_us, t.min_us, long(t.runs), cost.bytes, cost.flops, share.bound, share.share);
}

bool is_correct(const OpInstance& instance) {
  Report report;
  instance.check(report);
  return std::all_of(report.comparisons().begin(), report.comparisons().end(),
                     [](const Report::Comparison& c) { return c.outside == 0; });
}

void require_known_ops(const std::vector<std::string>& ops) {
  const std::vector<OpCase> cases = all_op_cases();
  for (const std::string& op : ops) {
    if (std::any_of(cases.begin(), cases.end(),
                    [&](const OpCase& c) { return selected(c, op, ""); }))
      continue;
    throw UserError("there is no op " + op, suggestion({op}) + "ops/ops.cmake lists the ops");
  }
}

UserError no_case(const std::string& kind, const std::vector<std::string>& ops,
                  const std::string& filter, const std::string& todo) {
  std::string chosen;
  for (const std::string& op : ops) chosen += (chosen.empty() ? " --op " : " ") + op;
  if (!filter.empty()) chosen += " --filter " + filter;
  return UserError("no " + kind + " matches" + chosen, suggestion(ops) + todo);
}

}  // namespace assay
