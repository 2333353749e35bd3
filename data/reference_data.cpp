#include "data/reference_data.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/sha256.h"

namespace assay {

namespace {

using nlohmann::json;

bool is_sha256(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

[[noreturn]] void refuse(const std::string& reference, const std::string& what) {
  throw UserError(
      "data.reference is " + reference + ", but " + what,
      reference == "kjj0/fineweb10B-gpt2"
          ? "bash tools/get_fineweb.sh fetches and checks it; on other text there is no "
            "published target: --set data.reference=any --set run.target_loss=0"
          : "use that data; on other text its target means nothing: --set "
            "data.reference=any --set run.target_loss=0");
}

// What the reference.json of a shard's folder says of the shard: "" if it is of this data, else why
// not.
std::string mismatch(const std::string& reference, const std::string& shard,
                     const std::string& sha256) {
  namespace fs = std::filesystem;
  const std::string path = (fs::path(shard).parent_path() / "reference.json").string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return path + " is missing, which would say what the data is";
  const json file = json_in_file(path);
  const bool is_whole = file.is_object() && file.contains("name") && file["name"].is_string() &&
                        file.contains("sha256") && file["sha256"].is_object();
  if (!is_whole) return path + " is damaged";
  if (file["name"] != reference) return path + " says " + file["name"].get<std::string>();
  const std::string name = fs::path(shard).filename().string();
  if (!file["sha256"].contains(name)) return path + " does not name " + name;
  if (file["sha256"][name] != sha256) {
    return shard + " has " + short_hash(sha256) + ", which is not that of " + path;
  }
  return "";
}

}  // namespace

void require_reference(const std::string& reference, const std::vector<std::string>& val,
                       const HashedFiles& hashed) {
  if (reference == "any") return;
  if (is_sha256(reference)) {
    if (val.size() != 1) {
      refuse(reference, strprintf("data.val has %ld files", static_cast<long>(val.size())));
    }
    const std::string& found = hashed.at(val.front()).sha256;
    if (found != reference) refuse(reference, val.front() + " has SHA-256 " + found);
    return;
  }
  for (const std::string& shard : val) {
    const std::string why = mismatch(reference, shard, hashed.at(shard).sha256);
    if (!why.empty()) refuse(reference, why);
  }
}

}  // namespace assay
