#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "session/dissect.h"

namespace assay {

namespace {

struct Chosen {
  int64_t count = 0;
  double gate = 0;  // sum
};
// Choices of the tokens of one id.
using ByExpert = std::unordered_map<int32_t, Chosen>;

class RoutingRecorder final : public MoeProbe {
 public:
  RoutingRecorder(const HeldOut& text, RecordOutputs outputs, RecordTokens tokens)
      : text_(text), outputs_(outputs), tokens_(tokens) {
    const size_t layers = text.layers().size();
    const auto experts = size_t(text.config().model.moe->experts);
    for (const int64_t layer : text.layers()) {
      record_.loads.push_back({.layer = layer,
                               .counts = std::vector<int64_t>(experts, 0),
                               .first_use = std::vector<int64_t>(experts, -1)});
    }
    gates_.assign(layers, std::vector<double>(size_t(text.config().model.moe->top_k), 0.0));
    if (tokens == RecordTokens::kYes) {
      half_gates_ = gates_;
      half_loads_ = record_.loads;
      by_token_.resize(layers);
    }
    if (outputs == RecordOutputs::kYes) {
      sums_.assign(layers, std::vector<double>(experts * size_t(text.config().model.hidden), 0.0));
    }
  }

  void begin(int64_t first_sequence, View<const int32_t, 1> token) {
    first_sequence_ = first_sequence;
    token_ = token;
  }

  Changed routed(int64_t layer, View<int32_t, 2> expert, View<float, 2> gate) override {
    const size_t l = index(layer);
    LayerLoads& loads = record_.loads[l];
    for (int64_t t = 0; t < expert.dim[0]; ++t) {
      const int64_t sequence = first_sequence_ + t / text_.sequence();
      for (int64_t k = 0; k < expert.dim[1]; ++k) {
        const auto e = size_t(expert.at(t, k));
        loads.counts[e] += 1;
        if (loads.first_use[e] < 0) loads.first_use[e] = sequence;
        gates_[l][size_t(k)] += double(gate.at(t, k));
        if (tokens_ == RecordTokens::kYes && sequence < half()) {
          half_loads_[l].counts[e] += 1;
          half_gates_[l][size_t(k)] += double(gate.at(t, k));
          Chosen& chosen = by_token_[l][token_[t]][int32_t(e)];
          chosen.count += 1;
          chosen.gate += double(gate.at(t, k));
        }
      }
    }
    return Changed::kNo;
  }
  bool wants_outputs(int64_t) const override { return outputs_ == RecordOutputs::kYes; }
  Changed computed(int64_t layer, View<const int32_t, 2> expert, View<const int32_t, 2> slot,
                   View<float, 2> expert_out) override {
    std::vector<double>& sums = sums_[index(layer)];
    const int64_t width = expert_out.dim[1];
    for (int64_t t = 0; t < expert.dim[0]; ++t) {
      for (int64_t k = 0; k < expert.dim[1]; ++k) {
        const float* const from = expert_out.row(slot.at(t, k));
        double* const to = sums.data() + expert.at(t, k) * width;
        for (int64_t c = 0; c < width; ++c) to[c] += double(from[c]);
      }
    }
    return Changed::kNo;
  }
  bool keeps_shared(int64_t) const override { return true; }

  RoutingRecord finish() {
    const int64_t width = text_.config().model.hidden;
    for (size_t l = 0; l < record_.loads.size(); ++l) {
      const LayerLoads& loads = record_.loads[l];
      std::vector<float> mean;
      for (const double sum : gates_[l]) mean.push_back(float(sum / double(text_.tokens())));
      record_.first_gates.push_back(mean);
      if (outputs_ == RecordOutputs::kYes) {
        std::vector<float> means(sums_[l].size(), 0.0f);
        for (size_t i = 0; i < means.size(); ++i) {
          const int64_t count = loads.counts[i / size_t(width)];
          if (count > 0) means[i] = float(sums_[l][i] / double(count));
        }
        record_.mean_output.push_back(std::move(means));
      }
      if (tokens_ == RecordTokens::kYes) record_.token_tables.push_back(table(l));
    }
    return std::move(record_);
  }

