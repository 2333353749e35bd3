// The table and the JSON of `assay dissect seeds`.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/dissect/seeds.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

std::string level_cell(const MatchLevel& level) {
  std::string text = strprintf("%.3f", level.similarity);
  if (level.similarity_sd) text += strprintf(" ± %.4f", *level.similarity_sd);
  return text;
}

std::string pair_cell(const ExpertPair& pair) {
  return strprintf("%d is %d: %.2f", int(pair.a), int(pair.b), pair.similarity);
}

std::string of_cell(int64_t part, size_t all) {
  return grouped(part) + " of " + grouped(int64_t(all));
}

// "layer 1: 12 of 12 pairs are above chance, where ..."
std::string layer_sentence(const SeedsReport& r, size_t layer) {
  int64_t above = 0;
  size_t pairs = 0;
  for (const SeedPair& pair : r.pairs) {
    above += pair.layers[layer].above_chance();
    pairs += pair.layers[layer].pairs.size();
  }
  return strprintf(
      "layer %ld: %s pairs of experts are above chance; %.1f would be if none were alike\n",
      long(r.pairs.front().layers[layer].layer), of_cell(above, pairs).c_str(),
      double(pairs) / double(r.shuffles + 1));
}

Json level_json(const MatchLevel& level) {
  Json json;
  json["similarity"] = level.similarity;
  json["similarity_sd"] = level.similarity_sd ? Json(*level.similarity_sd) : Json();
  json["agreement"] = level.agreement;
  return json;
}

Json layer_json(const LayerMatch& l, int64_t shuffles) {
  Json json;
  json["layer"] = l.layer;
  json["used_a"] = l.used_a;
  json["used_b"] = l.used_b;
  json["similarity"] = l.matched.similarity;
  json["agreement"] = l.matched.agreement;
  json["token_id"] = level_json(l.token_id);
  json["chance"] = level_json(l.chance);
  json["above_chance"] = l.above_chance();
  json["above_if_unrelated"] = double(l.pairs.size()) / double(shuffles + 1);
  json["experts"] = Json::array();
  for (const ExpertPair& pair : l.pairs) {
    json["experts"].push_back({{"a", pair.a},
                               {"b", pair.b},
                               {"similarity", pair.similarity},
                               {"highest_by_chance", pair.chance},
                               {"above_chance", pair.above_chance()},
                               {"tokens_a", pair.tokens_a},
                               {"tokens_b", pair.tokens_b},
                               {"tokens_both", pair.together}});
  }
  return json;
}

}  // namespace

std::string seeds_text(const SeedsReport& r) {
  std::string text;
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const SeedRun& run = r.runs[i];
    text += strprintf("%zu  %s, step %ld, seed %ld\n", i + 1, run.run.c_str(), long(run.step),
                      long(run.seed));
  }
  text += strprintf("E = %ld experts, K = %ld per token, %zu MoE layers; %s held-out tokens\n",
                    long(r.experts), long(r.top_k), r.pairs.front().layers.size(),
                    grouped(r.tokens).c_str());
  if (!r.differences.empty()) {
    text += "note: the runs differ not only in their seed:";
    for (const std::string& field : r.differences) text += " " + field;
    text += "\n";
  }
  for (size_t i = 0; i < r.runs.size(); ++i) {
    if (r.runs[i].imported_sha256.empty()) continue;
    text += strprintf(
        "note: run %zu began from imported weights (imported.json): what it shares with a run that "
        "began from the same is not of its training\n",
        i + 1);
  }
  TextTable table({"runs", "layer", "similarity", "token id", "chance", "above chance", "agreement",
                   "most alike", "least alike"});
  for (const SeedPair& pair : r.pairs) {
    for (const LayerMatch& l : pair.layers) {
      table.add({strprintf("%zu, %zu", pair.a + 1, pair.b + 1), std::to_string(l.layer),
                 strprintf("%.3f", l.matched.similarity), level_cell(l.token_id),
                 level_cell(l.chance), of_cell(l.above_chance(), l.pairs.size()),
                 strprintf("%.1f%% (%.1f%%, %.1f%%)", 100 * l.matched.agreement,
                           100 * l.token_id.agreement, 100 * l.chance.agreement),
                 pair_cell(l.pairs.front()), pair_cell(l.pairs.back())});
    }
  }
  text += "\n" + table.text() + "\n";
  for (size_t l = 0; l < r.pairs.front().layers.size(); ++l) text += layer_sentence(r, l);
  return text +
         strprintf(
             "similarity: mean over matched experts of |both| / sqrt(|a| |b|), in tokens that "
             "chose them; 1: the same tokens\n"
             "token id, chance: the same after the second run's tokens are shuffled %s times, "
             "among those of one id, among all\n"
             "± is over shuffles; above chance: more alike than in any shuffle among all\n"
             "agreement: the share of the first run's choices that the second makes too, its "
             "experts renamed (by token id, by chance)\n",
             grouped(r.shuffles).c_str());
}

Json seeds_json(const SeedsReport& r) {
  Json json;
  json["runs"] = Json::array();
  for (const SeedRun& run : r.runs) {
    json["runs"].push_back(
        {{"run", run.run},
         {"checkpoint", run.checkpoint},
         {"checkpoint_sha256", run.checkpoint_sha256},
         {"step", run.step},
         {"seed", run.seed},
         {"imported_sha256", run.imported_sha256.empty() ? Json() : Json(run.imported_sha256)}});
  }
  json["text_sha256"] = r.text_sha256;
  json["experts"] = r.experts;
  json["top_k"] = r.top_k;
  json["tokens"] = r.tokens;
  json["shuffles"] = r.shuffles;
  json["differences"] = r.differences;
  json["pairs"] = Json::array();
  for (const SeedPair& pair : r.pairs) {
    Json layers = Json::array();
    for (const LayerMatch& l : pair.layers) layers.push_back(layer_json(l, r.shuffles));
    json["pairs"].push_back({{"a", pair.a}, {"b", pair.b}, {"layers", layers}});
  }
  return json;
}

}  // namespace assay
