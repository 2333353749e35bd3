#include "lab/dissect/overlap.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {

namespace {

double log_choose(double of, double k) {
  return std::lgamma(of + 1) - std::lgamma(k + 1) - std::lgamma(of - k + 1);
}

// How far X is from its mean on average, where X counts the marked ones among `drawn` of `all`. The
// sum of |x - mean| P(x) telescopes to the term at the first x above the mean.
double mean_deviation(double all, double marked, double drawn) {
  const double above = std::floor(drawn * marked / all) + 1, rest = all - marked;
  if (above > std::min(drawn, marked) || drawn - above > rest) return 0;
  return 2 * above * (rest - drawn + above) / all *
         std::exp(log_choose(marked, above) + log_choose(rest, drawn - above) -
                  log_choose(all, drawn));
}

}  // namespace

LoadOverlap load_overlap(std::span<const int64_t> a, std::span<const int64_t> b, int64_t top_k) {
  CHECK(a.size() == b.size() && top_k >= 1, "top %ld, loads of %zu and %zu experts", long(top_k),
        a.size(), b.size());
  const auto all_a = double(std::accumulate(a.begin(), a.end(), int64_t{0}));
  const auto all_b = double(std::accumulate(b.begin(), b.end(), int64_t{0}));
  if (all_a == 0 || all_b == 0) return {};
  const auto tokens_of = [&](double assignments) {
    return std::max(1.0, std::round(assignments / double(top_k)));
  };
  const double tokens = tokens_of(all_a) + tokens_of(all_b);
  double distance = 0, deviation = 0;
  for (size_t e = 0; e < a.size(); ++e) {
    distance += std::fabs(double(a[e]) / all_a - double(b[e]) / all_b);
    const double with_it = std::min(tokens, double(a[e] + b[e]));
    deviation += mean_deviation(tokens, with_it, tokens_of(all_a));
  }
  const double expected = (1 / all_a + 1 / all_b) * deviation;
  return {.overlap = 1 - 0.5 * distance, .sampling = std::max(0.0, 1 - 0.5 * expected)};
}

namespace {

// Every pair of texts, training with held-out text first.
template <typename F>
void each_pair(const RoutingReport& r, F&& f) {
  for (size_t a = 0; a < r.texts.size(); ++a) {
    for (size_t b = a + 1; b < r.texts.size(); ++b) f(r.texts[a], r.texts[b]);
  }
}

}  // namespace

std::string routing_text(const RoutingReport& r) {
  std::string text =
      strprintf("%s, step %ld: E = %ld experts, K = %ld per token, %zu MoE layers\n", r.run.c_str(),
                long(r.step), long(r.experts), long(r.top_k), r.layers.size());
  for (const RoutedText& t : r.texts) {
    if (t.tokens > 0) text += "  " + t.name + ": " + grouped(t.tokens) + " tokens\n";
  }
  std::vector<std::string> heads = {"overlap of the loads"};
  for (const int64_t layer : r.layers) heads.push_back(strprintf("layer %ld", long(layer)));
  TextTable table(heads);
  each_pair(r, [&](const RoutedText& a, const RoutedText& b) {
    std::vector<std::string> cells = {a.name + " and " + b.name};
    for (size_t l = 0; l < r.layers.size(); ++l) {
      const LoadOverlap o = load_overlap(a.loads[l], b.loads[l], r.top_k);
      cells.push_back(strprintf("%.3f (%.3f)", o.overlap, o.sampling));
    }
    table.add(cells);
  });
  text += "\n" + table.text() +
          "1: the same shares of the assignments; in brackets what sampling alone would give if "
          "both were alike\n" +
          strprintf("training: the logged steps %ld to %ld, the last W of them up to this one\n",
                    long(r.window_first), long(r.window_last));
  for (const std::string& source : r.unread) {
    text += "held-out: has nothing of " + source + ", which training read\n";
  }
  for (const std::string& folder : r.unread_folders) {
    text += "held-out: has nothing of " + folder + ", a folder of data.val\n";
  }
  return text;
}

nlohmann::ordered_json routing_json(const RoutingReport& r) {
  nlohmann::ordered_json json;
  json["run"] = r.run;
  json["step"] = r.step;
  json["experts"] = r.experts;
  json["top_k"] = r.top_k;
  json["layers"] = r.layers;
  json["training_steps"] = {r.window_first, r.window_last};
  json["unread_sources"] = r.unread;
  json["unread_folders"] = r.unread_folders;
  json["texts"] = nlohmann::ordered_json::array();
  for (const RoutedText& t : r.texts) {
    nlohmann::ordered_json text{{"name", t.name}};
    text["tokens"] = t.tokens > 0 ? nlohmann::ordered_json(t.tokens) : nlohmann::ordered_json();
    json["texts"].push_back(text);
  }
  json["pairs"] = nlohmann::ordered_json::array();
  each_pair(r, [&](const RoutedText& a, const RoutedText& b) {
    nlohmann::ordered_json pair{{"a", a.name}, {"b", b.name}};
    for (size_t l = 0; l < r.layers.size(); ++l) {
      const LoadOverlap o = load_overlap(a.loads[l], b.loads[l], r.top_k);
      pair["overlap"].push_back(o.overlap);
      pair["sampling"].push_back(o.sampling);
    }
    json["pairs"].push_back(pair);
  });
  return json;
}

}  // namespace assay
