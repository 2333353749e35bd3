// Are the experts of two runs the same experts (`assay dissect seeds`)? An expert has no name that
// holds from one seed to another, and its hidden units have no common basis. So experts are
// compared by the positions of one text that choose them:
//
//   T_a, T_b      positions that chose expert a of run A, expert b of run B
//   similarity    |T_a and T_b| / sqrt(|T_a| |T_b|)      the cosine of two indicators, from 0 to 1
//                 (A. Ochiai, 1957); 1: the same positions
//   assignment    one-to-one pairs with the largest sum of similarities (lab/dissect/assignment.h)
//   agreement     sum over the pairs of |T_a and T_b| / (N K): the share of A's choices that B
//                 makes too, once its experts are renamed
//
// An optimal assignment finds similarities in noise, and busy experts share positions whatever they
// do. Two levels say how much; in each, the positions of run B are shuffled several times, and
// experts are assigned anew:
//
//   chance        over all positions: keeps the loads of the experts, nothing else
//   token id      among positions with the same token: keeps what an expert makes of a token's id.
//                 A token that occurs once stays where it is, so that rare ones raise the level
//
// A pair is above chance if its similarity exceeds that of A's expert in each of S shuffles. For
// unrelated experts that happens once in S + 1 times: a permutation test. It takes positions as
// exchangeable; those of one text are not quite.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace assay {

// What the positions of a text chose in one MoE layer.
struct LayerChoices {
  int64_t layer = 0;  // block index
  int64_t experts = 0, top_k = 0;
  std::vector<int32_t> expert;  // (N, K)
};

struct ExpertPair {
  int32_t a = 0, b = 0;
  int64_t tokens_a = 0, tokens_b = 0, together = 0;  // positions that chose a, b, both
  double similarity = 0;
  double chance = 0;  // the largest similarity of expert a in the shuffles over all positions
  bool above_chance() const { return similarity > chance; }
};

// Of one assignment, or the mean over those of several shuffles.
struct MatchLevel {
  double similarity = 0;  // mean over the pairs
  double agreement = 0;
  std::optional<double> similarity_sd;  // over shuffles, of the mean; of two or more
};

struct LayerMatch {
  int64_t layer = 0;
  int64_t used_a = 0, used_b = 0;  // experts that the text chose at all
  std::vector<ExpertPair> pairs;   // min(used_a, used_b), the most similar first
  MatchLevel matched, token_id, chance;
  int64_t above_chance() const;
};

// Experts of a layer that are matched at most: the assignment is of their third power.
constexpr int64_t kMostMatched = 4096;
struct MatchPlan {
  int64_t shuffles = 19;  // with 19, one unrelated pair in twenty is above chance
  uint64_t seed = 0;      // of the shuffles
};
// Both of the same N positions, whose token ids are `token` (N). Experts that no position chose are
// left out. UserError if the text uses more than kMostMatched in either.
LayerMatch match_experts(const LayerChoices& a, const LayerChoices& b,
                         std::span<const int32_t> token, const MatchPlan& plan);

struct SeedRun {
  std::string run, checkpoint, checkpoint_sha256;
  int64_t step = 0, seed = 0;
  std::string imported_sha256 = {};  // of the weights that the run began from; "" if from its seed
};
struct SeedPair {
  size_t a = 0, b = 0;  // indices of SeedsReport::runs
  std::vector<LayerMatch> layers;
};
struct SeedsReport {
  std::vector<SeedRun> runs;
  std::string text_sha256;
  int64_t experts = 0, top_k = 0, tokens = 0, shuffles = 0;
  std::vector<std::string> differences;  // fields beside the seed in which runs differ
  std::vector<SeedPair> pairs;           // every two runs
};
std::string seeds_text(const SeedsReport& report);
nlohmann::ordered_json seeds_json(const SeedsReport& report);

}  // namespace assay
