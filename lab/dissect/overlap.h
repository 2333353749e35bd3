// How alike two load vectors are (`assay dissect routing`).
//
//   overlap   1 - 1/2 sum_e |p_e - q_e|        p, q: shares of the assignments; 1 = the same
//   sampling  the overlap to expect if both were drawn from the same tokens:
//             1 - 1/2 (1/A + 1/B) sum_e E|X_e - its mean|      A, B assignments
//
// The tokens of both sides together are divided at random, as many to each as it has: X_e is how
// many of those that chose expert e come to the first side, a hypergeometric number. Each token has
// K distinct experts, so that the variance of its share is s (1 - K s) / A and an expert that every
// token chooses does not differ. Tokens of one text are not exchanged for those of another like
// this, so an overlap a little below it means nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace assay {

struct LoadOverlap {
  double overlap = 0, sampling = 0;
};
// (E) each, of tokens with top_k distinct experts. Without assignments on a side both are 0.
LoadOverlap load_overlap(std::span<const int64_t> a, std::span<const int64_t> b, int64_t top_k);

// The routing of one text: loads (E) of each MoE layer.
struct RoutedText {
  std::string name;    // "training", "held-out", a source
  int64_t tokens = 0;  // 0: not known
  std::vector<std::vector<int64_t>> loads;
};

struct RoutingReport {
  std::string run;
  int64_t step = 0, experts = 0, top_k = 0;
  int64_t window_first = 0, window_last = 0;  // logged steps of the training loads
  std::vector<int64_t> layers;                // block indices
  std::vector<RoutedText> texts;              // the first is training, the second all held-out text
  // Sources of a mixture that training read and the held-out text has none of, and other folders of
  // data.val that it has none of.
  std::vector<std::string> unread = {}, unread_folders = {};
};
std::string routing_text(const RoutingReport& report);
nlohmann::ordered_json routing_json(const RoutingReport& report);

}  // namespace assay
