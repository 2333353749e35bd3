#include "data/tokenizer_check.h"

#include <filesystem>
#include <set>

#include "base/check.h"
#include "data/manifest.h"
#include "data/tokenizer_files.h"

namespace assay {

namespace {

struct Known {
  std::string sha256;
  int64_t vocab_size = 0;
};

std::string shown(const Known& tokenizer) {
  return strprintf("%ld tokens, SHA-256 %.16s", long(tokenizer.vocab_size),
                   tokenizer.sha256.c_str());
}

// data_is: "corpus/manifest.json was written with", "tokenizer.json is".
void require_same(const Known& model, const std::string& whose, const Known& data,
                  const std::string& data_is, const char* hint) {
  if (model.sha256 == data.sha256) return;
  throw UserError(strprintf("%s another tokenizer (%s) than %s (%s)", data_is.c_str(),
                            shown(data).c_str(), whose.c_str(), shown(model).c_str()),
                  hint);
}

constexpr const char* kAnotherThanTheModels =
    "the model would read its ids as other text: write the shards again with the model's tokenizer "
    "(assay data prepare --tokenizer FILE), or skip the check: --set data.check_tokenizer=false";
constexpr const char* kSeveral =
    "one id would stand for two texts: write the shards of one folder again with the tokenizer of "
    "the other (assay data prepare --tokenizer FILE), or skip the check: --set "
    "data.check_tokenizer=false";

Known known(const Tokenizer& tokenizer) {
  return {.sha256 = tokenizer_hash(tokenizer), .vocab_size = tokenizer.vocab_size()};
}

std::string manifest_in(const std::string& folder) {
  return folder + "/" + kManifestName;
}

std::string written_with(const std::string& folder) {
  return manifest_in(folder) + " was written with";
}

Known known_of(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  return {.sha256 = manifest.tokenizer_sha256, .vocab_size = manifest.vocab_size};
}

// The folders of the shards that have a manifest, each once, in the order of the shards.
std::vector<std::string> folders_with_manifest(const std::vector<std::string>& shards) {
  std::vector<std::string> folders;
  std::set<std::string> seen;
  for (const std::string& shard : shards) {
    const std::filesystem::path parent = std::filesystem::path(shard).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    if (seen.insert(folder).second && has_manifest(folder)) folders.push_back(folder);
  }
  return folders;
}

}  // namespace

void require_same_tokenizer(const Tokenizer& model, const std::string& whose, const Tokenizer& data,
                            const std::string& data_file) {
  require_same(known(model), whose, known(data), data_file + " is", kAnotherThanTheModels);
}

void require_tokenizer_of_shards(const Tokenizer& tokenizer, const std::string& whose,
                                 const std::vector<std::string>& shards) {
  const Known of_model = known(tokenizer);
  for (const std::string& folder : folders_with_manifest(shards)) {
    require_same(of_model, whose, known_of(folder), written_with(folder), kAnotherThanTheModels);
  }
}

void require_one_tokenizer(const std::vector<std::string>& shards) {
  const std::vector<std::string> folders = folders_with_manifest(shards);
  if (folders.size() < 2) return;
  const Known first = known_of(folders[0]);
  for (size_t i = 1; i < folders.size(); ++i) {
    require_same(first, manifest_in(folders[0]), known_of(folders[i]), written_with(folders[i]),
                 kSeveral);
  }
}

std::string manifest_of(const std::vector<std::string>& shards) {
  const std::vector<std::string> folders = folders_with_manifest(shards);
  return folders.empty() ? "" : manifest_in(folders.front());
}

void refuse_unknown_tokenizer(const std::string& why, const std::string& data_tokenizer) {
  throw UserError(
      "the data has the tokens of " + data_tokenizer +
          ", and the model's tokenizer cannot be compared with it: " + why,
      "the model would read its ids as other text: give shards of the model's own tokens, or if "
      "the ids mean the same, skip the check: --set data.check_tokenizer=false");
}

}  // namespace assay
