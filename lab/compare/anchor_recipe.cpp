#include "lab/compare/anchor_recipe.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "engine/config/schedule.h"
#include "lab/runs/data_roles.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

constexpr const char* kPublishedSha256 =
    "541df2a28d04d71321c16866224a6743fd60c0cc76ea6cde4b9c26d108707de0";
constexpr const char* kAnchorData = "kjj0/fineweb10B-gpt2";  // as data.reference
constexpr int64_t kVocabulary = 50257;                       // of GPT-2; 50304 is the usual padding
constexpr int64_t kPaddedVocabulary = 50304;

bool is_gpt2_vocabulary(const Config& c) {
  return c.model.vocab_size == kVocabulary || c.model.vocab_size == kPaddedVocabulary;
}

// By name only: the anchor's files have no recorded hash.
bool is_fineweb(const std::string& file) {
  return std::filesystem::path(file).filename().string().starts_with("fineweb_");
}

class Recipe {
 public:
  explicit Recipe(const RunRecord& run) : run_(run), c_(run.config) {}

  std::vector<RecipeItem> items() {
    data();
    shape();
    layers();
    optimizer();
    schedule();
    validation();
    return items_;
  }

 private:
  void add(const std::string& what, const std::string& anchor, const std::string& ours,
           Match match) {
    items_.push_back({.what = what, .anchor = anchor, .ours = ours, .match = match});
  }
  void number(const std::string& what, double anchor, double ours) {
    add(what, strprintf("%g", anchor), strprintf("%g", ours),
        anchor == ours ? Match::kYes : Match::kNo);
  }
  void count(const std::string& what, int64_t anchor, int64_t ours) {
    add(what, grouped(anchor), grouped(ours), anchor == ours ? Match::kYes : Match::kNo);
  }
  void text(const std::string& what, const std::string& anchor, const std::string& ours) {
    add(what, anchor, ours, anchor == ours ? Match::kYes : Match::kNo);
  }

  void data() {
    const bool gpt2 = is_gpt2_vocabulary(c_);
    add("tokenizer", "GPT-2 BPE", gpt2 ? "GPT-2's size" : "another",
        gpt2 ? Match::kUnknown : Match::kNo);
    count("vocabulary", kVocabulary, c_.model.vocab_size);
    std::vector<std::string> files;
    for (const auto& [path, hash] : run_.data_sha256)
      if (std::filesystem::path(path).extension() == ".bin") files.push_back(path);
    const bool named = !files.empty() && std::all_of(files.begin(), files.end(), is_fineweb);
    add("data", "FineWeb 10B",
        named           ? "files named fineweb_*"
        : c_.data.synth ? "generated stories"
        : files.empty() ? "not recorded"
                        : std::filesystem::path(files.front()).filename().string(),
        named || files.empty() ? Match::kUnknown : Match::kNo);
  }

  void shape() {
    const ModelConfig& m = c_.model;
    count("layers", 12, m.layers);
    count("width", 768, m.hidden);
    count("heads", 12, m.heads);
    count("key-value heads", 12, m.resolved_kv_heads());
    count("head width", 64, m.resolved_head_dim());
    count("parameters", 123532032, run_.audit.total);
    text("embedding and head", "tied", m.tie_embeddings ? "tied" : "untied");
  }

  void layers() {
    const ModelConfig& m = c_.model;
    text("norm", "RMSNorm without weight", "RMSNorm with weight");
    number("norm eps", 1e-6, m.norm_eps);
    text("QK-norm", "no", m.qk_norm ? "yes" : "no");
    number("RoPE base", 10000, m.rope_theta);
    text("attention branch", "times 1/sqrt(2L)",
         m.attention_gain == AttentionGain::kDepth ? "times 1/sqrt(2L)" : "times 1");
    std::string ffn = strprintf("SwiGLU, %s wide", grouped(m.ffn).c_str());
    if (m.moe)
      ffn = strprintf("%ld experts, %ld per token, SwiGLU %s wide", long(m.moe->experts),
                      long(m.moe->top_k), grouped(m.moe->expert_ffn).c_str());
    text("FFN", "GELU, 3,072 wide", ffn);
    text("init", "uniform +-1/sqrt(fan in)", "normal, std 0.02, depth-scaled outputs");
    const std::string& recipe = run_.recipe.empty() ? c_.precision.recipe : run_.recipe;
    text("products", "bf16", recipe);
  }

  void optimizer() {
    const OptimizerConfig& o = c_.optimizer;
    text("optimizer", "adamw", name_of(o.kind));
    number("learning rate", 1.8e-3, o.lr);
    number("beta1", 0.9, o.beta1);
    number("beta2", 0.95, o.beta2);
    number("Adam eps", 1e-8, o.eps);
    number("weight decay", 0.1, o.weight_decay);
    text("decayed", "every parameter", "not norms, embedding, head");
    text("gradient", "each tensor by its own norm",
         o.clip > 0 ? strprintf("global norm clipped at %g", o.clip) : "not clipped");
    count("tokens per step", 524288, c_.run.batch_tokens);
    count("sequence", 1024, c_.run.sequence);
  }

  void schedule() {
    const Schedule s = make_schedule(c_);
    count("steps", 9536, c_.run.steps);
    count("tokens", 4999610368, c_.run.steps * c_.run.batch_tokens);
    count("warm-up", 256, s.warmup);
    count("warm-down", 2048, s.warmdown);
    text("decay", "linear", name_of(c_.schedule.decay));
  }

  void validation() {
    count("validated every", 128, c_.eval.every);
    add("validation tokens", "10,485,760, of which rank 0's 1,310,720 are logged",
        grouped(c_.eval.tokens), c_.eval.tokens == 10485760 ? Match::kYes : Match::kNo);
  }

  const RunRecord& run_;
  const Config& c_;
  std::vector<RecipeItem> items_;
};

}  // namespace

const char* match_name(Match match) {
  return match == Match::kYes ? "yes" : match == Match::kNo ? "no" : "unknown";
}

std::vector<RecipeItem> anchor_recipe(const RunRecord& run) {
  return Recipe(run).items();
}

bool is_published_anchor(const AnchorLog& log) {
  return log.sha256 == kPublishedSha256;
}

std::string anchor_obstacle(const RunRecord& run) {
  if (!is_gpt2_vocabulary(run.config))
    return strprintf(
        "other tokenizer (vocabulary %s, the anchor's is %s): nats per token are not comparable",
        grouped(run.config.model.vocab_size).c_str(), grouped(kVocabulary).c_str());
  if (run.config.data.synth) return "other data: generated stories";
  const std::optional<DataRoles> roles = data_roles(run);
  if (!roles || run.config.data.reference == kAnchorData) return "";
  const auto other = std::find_if(roles->val.begin(), roles->val.end(),
                                  [](const DataFile& file) { return !is_fineweb(file.name); });
  return other == roles->val.end() ? "" : "other validation data: " + other->name;
}

}  // namespace assay
