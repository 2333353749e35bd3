// Which sequences a step trains on, as a function of the step, so that a run can resume at any
// step.
//
//   in order   the blocks of batch_tokens of one list of shards, one after the other (data.shuffle:
//              false)
//   shuffled   sequences of one list of shards: every one of them once per epoch, in an order drawn
//              from the seed and the epoch (data/sequence_order.h). A step takes the next
//              batch_tokens / sequence of this endless series, so it may end one epoch and begin
//              the next.
//   mixed      sequences drawn from several sources by weight (data/mixture.h). The n-th sequence
//              drawn from a source is the n-th of its shards, in order or shuffled as above; a
//              source that is used up begins its next epoch, while the others continue.
//
// In order, batch b of a shard is its tokens [b * batch_tokens, (b + 1) * batch_tokens) and one
// token of look-ahead; a shard has floor((tokens - 1) / batch_tokens) batches and its tail is
// dropped. The same holds for sequences of `sequence` tokens in the other two. Ranks and
// micro_batch change nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/view.h"
#include "data/shard_blocks.h"

namespace assay {

struct LoaderConfig;

// What a mixture has drawn from one source so far.
struct SourceUse {
  double share = 0;   // fraction of all sequences drawn
  double epochs = 0;  // sequences drawn / sequences of the source
};

class BatchOrder {
 public:
  virtual ~BatchOrder() = default;

  // A row is what a rank reads of a step: row[target_at() + i] is the target of row[i].
  virtual int64_t row_tokens() const = 0;
  virtual int64_t target_at() const = 0;
  virtual int64_t raw_bytes() const = 0;  // scratch of read()
  // Called on the loader's thread; all other functions on the caller's.
  virtual void read(int64_t step, View<int32_t, 1> row, View<std::byte, 1> raw) = 0;

  // Passes over the data in `steps` steps; 0 for a mixture, whose sources have their own epochs.
  virtual double epochs(int64_t steps) const = 0;
  virtual Cursor cursor_of(int64_t step) const = 0;
  virtual int64_t step_of(const Cursor& cursor) const = 0;  // UserError when there is no such step
  // One line for each epoch after the first that begins in the step.
  virtual std::vector<std::string> begins_again(int64_t step) = 0;
  // (sources) after `steps` steps, valid until the next call; empty without a mixture.
  virtual std::span<const SourceUse> use(int64_t steps) = 0;
  // Sequences in one epoch of each source; empty without a mixture.
  virtual std::vector<int64_t> source_sequences() const = 0;
};

// UserError: files that are not shards, ids outside the vocabulary, too few tokens.
std::unique_ptr<BatchOrder> make_batch_order(const LoaderConfig& config);

}  // namespace assay
