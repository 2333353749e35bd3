#include <string>

#include "base/check.h"
#include "engine/run/checkpoint.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestCount = uint64_t{1} << 53;

}  // namespace

json to_json(const TrainingState& s) {
  json j;
  j["step"] = s.step;
  j["tokens"] = s.tokens;
  j["cursor"]["shard"] = s.cursor.shard;
  j["cursor"]["batch"] = s.cursor.batch;
  j["cursor"]["epoch"] = s.cursor.epoch;
  j["seed"] = s.seed;
  j["schedule_share"] = s.schedule_share;
  j["config"] = s.config_yaml;
  j["config_hashes"] = s.config_hashes;
  j["versions"] = s.versions;
  j["extra"] = s.extra;
  return j;
}

TrainingState training_state(const json& j) {
  try {
    const json& cursor = j.at("cursor");
    for (const json* count : {&j.at("step"), &j.at("tokens"), &cursor.at("shard"),
                              &cursor.at("batch"), &cursor.at("epoch")}) {
      const bool whole =
          count->is_number_integer() && (count->is_number_unsigned() || count->get<int64_t>() >= 0);
      if (!whole || count->get<uint64_t>() > kLargestCount) {
        throw json::other_error::create(501, count->dump() + " is not a count", nullptr);
      }
    }
    if (!j.at("extra").is_object()) {
      throw json::other_error::create(501, "extra is not an object", nullptr);
    }
    return {.step = j.at("step"),
            .tokens = j.at("tokens"),
            .cursor = {.shard = cursor.at("shard"),
                       .batch = cursor.at("batch"),
                       .epoch = cursor.at("epoch")},
            .seed = j.at("seed"),
            .schedule_share = j.at("schedule_share"),
            .config_yaml = j.at("config"),
            .config_hashes = j.at("config_hashes"),
            .versions = j.at("versions"),
            .extra = j.at("extra")};
  } catch (const json::exception& error) {
    throw UserError(
        std::string("the checkpoint's state is not in this version's format: ") + error.what(),
        "remove the checkpoint's folder to use the previous one, or start over with --fresh");
  }
}

}  // namespace assay
