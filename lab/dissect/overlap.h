// How alike two load vectors are (`assay dissect routing`).
//
//   overlap   1 - 1/2 sum_e |p_e - q_e|        p, q: shares of the assignments; 1 = the same
//   sampling  the overlap to expect if both were drawn from the pooled shares s:
//             1 - 1/2 sum_e sqrt(2 s_e (1 - s_e) (1/A + 1/B) / pi)      A, B assignments
//
// The second takes assignments as independent; tokens of one text are not, so an overlap a little
// below it means nothing.
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
// (E) each. Without assignments on a side both are 0.
LoadOverlap load_overlap(std::span<const int64_t> a, std::span<const int64_t> b);

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
