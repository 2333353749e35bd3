// Two ways of writing one thing in a configuration: a default may be left out or written.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace assay {

// True if the field `path`, which both have, means the same in both, however it is written
// (model.kv_heads: 0 or as many as heads; optimizer.router_lr: absent or lr).
bool means_the_same(const std::string& path, const Config& before, const Config& now);

// Gives fields of `now` the values of `begun` where both mean the same, so that a run that goes on
// keeps its config.yaml and with it what it is compared by.
void keep_spelling(const Config& begun, Config& now);

}  // namespace assay
