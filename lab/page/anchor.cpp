#include "lab/page/anchor.h"

#include <filesystem>

#include "lab/compare/anchor_log.h"
#include "lab/compare/anchor_recipe.h"
#include "lab/page/series.h"

namespace assay {

nlohmann::ordered_json report_anchor(const std::string& path, int64_t points) {
  const AnchorLog log = read_anchor_log(path);
  nlohmann::ordered_json json;
  json["name"] = std::filesystem::path(path).filename().string();
  json["says"] = is_published_anchor(log)
                     ? "the public AdamW run of modded-nanogpt of June 2024"
                     : "a public run, log of " + std::string(anchor_format_name(log.format));
  json["problem"] = nullptr;
  json["not_comparable"] = nlohmann::ordered_json::array();
  if (log.unknown_lines > 0) json["problem"] = log.warning();
  json["val_loss_nats"] = series_json(log.val_loss_nats, points);
  return json;
}

}  // namespace assay
