// assay export: writes a checkpoint as a folder that transformers opens.
#include "interop/export.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/memory_units.h"
#include "base/read_failed.h"
#include "base/shell_word.h"
#include "engine/run/imported_run.h"
#include "engine/run/run_dir.h"
#include "session/loaded_model.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct ExportArguments {
  std::string checkpoint, out, tokenizer;
  std::string format = "hf", dtype;
  int64_t max_shard_mib = 4096;
  bool json = false;
};

// The run's tokenizer; nothing, with the reason in `why_not`, if it has none. UserError if the one
// given by --tokenizer cannot be used.
std::optional<Tokenizer> tokenizer_of(const CheckpointSource& source, const ExportArguments& a,
                                      std::string& why_not) {
  if (!a.tokenizer.empty()) return checkpoint_tokenizer(source, a.tokenizer);
  std::optional<Tokenizer> tokenizer;
  const auto problem = problem_of([&] { tokenizer = checkpoint_tokenizer(source, ""); });
  if (problem) why_not = problem->what();
  return tokenizer;
}

// Of a transformers tokenizer, some of them in each folder.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "added_tokens.json",
                                           "merges.txt",
                                           "chat_template.jinja"};

// How the exported folder comes to a tokenizer. The one of an imported model that Assay cannot use
// is in the folder of that model, and transformers reads it.
std::string way_to_tokenizer(const CheckpointSource& source, const std::string& out) {
  const std::string run = run_of(source);
  if (left_tokenizer(run).empty()) return "--tokenizer FILE adds them";
  const std::string folder = imported_folder(run);
  std::string files;
  for (const char* name : kTokenizerFiles) {
    const std::string file = folder + "/" + name;
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) files += shell_word(file) + " ";
  }
  return files.empty() ? "copy those of the model that was imported into " + out
                       : "copy the model's own: cp " + files + shell_word(out);
}

DType dtype_of(const ExportArguments& a, const Config& config) {
  if (!a.dtype.empty()) return a.dtype == "fp32" ? DType::kF32 : DType::kBF16;
  return resolve_recipe(config.precision.recipe) == Recipe::kFp32 ? DType::kF32 : DType::kBF16;
}

int export_hf(const ExportArguments& a) {
  const CheckpointSource source = open_checkpoint(a.checkpoint);
  choose_family(source.config.model);  // fails before a corpus is built for its tokenizer
  std::string no_tokenizer;
  const std::optional<Tokenizer> tokenizer = tokenizer_of(source, a, no_tokenizer);
  const DType dtype = dtype_of(a, source.config);
  const Exported exported = export_checkpoint(source.config,
                                              {.checkpoint = source.folder,
                                               .out = a.out,
                                               .dtype = dtype,
                                               .shard_bytes = a.max_shard_mib << 20,
                                               .imported = imported_facts(run_of(source))},
                                              tokenizer);
  const std::string architecture = family_name(exported.family).architecture;
  if (a.json) {
    ordered_json j;
    j["checkpoint"] = source.folder;
    j["step"] = source.state.step;
    j["out"] = a.out;
    j["architecture"] = architecture;
    j["dtype"] = dtype_name(dtype);
    j["tensors"] = exported.tensors;
    j["tensor_bytes"] = exported.bytes;
    j["files"] = exported.files;
    j["folded"] = exported.folded;
    if (!exported.not_opened.empty()) j["not_opened"] = exported.not_opened;
    j["tokenizer"] = tokenizer.has_value();
    if (!tokenizer) j["no_tokenizer"] = no_tokenizer;
    print_json(j);
    return kExitDone;
  }
  std::printf("%s, step %ld, as %s in %s\n", source.folder.c_str(), long(source.state.step),
              architecture.c_str(), a.out.c_str());
  std::printf("  %ld tensors, %s, %.1f MiB in %zu %s\n", long(exported.tensors), dtype_name(dtype),
              in_mib(exported.bytes), exported.files.size(),
              exported.files.size() == 1 ? "file" : "files");
  for (const std::string& gain : exported.folded) std::printf("  folded %s\n", gain.c_str());
  if (!exported.not_opened.empty()) std::printf("  %s\n", exported.not_opened.c_str());
  if (tokenizer) {
    std::printf("  tokenizer.json, tokenizer_config.json: %ld tokens\n",
                long(tokenizer->vocab_size()));
    std::printf(
        "  AutoTokenizer begins a text with <|endoftext|>, as sample does; "
        "add_special_tokens=False leaves it out\n");
  } else {
    std::printf("  no tokenizer files: %s; %s\n", no_tokenizer.c_str(),
                way_to_tokenizer(source, a.out).c_str());
  }
  return kExitDone;
}

}  // namespace

void add_export_command(Commands& commands) {
  auto a = std::make_shared<ExportArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "export", "write a checkpoint as a folder that transformers can load");
  sub->add_option("RUN", a->checkpoint,
                  "a run (its newest checkpoint is used) or a checkpoint: RUN/checkpoints/step-N")
      ->required();
  sub->add_option("-o,--out", a->out, "folder to create; an existing one must be empty")
      ->required();
  sub->add_option("--format", a->format, "hf (the only format): safetensors and config.json")
      ->check(CLI::IsMember({"hf"}));
  sub->add_option(
         "--dtype", a->dtype,
         "bf16 or fp32 (default: the type the run computed in; checkpoints hold fp32); selection "
         "biases are always fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  sub->add_option("--max-shard-mib", a->max_shard_mib,
                  "split larger models into files of at most this many MiB, with an index "
                  "(default: 4096)")
      ->check(whole_between(int64_t{1}, int64_t{1} << 20));
  sub->add_option("--tokenizer", a->tokenizer,
                  "the tokenizer, if it is not the one of the run's data");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "The class of transformers that a model becomes:\n"
      "  dense                           LlamaForCausalLM; with model.qk_norm Qwen3ForCausalLM\n"
      "  softmax router                  MixtralForCausalLM; with model.qk_norm "
      "Qwen3MoeForCausalLM, also with gates that are not normalised and dense blocks first\n"
      "  sigmoid router                  Glm4MoeForCausalLM, also with a selection bias, shared "
      "experts and dense blocks first\n"
      "Gains that the class has no field for are multiplied into weights. A model that no class "
      "can express is refused, so an exported model computes what its checkpoint computes.\n"
      "Examples:\n"
      "  assay export runs/demo-moe -o exported\n"
      "  assay export runs/demo-moe/checkpoints/step-00000720 -o exported --dtype fp32\n"
      "transformers.AutoModelForCausalLM.from_pretrained('exported') loads it.\n"
      "docs/interop.md lists tensor names and comparisons; assay import is the way back.");
  commands.on_chosen(sub, [a] { return export_hf(*a); });
}

}  // namespace assay
