#include "lab/page/dissect.h"

#include "data/json_text.h"
#include "lab/dissect/damage.h"
#include "lab/dissect/used.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// The value if it is a number, else null.
Json number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? *found : Json();
}

// Null if the change is not one of ours.
Json row_of(const Json& change) {
  if (!change.is_object() || !change.contains("without") || !change["without"].is_string() ||
      !change.contains("damage") || !change["damage"].is_object()) {
    return nullptr;
  }
  const Json& damage = change["damage"];
  Json row;
  row["layer"] = number_at(change, "layer");
  row["without"] = change["without"];
  const auto removal = change.find("removal");
  row["removal"] = removal != change.end() && removal->is_string() ? *removal : Json();
  row["experts"] = number_at(change, "experts");
  row["load_share"] = number_at(change, "load_share");
  row["nats"] = number_at(damage, "nats");
  row["standard_error"] = number_at(damage, "standard_error");
  return row["layer"].is_null() || row["nats"].is_null() ? Json() : row;
}

Json rows_of(const Json& changes) {
  Json groups = Json::array(), single = Json::array();
  for (const Json& change : changes) {
    const Json row = row_of(change);
    if (row.is_null()) continue;
    (change.contains("expert") ? single : groups).push_back(row);
  }
  if (groups.size() + single.size() <= kMostDamageRows) {
    groups.insert(groups.end(), single.begin(), single.end());
  }
  while (groups.size() > kMostDamageRows) groups.erase(groups.end() - 1);
  return groups;
}

}  // namespace

Json report_dissect(const std::string& run) {
  Json json;
  const Json damage = json_in_file<Json>(run + "/" + kDamageFile);
  if (damage.is_object() && damage.contains("changes") && damage["changes"].is_array()) {
    for (const char* key : {"step", "tokens", "loss_nats", "experts", "top_k"}) {
      json[key] = number_at(damage, key);
    }
    json["rows"] = rows_of(damage["changes"]);
  }
  const Json used = json_in_file<Json>(run + "/" + kUsedFile);
  if (used.is_object()) {
    for (const char* key : {"p_used", "p_total", "p_active"}) json[key] = number_at(used, key);
    json["used_step"] = number_at(used, "checkpoint_step");
    json["used_tokens"] = number_at(used, "tokens");
  }
  return json;
}

}  // namespace assay