 private:
  size_t index(int64_t layer) const { return size_t(layer - text_.layers().front()); }
  int64_t half() const { return text_.sequences() / 2; }

  RoutingRecord::TokenTable table(size_t l) const {
    const int64_t vocab = text_.config().model.vocab_size, top_k = int64_t(gates_[l].size());
    // Of an id that is not in the first half. A single sequence has none, and takes the whole.
    const bool halved = half() > 0;
    const std::vector<int32_t> busiest = (halved ? half_loads_ : record_.loads)[l].by_load();
    std::vector<float> gates = record_.first_gates[l];
    const auto positions = double(half() * text_.sequence());
    for (size_t k = 0; halved && k < gates.size(); ++k) {
      gates[k] = float(half_gates_[l][k] / positions);
    }
    RoutingRecord::TokenTable table;
    for (int64_t id = 0; id < vocab; ++id) {
      const auto found = by_token_[l].find(int32_t(id));
      if (found == by_token_[l].end()) {
        for (int64_t k = 0; k < top_k; ++k) {
          table.expert.push_back(busiest[size_t(k)]);
          table.gate.push_back(gates[size_t(k)]);
        }
        continue;
      }
      std::vector<std::pair<int32_t, Chosen>> chosen(found->second.begin(), found->second.end());
      std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
        return a.second.count != b.second.count ? a.second.count > b.second.count
                                                : a.first < b.first;
      });
      // The gates of a token of this id add to what they did, as a mean.
      double all = 0, taken = 0;
      int64_t choices = 0;
      for (const auto& [e, c] : chosen) all += c.gate, choices += c.count;
      for (int64_t k = 0; k < top_k; ++k) {
        taken += chosen[size_t(k)].second.gate / double(chosen[size_t(k)].second.count);
      }
      const double per_token = all * double(top_k) / double(choices);
      for (int64_t k = 0; k < top_k; ++k) {
        const Chosen& c = chosen[size_t(k)].second;
        table.expert.push_back(chosen[size_t(k)].first);
        table.gate.push_back(taken > 0 ? float(c.gate / double(c.count) * per_token / taken)
                                       : 0.0f);
      }
    }
    return table;
  }

  const HeldOut& text_;
  const RecordOutputs outputs_;
  const RecordTokens tokens_;
  RoutingRecord record_;
  std::vector<std::vector<double>> gates_, sums_;
  // Of the first half of the sequences, for the tables by token.
  std::vector<std::vector<double>> half_gates_;
  std::vector<LayerLoads> half_loads_;
  std::vector<std::unordered_map<int32_t, ByExpert>> by_token_;
  int64_t first_sequence_ = 0;
  View<const int32_t, 1> token_;
};

}  // namespace

RoutingRecord record_routing(HeldOut& text, RecordOutputs outputs, RecordTokens tokens) {
  RoutingRecorder recorder(text, outputs, tokens);
  std::vector<SequenceNats> nats;
  for (int i = 0; i < text.micro_batches(); ++i) {
    const Batch batch = text.micro(i);
    recorder.begin(int64_t(nats.size()), batch.token);
    add_sequences(text, batch, text.evaluate(i, &recorder), nats);
  }
  RoutingRecord record = recorder.finish();
  record.nats = std::move(nats);
  return record;
}

void add_sequences(const HeldOut& text, const Batch& batch, View<const float, 1> nats,
                   std::vector<SequenceNats>& to) {
  for (int64_t first = 0; first < batch.target.dim[0]; first += text.sequence()) {
    SequenceNats sum;
    for (int64_t i = first; i < first + text.sequence(); ++i) {
      if (!text.counts(batch.target[i])) continue;
      sum.nats += double(nats[i]);
      sum.targets += 1;
    }
    to.push_back(sum);
  }
}

}  // namespace assay
