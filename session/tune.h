// `assay tune`: times the library's proposals for every dense product of a model's step on a GPU,
// and keeps the fastest of each (session/product_files.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cuda/product_library.h"
#include "session/product_files.h"
#include "session/session.h"

namespace assay {

struct TuneOptions {
  int64_t workspace_bytes = 0;  // that the products may use; the model's own needs come on top
  int proposals = 16;
  int rounds = 9;
  double heat_s = 0.3;  // of work before each product is timed
};

// Of one proposal: microseconds of a call, by rounds.
struct TimedProposal {
  gpu::ProductProposal proposal;
  std::vector<double> us;
  double median_us() const;
};
// Which of the others, by median, is to be kept in place of the library's own first proposal,
// timed[0]: the fastest if it is faster by more than 1% (less is noise, and a change of bits for
// nothing), else the one with the attributes of the first. Nothing if that is slower, or is none:
// what cannot be made anew from its attributes is not kept as data.
std::optional<size_t> to_keep(const std::vector<TimedProposal>& timed);

struct TuneProgress {
  size_t done, products;
  const gpu::ProductKey& key;  // of the latest
  const KeptProduct* kept;     // null: the first proposal stays, and is not in the file
  double seconds_left;
};
struct TuneWatch {
  std::function<void(const TuneProgress&)> on_product = {};
  std::function<bool()> stop_requested = {};
};

// Runs two micro-batches of the configuration and an evaluation of it on random tokens, and times
// their products in the memory that they have there. The model is made for this and freed. Nothing
// if it was stopped. UserError: no GPU, products that have one way only, not enough memory.
std::optional<TuneFile> tune(const Session& session, const TuneOptions& options,
                             const TuneWatch& watch = {});

}  // namespace assay
