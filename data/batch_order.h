// Which tokens a step trains on: the blocks of batch_tokens of one list of shards in order, or
// sequences drawn from several sources by weight (data/mixture.h). Both are functions of the step,
// so a run can resume at any step.
//
// In a mixture the n-th sequence drawn from a source is the n-th block of `sequence` tokens of its
// shards in order; a source that is used up starts over in its next epoch, while the others
// continue. The draws do not depend on ranks or micro_batch.
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

  virtual int64_t batches_per_epoch()
      const = 0;  // 0 for a mixture, whose sources have their own epochs
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
