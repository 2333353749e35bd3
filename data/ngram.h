// Interpolated Kneser-Ney n-gram models, whose losses are a scale for a trained model's loss: the
// unigram loss is what token frequencies alone reach, the 5-gram loss what four tokens of context
// reach.
//
//   P_k(w | h) = max(c(hw) - D_k, 0) / c(h) + D_k t(h) / c(h) * Q_{k-1}(w | h')
//   Q_k = the same with continuation counts, the number of different tokens seen before hw
//   Q_0 = 1 / V,    t(h) = number of different w after h,    h' = h without its oldest token
//   D_k = n1 / (n1 + 2 n2), n1 and n2 the number of counts that are one and two
//
// P_k is the model of order k; for an unseen context it is Q_{k-1}. Documents follow each other as
// in the shards, with the EOT token between them, as in the training of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/view.h"

namespace assay {

class NgramModel {
 public:
  // Counts all n-grams up to `order` tokens; ids are below vocab_size.
  NgramModel(int order, int64_t vocab_size, View<const int32_t, 1> train);

  // Probability of the last token of `tokens` after those before it, by the model of order `order`.
  double probability(int order, View<const int32_t, 1> tokens) const;
  // Mean loss in nats per token of the models of order 1, 2, ..., order(), over the same targets:
  // all tokens except the first.
  std::vector<double> losses(View<const int32_t, 1> tokens) const;

  int order() const { return order_; }

 private:
  struct Count {
    uint64_t key = 0;  // 0: free
    uint32_t count = 0;
    uint32_t continuation = 0;
  };
  struct Context {
    uint64_t key = 0;  // 0: free
    uint32_t count = 0;
    uint32_t continuation = 0;
    uint32_t types = 0;               // t(h) of P_k
    uint32_t continuation_types = 0;  // t(h) of Q_k, over w with a token seen before hw
  };
  // Open addressing by the 64-bit hash of the tokens. Collisions of different n-grams are not
  // handled (probability under 1e-5 for ten million n-grams).
  template <typename Entry>
  class Table {
   public:
    Entry& insert(uint64_t key);
    const Entry* find(uint64_t key) const;
    const std::vector<Entry>& entries() const { return entries_; }

   private:
    std::vector<Entry> entries_ = std::vector<Entry>(1 << 12);
    size_t used_ = 0;
  };
  struct Level {
    Table<Count> counts;
    Table<Context> contexts;
    double discount = 0;               // D of P_k
    double continuation_discount = 0;  // D of Q_k
  };

  void count(View<const int32_t, 1> train);
  // Writes p[k - 1] = P_k of tokens[at] after the tokens before it, for k = 1 .. order_.
  void probabilities(View<const int32_t, 1> tokens, int64_t at, double* p) const;

  int order_;
  int64_t vocab_size_;
  std::vector<Level> levels_;  // [k - 1]
};

}  // namespace assay
