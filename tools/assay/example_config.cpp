#include "tools/assay/example_config.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "base/suggest.h"
#include "engine/config/fields.h"
#include "engine/config/text.h"

namespace assay {

const char* example_config() {
  return R"yaml(# A small mixture of experts on generated stories, without a download: about two minutes on two
# cores with AMX or AVX512-BF16, several times as long on other CPUs.
#   assay train my.yaml                        trains; Ctrl-C saves, the same command resumes
#   assay train my.yaml --plan                 the memory it needs
#   assay train --help-config                  every field; --help-config model.moe shows one section
# Every field can be changed for one run: --set optimizer.lr=1e-3. Paths are relative to this file.

model:
  hidden: 128                # width of the model
  layers: 4
  heads: 2                   # hidden / heads must be 32, 64 or 128
  ffn: 256                   # inner width of the feed-forward part, where a layer has no experts
  vocab_size: 4096           # at least that of the tokenizer
  moe:                       # take this section out for a dense model
    experts: 4               # per layer
    top_k: 2                 # experts per token
    expert_ffn: 128          # inner width of one expert
    router:
      score: softmax         # or sigmoid
      aux: switch            # load-balancing loss, or none
      aux_alpha: 0.01        # its weight
      bias_rate: 0           # step of a selection bias, which balances without a loss: 0.001, or auto
      z_alpha: 0.001         # weight of the penalty on large router logits

data:
  cache: data-cache          # generated stories are kept here
  synth: {train_tokens: 4000000, val_tokens: 200000, vocab_size: 4096}
  # Your own text: delete the line `synth` above, and take the three lines below. Their paths are
  # those of a file that lies beside the shards, as mine/config.yaml does after
  #   assay tokenizer train texts/ --vocab-size 4096 -o mine/tokenizer.json
  #   assay data prepare texts/ --tokenizer mine/tokenizer.json --val-share 0.01 -o mine
  # train: ["*_train_*.bin"]
  # val: ["*_val_*.bin"]
  # tokenizer: tokenizer.json

optimizer:                   # AdamW
  lr: 0.003                  # peak learning rate
  weight_decay: 0.1
  clip: 1.0                  # largest norm of the gradient; 0 = no clipping

schedule:
  warmup_fraction: 0.05      # share of the steps in which the learning rate rises
  warmdown_fraction: 0.35    # share of the steps, at the end, in which it falls
  decay: linear              # or cosine

run:
  steps: 600                 # steps of the optimizer
  batch_tokens: 4096         # tokens per step
  sequence: 256              # tokens per sequence
  micro_batch: 16            # sequences computed at once: less needs less memory; the auxiliary
                             # loss of the routers is of these (router: aux_scope)
  seed: 1
  threads: 0                 # CPU threads; 0 = all usable cores
  checkpoint_every: 200      # steps
  log_every: 1               # steps

eval:
  every: 100                 # steps between validations
  tokens: 65536              # validation tokens
  samples:                   # texts that show what the model writes
    prompts: [Once upon a time]
    tokens: 48               # per prompt

# precision: {recipe: bf16}  # auto: bf16 where the machine is fast in it, else fp32; mxfp8, nvfp4, ...
)yaml";
}

std::string help_config_section(const std::string& section) {
  std::vector<std::string> sections;
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") sections.push_back(row.path);
  }
  // help_config() lists every section once: "model.moe (optional): ...", then its fields.
  std::istringstream all(help_config());
  std::string line, text;
  bool inside = false;
  while (std::getline(all, line)) {
    if (!line.empty() && line[0] != ' ') {
      const std::string path = line.substr(0, line.find_first_of(" :"));
      inside = path == section || path.rfind(section + ".", 0) == 0;
      if (inside && !text.empty()) text += "\n";
    }
    if (inside && !line.empty()) text += line + "\n";
  }
  if (!text.empty()) return text;
  const auto inner = std::find_if(sections.begin(), sections.end(), [&](const std::string& name) {
    return name.ends_with("." + section);  // model.moe for moe
  });
  const std::string near = inner == sections.end() ? nearest_name(section, sections) : *inner;
  throw UserError(
      "a configuration has no section " + section,
      near.empty() ? "its sections are " + joined(sections, ", ") : "did you mean " + near + "?");
}

}  // namespace assay
