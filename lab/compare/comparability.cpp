// Finds what makes the losses of two runs incomparable: tokenizer, validation, context length. Text
// that only the training differs in does not.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "lab/compare/compare.h"
#include "lab/runs/data_roles.h"

namespace assay {
namespace {

TokenizerHashes tokenizer_of(const RunRecord& run) {
  TokenizerHashes hashes{.content = run.tokenizer_sha256};
  for (const auto& [path, hash] : run.data_sha256)
    if (is_tokenizer_file(run, path)) hashes.files += hash;
  return hashes;
}

std::string shown(const TokenizerHashes& tokenizer) {
  if (!tokenizer.known()) return "none";
  return (tokenizer.files.empty() ? tokenizer.content : tokenizer.files).substr(0, 12);
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

  void add_training() {
    const auto roles_a = data_roles(a_), roles_b = data_roles(b_);
    if (roles_a && roles_b) add_files("training data", roles_a->train, roles_b->train);
  }

  void add_data() {
    if (a_.data_sha256.empty() || b_.data_sha256.empty()) {
      const RunRecord& silent = a_.data_sha256.empty() ? a_ : b_;
      found_.push_back(silent.name + " does not record its training data (meta.json)");
      return;
    }
    const TokenizerHashes tokenizer_a = tokenizer_of(a_), tokenizer_b = tokenizer_of(b_);
    const auto roles_a = data_roles(a_), roles_b = data_roles(b_);
    // Of one run alone the file changes no loss over the same tokens.
    const bool both = tokenizer_a.known() && tokenizer_b.known();
    if (both ? !same_tokenizer(tokenizer_a, tokenizer_b) : !same_validation(roles_a, roles_b))
      add("tokenizer", shown(tokenizer_a), shown(tokenizer_b));
    if (!tokenizer_a.known() && !tokenizer_b.known())
      add("model.vocab_size", a_.config.model.vocab_size, b_.config.model.vocab_size);
    if (!roles_a || !roles_b) return add_files("data", shards_of(a_), shards_of(b_));
    // A loss is over the first tokens of the validation files, so their order matters.
    add_in_order("validation data", roles_a->val, roles_b->val);
    // Of both the same: a note, whatever the names of the files.
    add_leaks(trained_validation(*roles_a), trained_validation(*roles_b));
  }

 private:
  // Of all shards where the roles are not known.
  bool same_validation(const std::optional<DataRoles>& roles_a,
                       const std::optional<DataRoles>& roles_b) const {
    if (roles_a && roles_b) return !first_difference(roles_a->val, roles_b->val);
    const std::vector<DataFile> of_a = shards_of(a_), of_b = shards_of(b_);
    return without(of_a, of_b).empty() && without(of_b, of_a).empty();
  }
  void add_leaks(const std::vector<DataFile>& of_a, const std::vector<DataFile>& of_b) {
    if (without(of_a, of_b).empty() && without(of_b, of_a).empty()) return;
    add("validation data that was trained on", listed(of_a), listed(of_b));
  }
  static std::string listed(const std::vector<DataFile>& files) {
    std::string text;
    for (const DataFile& file : files) text += (text.empty() ? "" : ", ") + file.text();
    return text.empty() ? "none" : text;
  }
  void add_files(const std::string& what, const std::vector<DataFile>& of_a,
                 const std::vector<DataFile>& of_b) {
    add_in_order(what, without(of_a, of_b), without(of_b, of_a));
  }
  // The first file of another content is enough.
  void add_in_order(const std::string& what, const std::vector<DataFile>& of_a,
                    const std::vector<DataFile>& of_b) {
    const std::optional<size_t> at = first_difference(of_a, of_b);
    if (at) add(what, shard_text(of_a, *at), shard_text(of_b, *at));
  }

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

std::vector<std::string> training_differences(std::span<const RunRecord> runs) {
  std::vector<std::string> found;
  for (size_t i = 1; i < runs.size(); ++i) Differences(runs[0], runs[i], found).add_training();
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
