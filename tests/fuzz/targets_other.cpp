// Files of other programs: model folders, CORE, prompts, receipts, logs.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "eval/core_bundle.h"
#include "eval/csv.h"
#include "eval/prompt_file.h"
#include "interop/model_json.h"
#include "lab/compare/anchor_log.h"
#include "lab/compare/published_receipts.h"
#include "lab/receipt/receipt.h"
#include "tests/fuzz/targets.h"

namespace assay::fuzz {
namespace {

void parse_model_folder(std::string_view bytes) {
  read_model_json(put("config.json", bytes));
}
std::vector<std::string> model_folders() {
  ModelConfig dense;
  dense.hidden = 64;
  dense.layers = dense.heads = 2;
  dense.vocab_size = 512;
  ModelConfig mixture = dense;
  mixture.moe = MoeConfig{};
  mixture.moe->shared = 1;
  ModelFacts facts;
  facts.positions = 64;
  return {model_json(dense, Family::kLlama, facts).dump(1),
          model_json(mixture, Family::kGlm4Moe, facts).dump(1),
          model_json(mixture, Family::kQwen3Moe, facts).dump(1),
          R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64,
"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 128,
"vocab_size": 512, "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
"rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false})"};
}

// The first byte chooses the kind of task.
void parse_core(std::string_view bytes) {
  const CoreKind kinds[] = {CoreKind::kMultipleChoice, CoreKind::kSchema,
                            CoreKind::kLanguageModeling};
  if (bytes.empty()) return;
  parse_core_rows(bytes.substr(1), kinds[unsigned(bytes[0]) % 3], "rows.jsonl");
}
std::vector<std::string> core_rows() {
  using namespace std::string_literals;
  return {"\0{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n"s,
          "\1{\"context_options\": [\"a\", \"b\"], \"continuation\": \"c\", \"gold\": 0}\n"s,
          "\2{\"context\": \"a\", \"continuation\": \"b\"}\n"s};
}

// The list of tasks, a zero byte, the table of baselines.
void parse_core_list(std::string_view bytes) {
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  parse_core_yaml(std::string(bytes.substr(0, cut)), "core.yaml");
  parse_csv(bytes.substr(std::min(cut + 1, bytes.size())), "eval_meta_data.csv");
}
std::vector<std::string> core_lists() {
  using namespace std::string_literals;
  return {
      "icl_tasks:\n- label: arc\n  dataset_uri: arc.jsonl\n  num_fewshot: [10]\n"
      "  icl_task_type: multiple_choice\n  continuation_delimiter: ': '\n\0"
      "Eval Task,Random baseline\narc,25\n\"a, \"\"b\"\"\",0\n"s};
}

void parse_prompt_lines(std::string_view bytes) {
  parse_piped_prompts(bytes, "standard input");
}
std::vector<std::string> prompts() {
  return {"Once upon\nA time\n", "{\"prompt\": \"Once\"}\n{\"prompt\": \"A\\ntime\"}\n"};
}

void parse_receipt_text(std::string_view bytes) {
  Receipt receipt;
  try {
    receipt = parse_receipt(std::string(bytes), "receipt.json");
  } catch (const DamagedReceipt&) {
    return;
  }
  CHECK(to_text(parse_receipt(to_text(receipt), "written")) == to_text(receipt),
        "a receipt changes when it is written and read");
}
std::vector<std::string> receipts() {
  Receipt receipt;
  receipt.kind = "run";
  receipt.name = "r";
  receipt.claims.push_back(
      {.name = "tokens", .value = 4096, .unit = "tokens", .how = {{"rule", "tokens"}}});
  return {to_text(receipt)};
}

void parse_anchor(std::string_view bytes) {
  parse_anchor_log(std::string(bytes), "anchor.log");
}
std::vector<std::string> anchors() {
  return {"s:0 tel:11.0\ns:1 trl:10.9\ns:250 tel:4.5\n",
          "s:0 tel:11.0\ns:100 tel:4.5000\ns:100 eval:0.2500\n"};
}

void parse_published(std::string_view bytes) {
  read_published_receipts(put("published.json", bytes));
}
std::vector<std::string> published() {
  return {R"({"post": "0003", "title": "t", "artifacts": []})"};
}

}  // namespace

const Target kModelFolderTarget = {"model_folder", parse_model_folder, model_folders};
const Target kCoreRowsTarget = {"core_rows", parse_core, core_rows};
const Target kCoreListTarget = {"core_list", parse_core_list, core_lists};
const Target kPromptsTarget = {"prompts", parse_prompt_lines, prompts};
const Target kReceiptTarget = {"receipt", parse_receipt_text, receipts};
const Target kAnchorLogTarget = {"anchor_log", parse_anchor, anchors};
const Target kPublishedTarget = {"published", parse_published, published};

}  // namespace assay::fuzz
