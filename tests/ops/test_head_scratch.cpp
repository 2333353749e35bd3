// Bytes of the head's scratch (ops/head_loss.h).
#include "base/bf16.h"
#include "base/math.h"
#include "ops/head_loss.h"
#include "tests/catch.h"

namespace assay {

namespace {

// From one row of a chunk to the next, `bytes` without those of the losses.
int64_t stride(int64_t bytes, int64_t rows) {
  REQUIRE(bytes % rows == 0);
  return bytes / rows;
}

}  // namespace

TEST_CASE("rows of logits on a CPU have gaps, so that 32 of them fill a cache of 64 sets evenly") {
  const int64_t rows = head_loss_chunk_rows(INT64_MAX), nats = round_up(rows * 4, 64);
  for (const int64_t vocab : {1, 70, 2047, 2048, 8192, 8193, 50304, 65536}) {
    CAPTURE(vocab);
    const int64_t eval = head_loss_eval_scratch_bytes<bf16>(Backend::kCpu, rows, vocab);
    const int64_t both = head_loss_scratch_bytes<bf16>(Backend::kCpu, rows, vocab);
    const int64_t logits = stride(eval - nats, rows), gradient = stride(both - eval, rows);
    REQUIRE(logits % 256 == 128);
    REQUIRE(gradient % 256 == 128);
    REQUIRE((logits >= 4 * vocab && logits < 4 * vocab + 256));
    REQUIRE((gradient >= 2 * vocab && gradient < 2 * vocab + 256));
    // In fp32 logits become their gradient in place.
    REQUIRE(head_loss_scratch_bytes<float>(Backend::kCpu, rows, vocab) == eval);
    REQUIRE(head_loss_eval_scratch_bytes<float>(Backend::kCpu, rows, vocab) == eval);
  }
}

TEST_CASE("rows of logits on a GPU have no gaps") {
  const int64_t few = 100 * 2048, many = 8192 * 2048;  // logits
  REQUIRE(head_loss_scratch_bytes<bf16>(Backend::kGpu, 100, 2048) == 448 + (2 + 4) * few);
  REQUIRE(head_loss_eval_scratch_bytes<bf16>(Backend::kGpu, 100, 2048) == 448 + 4 * few);
  REQUIRE(head_loss_scratch_bytes<float>(Backend::kGpu, 100, 2048) == 448 + 4 * few + 64);
  REQUIRE(head_loss_scratch_bytes<bf16>(Backend::kGpu, 16384, 2048) == 32768 + 2 * many + 64);
  REQUIRE(head_loss_eval_scratch_bytes<bf16>(Backend::kGpu, 16384, 2048) == 32768 + 2 * many + 64);
}

}  // namespace assay
