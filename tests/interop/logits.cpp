// interop_logits RUN TOKENS.safetensors OUT.safetensors: writes a checkpoint's logits after each
// token of some texts, computed one token at a time. TOKENS has "tokens" (texts, positions), OUT
// gets "logits" (texts, positions, vocabulary).
#include <cstdio>

#include "base/check.h"
#include "engine/run/safetensors.h"
#include "session/loaded_model.h"

namespace assay {
namespace {

void write_logits(const std::string& run, const std::string& tokens_path, const std::string& out) {
  const CheckpointSource source = open_checkpoint(run);
  const SafetensorsFile file(tokens_path);
  const SafetensorsFile::Entry* entry = file.find("tokens");
  if (entry == nullptr || entry->shape.size() != 2) {
    throw UserError(tokens_path + " has no tokens (texts, positions)", "compare.py writes it");
  }
  const int64_t texts = entry->shape[0], positions = entry->shape[1];
  const int64_t vocab = source.config.model.vocab_size;
  std::vector<int64_t> tokens(static_cast<size_t>(texts * positions));
  file.read({"tokens", DType::kI64, entry->shape, tokens.data()});

  LoadedModel loaded(source, "cpu", {.positions = positions, .rows = positions});
  loaded.model->plan_cache(loaded.plan, 1);
  loaded.allocate();
  std::vector<float> logits(static_cast<size_t>(texts * positions * vocab));
  for (int64_t i = 0; i < texts * positions; ++i) {
    const auto token = static_cast<int32_t>(tokens[static_cast<size_t>(i)]);
    const TextPart part{.text = 0, .position = i % positions, .tokens = 1};
    const View<float, 2> row{logits.data() + i * vocab, {1, vocab}};
    loaded.model->extend(loaded.on, {.token = {&token, {1}}, .part = {&part, {1}}}, row);
  }
  write_safetensors(out, {{"logits", DType::kF32, {texts, positions, vocab}, logits.data()}});
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  try {
    if (argc != 4)
      throw assay::UserError("expected three arguments", "interop_logits RUN TOKENS OUT");
    assay::write_logits(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
