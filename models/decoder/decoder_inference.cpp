// Decoder: scoring of texts of any length (score), and their continuation with a KV cache (extend).
#include <algorithm>

#include "base/check.h"
#include "cuda/transfer.h"
#include "models/decoder/decoder_impl.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/zero.h"

namespace assay {

namespace {

// Rows per segment on a GPU, where attention runs one block per segment and head: longer parts are
// split.
constexpr int64_t kGpuPiece = 32;

template <typename E>
View<const E, 1> view_of(const std::vector<E>& v) {
  return {v.data(), {int64_t(v.size())}};
}

}  // namespace

template <typename T>
void Decoder<T>::check_texts(const TextBatch& b) const {
  const int64_t n = b.token.dim[0], most = largest_.tokens();
  CHECK(n <= most && b.row.dim[0] <= most && b.segment.dim[0] <= most && b.position.dim[0] == n &&
            (b.target.empty() || b.target.dim[0] == b.row.dim[0]),
        "decoder: %ld tokens, %ld positions, %ld segments, %ld rows with %ld targets; planned for "
        "%ld",
        long(n), long(b.position.dim[0]), long(b.segment.dim[0]), long(b.row.dim[0]),
        long(b.target.dim[0]), long(most));
  for (int64_t i = 0; i < n; ++i) {
    CHECK(b.token[i] >= 0 && b.token[i] < config_.vocab_size && b.position[i] >= 0 &&
              b.position[i] < largest_.sequence,
          "decoder: token[%ld] = %d at position %d; vocabulary %ld, %ld positions", long(i),
          int(b.token[i]), int(b.position[i]), long(config_.vocab_size), long(largest_.sequence));
  }
}

template <typename T>
template <typename E>
View<const E, 1> Decoder<T>::placed(Exec on, View<E, 1> to, View<const E, 1> from) const {
  if (options_.backend == Backend::kCpu || from.dim[0] == 0) return from;
  copy(on, to.rows(0, from.dim[0]), from);
  return to.rows(0, from.dim[0]);
}

template <typename T>
BatchShape Decoder<T>::texts_shape(Exec on, const TextBatch& batch, const ScoredRows& asked) const {
  return {.batch = 1,
          .sequence = batch.token.dim[0],
          .segment = placed(on, segment_, batch.segment),
          .position = placed(on, position_, batch.position),
          .last_segment = placed(on, last_segment_, view_of(asked.segment)),
          .work = attention_work(batch.segment),
          .last_work = attention_work(view_of(asked.segment)),
          .kept = placed(on, kept_, view_of(asked.kept))};
}

template <typename T>
void Decoder<T>::score(Exec on, const TextBatch& batch, View<float, 1> nats,
                       View<uint8_t, 1> most_likely) {
  check_texts(batch);
  const ScoredRows asked(batch);
  const bool gpu = options_.backend == Backend::kGpu;
  const int64_t count = batch.row.dim[0];
  const View<float, 1> nats_out = gpu ? nats_.rows(0, count) : nats;
  const View<uint8_t, 1> likely_out = gpu ? most_likely_.rows(0, count) : most_likely;
  const BatchShape shape = texts_shape(on, batch, asked);
  forward(on, placed(on, token_, batch.token), shape, Pass::kEvaluate);
  // Gathers the scored rows; a row may occur more than once.
  const View<T, 2> x = scratch_.dnorm.rows(0, count);
  embedding_forward<T>(on, {.y = x,
                            .weight = hidden(shape.after_attention().tokens()),
                            .token = placed(on, row_, view_of(asked.row))});
  zero(on, eval_sum_);
  head_loss_eval<T>(on, {.nats = nats_out,
                         .most_likely = likely_out,
                         .loss_sum = eval_sum_,
                         .scratch = head_scratch_,
                         .x = x,
                         .weight = head_,
                         .target = placed(on, target_, batch.target),
                         .logit_gain = static_cast<float>(config_.logit_gain)});
  if (gpu) {
    copy(on, nats, nats_out);
    copy(on, most_likely, likely_out);
  }
  wait(on);
}

template <typename T>
void Decoder<T>::plan_cache(MemoryPlan& plan, int64_t texts) {
  cache_.plan(plan, config_, options_.backend, texts, largest_.sequence, largest_.tokens());
}

template <typename T>
void Decoder<T>::extend(Exec on, const Extension& extension, View<float, 2> logits) {
  const bool gpu = options_.backend == Backend::kGpu;
  const ExtensionRows rows(extension, cache_.texts, cache_.positions, gpu ? kGpuPiece : 0);
  const TextBatch batch{.token = extension.token,
                        .position = view_of(rows.position),
                        .segment = view_of(rows.segment),
                        .row = view_of(rows.last),
                        .target = {}};
  check_texts(batch);
  const int64_t parts = batch.row.dim[0];
  CHECK(parts <= cache_.texts && logits.dim[0] == parts && logits.dim[1] == config_.vocab_size,
        "extend: logits (%ld, %ld) of %ld parts, %ld texts planned, vocabulary %ld",
        long(logits.dim[0]), long(logits.dim[1]), long(parts), long(cache_.texts),
        long(config_.vocab_size));
  const ScoredRows asked(batch);  // the last row of each part, in order
  BatchShape shape = texts_shape(on, batch, asked);
  shape.cache_row = placed(on, cache_.row, view_of(rows.cache_row));
  forward(on, placed(on, token_, batch.token), shape, Pass::kEvaluate);
  const View<float, 2> out = gpu ? cache_.logits.rows(0, parts) : logits;
  head_logits(on, hidden(parts), out);
  if (gpu) copy(on, logits, out);
  wait(on);
  const auto gain = static_cast<float>(config_.logit_gain);
  if (gain == 1.0f) return;
  for (int64_t i = 0; i < logits.size(); ++i) logits[i] *= gain;
}

template <typename T>
void Decoder<T>::head_logits(Exec on, View<const T, 2> rows, View<float, 2> logits) const {
  // The workspace is planned for this many rows.
  const int64_t chunk = head_loss_chunk_rows(largest_.tokens());
  for (int64_t i = 0; i < rows.dim[0]; i += chunk) {
    const int64_t count = std::min(chunk, rows.dim[0] - i);
    linear_forward<T, float>(
        on, {.y = logits.rows(i, count), .x = rows.rows(i, count), .weight = head_});
  }
}

template void Decoder<float>::score(Exec, const TextBatch&, View<float, 1>, View<uint8_t, 1>);
template void Decoder<bf16>::score(Exec, const TextBatch&, View<float, 1>, View<uint8_t, 1>);
template void Decoder<float>::plan_cache(MemoryPlan&, int64_t);
template void Decoder<bf16>::plan_cache(MemoryPlan&, int64_t);
template void Decoder<float>::extend(Exec, const Extension&, View<float, 2>);
template void Decoder<bf16>::extend(Exec, const Extension&, View<float, 2>);

}  // namespace assay
