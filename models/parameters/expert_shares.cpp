#include "models/parameters/expert_shares.h"

#include "base/check.h"
#include "engine/shards.h"
#include "models/parameters/table.h"

namespace assay {

std::string why_own_bits(const Config& config, const Layout& layout) {
  if (layout.expert_ranks == 1) return "";
  std::string why;
  const int64_t micros = config.run.batch_tokens / config.run.sequence / config.run.micro_batch;
  if (micros > layout.ranks) why = "a rank has more than one micro-batch a step";
  for (const ParameterSpec& spec : parameter_table(config.model, layout)) {
    if (!spec.shared_out() || spec.size() % kShardPiece == 0) continue;
    why = strprintf("a share of %s is no multiple of %ld elements", spec.name.c_str(),
                    long(kShardPiece));
  }
  if ((layout.expert_ranks & (layout.expert_ranks - 1)) != 0 && layout.replicas() > 1) {
    why = "parallel.expert_ranks is no power of two";
  }
  return why;
}

}  // namespace assay
