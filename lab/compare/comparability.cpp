// Finds what makes the losses of two runs incomparable: tokenizer, data, validation, context
// length.
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "lab/compare/compare.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// A file of the tokenizer, or in its folder (vocab.json and merges.txt).
bool is_tokenizer(const RunRecord& run, const std::string& path) {
  const std::string& tokenizer = run.config.data.tokenizer;
  if (tokenizer.empty()) return fs::path(path).extension() == ".json";
  return path == tokenizer || fs::path(path).parent_path() == fs::path(tokenizer);
}

// SHA-256 of the tokenizer's files, one after the other; "" if the run had none.
std::string tokenizer_hash(const RunRecord& run) {
  std::string all;
  for (const auto& [path, hash] : run.data_sha256)
    if (is_tokenizer(run, path)) all += hash;
  return all;
}

// "name hash" of every shard, by name: folders do not matter.
std::vector<std::string> shards(const RunRecord& run) {
  std::vector<std::string> lines;
  for (const auto& [path, hash] : run.data_sha256)
    if (!is_tokenizer(run, path))
      lines.push_back(fs::path(path).filename().string() + " " + hash.substr(0, 12));
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string shown(const std::string& hash) {
  return hash.empty() ? "none" : hash.substr(0, 12);
}

class Differences {
 public:
  Differences(const RunRecord& a, const RunRecord& b, std::vector<std::string>& found)
      : a_(a), b_(b), found_(found) {}

  void add(const std::string& what, const std::string& of_a, const std::string& of_b) {
    if (of_a != of_b)
      found_.push_back(strprintf("%s: %s in %s, %s in %s", what.c_str(), of_a.c_str(),
                                 a_.name.c_str(), of_b.c_str(), b_.name.c_str()));
  }
  void add(const std::string& what, int64_t of_a, int64_t of_b) {
    add(what, std::to_string(of_a), std::to_string(of_b));
  }

  void add_data() {
    if (a_.data_sha256.empty() || b_.data_sha256.empty()) {
      const RunRecord& silent = a_.data_sha256.empty() ? a_ : b_;
      found_.push_back(silent.name + " does not record its training data (meta.json)");
      return;
    }
    const std::string hash_a = tokenizer_hash(a_), hash_b = tokenizer_hash(b_);
    add("tokenizer", shown(hash_a), shown(hash_b));
    if (hash_a.empty() && hash_b.empty())
      add("model.vocab_size", a_.config.model.vocab_size, b_.config.model.vocab_size);
    const std::vector<std::string> of_a = shards(a_), of_b = shards(b_);
    for (size_t i = 0; i < std::max(of_a.size(), of_b.size()); ++i) {
      const std::string x = i < of_a.size() ? of_a[i] : "no further shard";
      const std::string y = i < of_b.size() ? of_b[i] : "no further shard";
      if (x == y) continue;
      return add("data", x, y);  // the first one is enough
    }
  }

 private:
  const RunRecord &a_, &b_;
  std::vector<std::string>& found_;
};

}  // namespace

std::vector<std::string> incomparable_differences(std::span<const RunRecord> runs) {
  std::vector<std::string> found;
  for (size_t i = 1; i < runs.size(); ++i) {
    const Config &first = runs[0].config, &other = runs[i].config;
    Differences differences(runs[0], runs[i], found);
    differences.add_data();
    differences.add("data.mask_eos", int64_t(first.data.mask_eos), int64_t(other.data.mask_eos));
    differences.add("run.sequence", first.run.sequence, other.run.sequence);
    differences.add("eval.tokens", first.eval.tokens, other.eval.tokens);
  }
  return found;
}

void refuse_incomparable(const std::vector<std::string>& differences, const std::string& hint) {
  if (differences.empty()) return;
  constexpr size_t kShown = 3;
  std::string shown;
  for (size_t i = 0; i < std::min(kShown, differences.size()); ++i) {
    shown += (i == 0 ? "" : "; ") + differences[i];
  }
  if (differences.size() > kShown)
    shown += strprintf(" (and %zu more)", differences.size() - kShown);
  throw UserError("the runs are not comparable: " + shown, hint);
}

}  // namespace assay
