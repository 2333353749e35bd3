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
                  const std::string& data_is) {
  if (model.sha256 == data.sha256) return;
  throw UserError(
      strprintf("%s another tokenizer (%s) than %s (%s)", data_is.c_str(), shown(data).c_str(),
                whose.c_str(), shown(model).c_str()),
      "the model would read its ids as other text: write the shards again with the model's "
      "tokenizer (assay data prepare --tokenizer FILE), or skip the check: --set "
      "data.check_tokenizer=false");
}

Known known(const Tokenizer& tokenizer) {
  return {.sha256 = tokenizer_hash(tokenizer), .vocab_size = tokenizer.vocab_size()};
}

}  // namespace

void require_same_tokenizer(const Tokenizer& model, const std::string& whose, const Tokenizer& data,
                            const std::string& data_file) {
  require_same(known(model), whose, known(data), data_file + " is");
}

void require_tokenizer_of_shards(const Tokenizer& tokenizer, const std::string& whose,
                                 const std::vector<std::string>& shards) {
  const Known of_model = known(tokenizer);
  std::set<std::string> folders;
  for (const std::string& shard : shards) {
    const std::filesystem::path parent = std::filesystem::path(shard).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    if (!folders.insert(folder).second) continue;
    if (!has_manifest(folder)) continue;
    const Manifest manifest = read_manifest(folder);
    require_same(of_model, whose,
                 {.sha256 = manifest.tokenizer_sha256, .vocab_size = manifest.vocab_size},
                 folder + "/" + kManifestName + " was written with");
  }
}

}  // namespace assay
