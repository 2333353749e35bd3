// Which rank owns which elements of the trained parameters (ZeRO-1): the owner of an element adds
// its gradients of all ranks, keeps its moments and steps it; then all ranks get the new value.
//
// The gradients lie one tensor after the other. They are cut into buckets, which are exchanged one
// by one so that what is received needs little memory, and each bucket into neighbouring runs, one
// a rank. A cut is a multiple of kShardPiece elements of its tensor, so that sums over pieces have
// the same bits on any number of ranks (ops/global_norm.h, ops/adamw.h); where Muon steps the
// tensor, no cut goes through a matrix either.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/training_config.h"
#include "engine/parameter_spec.h"

namespace assay {

inline constexpr int64_t kShardPiece = 16384;

// Elements [first, first + count) of a parameter, by its index in Model::parameters().
struct Segment {
  size_t parameter = 0;
  int64_t first = 0, count = 0;
  bool operator==(const Segment&) const = default;
};

class Shards {
 public:
  static constexpr int64_t kBucket = int64_t{16} << 20;
  // kWhole: the tensors that all ranks have whole; kShares: those of which each has a share, owned
  // by the ranks with the same share.
  enum class Of { kWhole, kShares };
  // specs: of Model::parameters(), in their order; the gradients lie in the reverse order
  // (models/parameters/store.cpp). bucket: its elements, at least; 0: all in one.
  Shards(const std::vector<const ParameterSpec*>& specs, OptimizerKind optimizer, int ranks,
         int64_t bucket = kBucket, Of of = Of::kWhole);

  // Runs of segments that lie one after the other, by rank; a rank's may be empty.
  using Bucket = std::vector<std::vector<Segment>>;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // All that a rank owns, in the order of parameters; neighbouring elements are one segment.
  const std::vector<Segment>& of(int rank) const { return of_rank_[size_t(rank)]; }
  int ranks() const { return int(of_rank_.size()); }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::vector<Segment>> of_rank_;
};

// Where a parameter may be cut: rising, the last one its size. Of a share at multiples of
// kShardPiece of the whole tensor.
std::vector<int64_t> shard_cuts(const ParameterSpec& spec, OptimizerKind optimizer);

}  // namespace assay
