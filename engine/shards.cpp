#include "engine/shards.h"

#include <algorithm>

#include "base/check.h"
#include "engine/optimizer_muon.h"

namespace assay {

namespace {

// Adds a segment to a run, joined with the last one if it goes on there.
void append(std::vector<Segment>& run, const Segment& s) {
  if (!run.empty() && run.back().parameter == s.parameter &&
      run.back().first + run.back().count == s.first) {
    run.back().count += s.count;
  } else {
    run.push_back(s);
  }
}

// Cuts neighbouring units of `elements` elements in all into runs of about equal size: the unit
// whose middle lies in the r-th share goes to rank r.
Shards::Bucket dealt(const std::vector<Segment>& units, int64_t elements, int ranks) {
  Shards::Bucket bucket(static_cast<size_t>(ranks));
  int64_t before = 0;
  for (const Segment& unit : units) {
    const double middle = double(before) + 0.5 * double(unit.count);
    const int rank = std::min(ranks - 1, int(middle * ranks / double(elements)));
    append(bucket[size_t(rank)], unit);
    before += unit.count;
  }
  return bucket;
}

}  // namespace

std::vector<int64_t> shard_cuts(const ParameterSpec& spec, OptimizerKind optimizer) {
  const int64_t size = spec.size();
  std::vector<int64_t> cuts;
  if (optimizer == OptimizerKind::kMuon && spec.is_hidden_matrix()) {
    for (const MuonStack& stack : muon_stacks(spec)) {
      const int64_t matrix = stack.rows * stack.cols;
      for (int64_t end = matrix; end <= stack.size(); end += matrix) {
        const bool whole = end == stack.size() || end % kShardPiece == 0;
        if (whole && (stack.begin + end) % kShardPiece == 0) cuts.push_back(stack.begin + end);
      }
    }
  } else {
    const int64_t head = kShardPiece - spec.first_element() % kShardPiece;  // up to the first cut
    for (int64_t end = head; end <= size; end += kShardPiece) cuts.push_back(end);
  }
  if (cuts.empty() || cuts.back() != size) cuts.push_back(size);
  return cuts;
}

Shards::Shards(const std::vector<const ParameterSpec*>& specs, OptimizerKind optimizer, int ranks,
               int64_t bucket, Of of)
    : of_rank_(static_cast<size_t>(ranks)) {
  CHECK(ranks >= 1, "shards for %d ranks", ranks);
  std::vector<Segment> units;
  int64_t elements = 0;
  const auto close = [&] {
    if (units.empty()) return;
    buckets_.push_back(dealt(units, elements, ranks));
    units.clear();
    elements = 0;
  };
  for (size_t p = specs.size(); p-- > 0;) {
    if (specs[p]->shared_out() != (of == Of::kShares)) continue;
    int64_t first = 0;
    for (const int64_t cut : shard_cuts(*specs[p], optimizer)) {
      units.push_back({p, first, cut - first});
      elements += cut - first;
      first = cut;
      if (bucket > 0 && elements >= bucket) close();
    }
  }
  close();
  for (size_t r = 0; r < of_rank_.size(); ++r) {
    std::vector<Segment> all;
    for (const Bucket& b : buckets_) all.insert(all.end(), b[r].begin(), b[r].end());
    std::sort(all.begin(), all.end(), [](const Segment& a, const Segment& b) {
      return a.parameter != b.parameter ? a.parameter < b.parameter : a.first < b.first;
    });
    for (const Segment& s : all) append(of_rank_[r], s);
  }
}

}  // namespace assay
