// Hand-made runs of two models, for tests of their comparison.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/lab/run_records.h"

namespace assay::compared_runs {

// A run validated at steps 20, 40, ..., whose last loss is `end`.
inline RunRecord run_of(const std::string& name, int64_t seed, int64_t ffn, double end) {
  RunRecord run = hand_made({.name = name, .seed = seed});
  run.config.model.ffn = ffn;
  run.data_sha256 = {
      {"/d/tokenizer.json", "aaaa"}, {"/d/x_train_0.bin", "bbbb"}, {"/d/x_val_0.bin", "cccc"}};
  run.val_loss_nats.clear();
  for (int64_t step = 20; step <= 100; step += 20)
    run.val_loss_nats.push_back({.step = step, .value = end + 0.01 * double(100 - step)});
  run.steps_done = 100;
  run.tokens = 100 * run.config.run.batch_tokens;
  for (int64_t step = 10; step <= 100; step += 10)
    run.train_s.push_back({.step = step, .value = 0.5 * double(step)});
  return run;
}

inline std::vector<RunRecord> two_models() {
  return {run_of("dense-s1", 1, 64, 3.30), run_of("dense-s2", 2, 64, 3.32),
          run_of("moe-s1", 1, 99, 3.20), run_of("moe-s2", 2, 99, 3.21)};
}

inline bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace assay::compared_runs
