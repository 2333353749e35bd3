// The precision of the launches that made steps of a run, as its meta.json records it, and whether
// the configuration says the same. A run that resumed may have changed it. A finished one that was
// started again by an older version may have the precision of a launch that made no step.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "lab/receipt/receipt.h"

namespace assay {

// launches: of contributing_launches(). "trained in bf16, and from step 20 on in fp32" for the
// first change; "" if there is none, or if it is not recorded.
std::string precision_change(const std::vector<ReceiptJson>& launches);

// "its last steps were made in nvfp4, config.yaml has fp32"; "" if they agree, or if it is not
// recorded.
std::string other_precision_in_config(const std::vector<ReceiptJson>& launches,
                                      const Config& config);

// What a rerun of these launches of a run of `config` trains in.
struct RerunPrecision {
  PrecisionConfig precision;  // theirs; that of config.yaml where they recorded none
  std::string absent = {};    // why one launch cannot train as they did; "" if it can
};
RerunPrecision precision_of_rerun(const std::vector<ReceiptJson>& launches, const Config& config);

}  // namespace assay
