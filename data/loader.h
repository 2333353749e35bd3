// Delivers the batches of a run, read one step ahead.
//
// A batch is a number of sequences, drawn from one list of shards or from a mixture of several
// sources, shuffled or in order (data/batch_order.h). A rank takes its contiguous part of a batch
// and cuts it into micro-batches of micro_batch sequences. target[i] is the token after token[i] in
// the text, at the end of a sequence too. The order depends on files, seed and batch_tokens, not on
// ranks or micro_batch. At the end of the data another epoch begins; epochs are counted and
// announced.
//
// A thread reads one step ahead. After the first next_step() nothing is allocated.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/math.h"
#include "base/view.h"
#include "cuda/memory_plan.h"
#include "data/batch_order.h"

namespace assay {

struct Batch {
  View<const int32_t, 1> token;   // (micro_batch * sequence)
  View<const int32_t, 1> target;  // (micro_batch * sequence)   the token after token[i]
};

// One source of a mixture.
struct MixtureSource {
  std::string name;
  std::vector<std::string> files;
  double weight = 0;
};

enum class Shuffle { kNo, kYes };

struct LoaderConfig {
  std::vector<std::string> files;
  std::vector<MixtureSource> mixture = {};  // if not empty, drawn from by weight instead of `files`
  HashedFiles hashed = {};                  // what the files must have; may be empty
  Shuffle shuffle = Shuffle::kNo;           // sequences in a new order in every epoch
  uint64_t seed = 0;                        // seeds that order and the draws of the mixture
  int64_t batch_tokens = 0;                 // per optimizer step, of all ranks together
  int64_t sequence = 0;
  int64_t micro_batch = 0;  // sequences
  int rank = 0;
  int ranks = 1;
  IdLimit vocab_size = 0;
  // Called on the caller's thread when a new epoch begins; empty = one line on stderr.
  std::function<void(const std::string&)> say = {};
};

class Loader {
 public:
  // UserError: unreadable or damaged shard, an id beyond `vocab_size` (all ids are checked here
  // if the shards have at most 1 GiB, otherwise as they are read), sizes that do not divide, too
  // few tokens.
  explicit Loader(LoaderConfig config);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // Registers the buffers. Optional: otherwise they are allocated at the first next_step().
  void plan(MemoryPlan& memory);
  int64_t bytes() const;

  // Advances to the next batch; the views of micro() are valid until the following call.
  void next_step();
  int micro_batches() const { return micro_batches_; }
  Batch micro(int i) const;
  // Targets of this rank in the current step that differ from mask_id; -1 counts all.
  int64_t counted_targets(int mask_id) const;

  Cursor cursor() const { return cursor_of(next_); }
  int64_t epoch() const { return current_epoch_; }
  double epochs(int64_t steps) const { return order_->epochs(steps); }
  void seek(Cursor cursor);  // UserError when the data has no such batch
  void seek(int64_t step) { seek(cursor_of(step)); }
  Cursor cursor_of(int64_t step) const { return order_->cursor_of(step); }

  // What a mixture has drawn from each source, up to the current step or after `steps` steps; empty
  // without a mixture.
  std::span<const SourceUse> source_use() { return source_use(next_); }
  std::span<const SourceUse> source_use(int64_t steps) { return order_->use(steps); }
  std::vector<int64_t> source_sequences() const { return order_->source_sequences(); }
  const std::vector<MixtureSource>& mixture() const { return config_.mixture; }

 private:
  void allocate();
  void request(int64_t step);
  void wait_idle();
  void work();
  void announce(const std::string& line) const;

  LoaderConfig config_;
  std::unique_ptr<BatchOrder> order_;
  int64_t rank_tokens_;
  int micro_batches_;

  std::vector<int32_t> own_tokens_;  // used when plan() was not called
  std::vector<std::byte> own_raw_;
  View<int32_t, 2> tokens_;  // (2, row_tokens)   the current batch and the one being read
  View<std::byte, 1> raw_;   // (raw_bytes)

  int64_t next_ = 0;  // the step that the following next_step() delivers
  int64_t current_epoch_ = 0;
  int current_ = 0;  // row of tokens_ that micro() returns
  bool have_batch_ = false;

  // Shared with the thread, under mutex_. The thread owns row 1 - current_ while state_ is kWanted.
  enum class State { kIdle, kWanted, kReady, kStop };
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  int64_t wanted_ = 0;
  int wanted_row_ = 0;
  std::exception_ptr failure_;
  std::thread thread_;
};

// The first `tokens` tokens of the validation shards, read once: whole sequences of `sequence`
// tokens, rounded up, none across a shard's end. The tokens do not depend on micro_batch; the last
// micro-batch may have fewer sequences. Every rank reads all of them, because it adds up the losses
// of all targets; ranks share the computing by whole micro-batches (eval/validation.h), which so
// have the same sequences for any number of ranks. UserError when there is no whole sequence, and
// for an id beyond `vocab_size`.
class ValidationSet {
 public:
  struct Config {
    std::vector<std::string> files;
    HashedFiles hashed = {};  // what the files must have; may be empty
    int64_t tokens = 0;
    int64_t sequence = 0;
    int64_t micro_batch = 0;
    IdLimit vocab_size = 0;
  };
  explicit ValidationSet(const Config& config);

  int micro_batches() const { return static_cast<int>(ceil_div(sequences_, micro_batch_)); }
  Batch micro(int i) const;
  int64_t tokens() const { return sequences_ * sequence_; }
  int64_t bytes() const {
    return static_cast<int64_t>((token_.size() + target_.size()) * sizeof(int32_t));
  }

 private:
  int64_t sequence_;
  int64_t micro_batch_;
  int64_t sequences_ = 0;
  std::vector<int32_t> token_;
  std::vector<int32_t> target_;
};

}  // namespace assay
