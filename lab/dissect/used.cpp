#include "lab/dissect/used.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit.h"
#include "models/audit/audit_report.h"

namespace assay {

int64_t used_experts(const LayerLoads& loads) {
  return std::count_if(loads.counts.begin(), loads.counts.end(),
                       [](int64_t count) { return count > 0; });
}

int64_t used_experts(const LayerLoads& loads, int64_t sequences) {
  return std::count_if(loads.first_use.begin(), loads.first_use.end(),
                       [&](int64_t first) { return first >= 0 && first < sequences; });
}

int64_t used_parameters(const Config& config, std::span<const LayerLoads> loads) {
  const int64_t width = config.model.hidden;
  const int64_t of_expert = 3 * width * config.model.moe->expert_ffn + width;
  int64_t used = audit(config).total;
  for (const LayerLoads& l : loads) {
    used -= (int64_t(l.counts.size()) - used_experts(l)) * of_expert;
  }
  return used;
}

namespace {

// Experts that the first n / of of the text chose; nullopt of a short one that has no such part.
std::optional<int64_t> used_after(const LayerLoads& loads, int64_t sequences, int64_t n,
                                  int64_t of) {
  if (sequences < of && sequences * n % of != 0) return std::nullopt;
  return used_experts(loads, sequences * n / of);
}

}  // namespace

std::string used_text(const UsedReport& r) {
  std::string text = strprintf(
      "%s, step %ld: E = %ld experts, K = %ld per token, %zu MoE layers; %s held-out tokens\n"
      "P_active %s   P_used %s (%.2f%% of the total)   P_total %s\n\n",
      r.run.c_str(), long(r.step), long(r.experts), long(r.top_k), r.loads.size(),
      grouped(r.tokens).c_str(), grouped(r.p_active).c_str(), grouped(r.p_used).c_str(),
      100.0 * double(r.p_used) / double(r.p_total), grouped(r.p_total).c_str());
  TextTable table({"layer", "used", "unused", "busiest expert", "used after 1/8", "1/4", "1/2",
                   "last eighth adds"});
  for (const LayerLoads& l : r.loads) {
    const auto after = [&](int64_t n, int64_t of) -> std::string {
      const std::optional<int64_t> used = used_after(l, r.sequences, n, of);
      return used ? grouped(*used) : "-";
    };
    const std::optional<int64_t> before = used_after(l, r.sequences, 7, 8);
    const std::vector<int32_t> order = l.by_load();
    table.add({std::to_string(l.layer), grouped(used_experts(l)),
               grouped(r.experts - used_experts(l)),
               strprintf("%.2f%%", 100 * l.share(std::span(order).first(1))), after(1, 8),
               after(1, 4), after(1, 2), before ? grouped(used_experts(l) - *before) : "-"});
  }
  return text + table.text() +
         "used: chosen by at least one held-out token; the busiest expert's share is of the "
         "layer's "
         "assignments;\nif the last eighth of the text adds experts, more text would use more of "
         "them\n" +
         (r.p_used < r.p_active
              ? "P_used is below P_active, which counts the router's rows of unused experts too\n"
              : "");
}

nlohmann::ordered_json used_json(const UsedReport& r) {
  nlohmann::ordered_json json;
  json["run"] = r.run;
  json["checkpoint"] = r.checkpoint;
  json["checkpoint_sha256"] = r.checkpoint_sha256;
  json["checkpoint_step"] = r.step;
  json["text_sha256"] = r.text_sha256;
  json["tokens"] = r.tokens;
  json["p_total"] = r.p_total;
  json["p_active"] = r.p_active;
  json["p_used"] = r.p_used;
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerLoads& l : r.loads) {
    nlohmann::ordered_json layer;
    layer["layer"] = l.layer;
    layer["experts"] = l.counts.size();
    layer["used"] = used_experts(l);
    layer["used_after_eighths"] = nlohmann::ordered_json::array();
    for (int64_t n = 1; n <= 8; ++n) {
      const std::optional<int64_t> used = used_after(l, r.sequences, n, 8);
      layer["used_after_eighths"].push_back(used ? nlohmann::ordered_json(*used)
                                                 : nlohmann::ordered_json());
    }
    layer["counts"] = l.counts;
    json["layers"].push_back(layer);
  }
  return json;
}

std::optional<UsedFigures> read_used(const std::string& run) {
  const std::string path = run + "/" + kUsedFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto json = json_of(read_regular_file(path));
  try {
    UsedFigures used{.text_sha256 = json.at("text_sha256"),
                     .step = json.at("checkpoint_step"),
                     .tokens = json.at("tokens"),
                     .p_used = json.at("p_used")};
    if (used.p_used > 0) return used;
  } catch (const nlohmann::json::exception&) {
  }
  throw UserError(path + " is damaged", "assay dissect used " + run + " writes it anew");
}

}  // namespace assay
