#include "eval/validation.h"

#include <algorithm>
#include <cmath>

#include "eval/ranks.h"

namespace assay {

Validation::Validation(const ValidationSet::Config& set, int64_t every,
                       std::vector<int32_t> token_bytes, int mask_id, std::string task,
                       const EvaluationRanks& ranks)
    : set_(set),
      sequence_(set.sequence),
      micro_batch_(set.micro_batch),
      every_(every),
      token_bytes_(std::move(token_bytes)),
      mask_id_(mask_id),
      task_(std::move(task)),
      ranks_(ranks) {}

void Validation::plan(MemoryPlan& plan, int planned_ranks) {
  plan.add(Section::kHostVisible, "validation.nats", nats_,
           {std::max(size_of(ranks_.all), planned_ranks), micro_batch_ * sequence_});
}

bool Validation::due(const EvalMoment& at) const {
  return at.last || at.landing || at.steps_done % every_ == 0;
}

std::optional<Evaluation> Validation::evaluate(Exec on, Model& model, const EvalMoment&,
                                               const EvalWatch&) {
  return Evaluation{.results = run(on, model)};
}

void Validation::compute(Exec on, Model& model, int micro, View<float, 1> nats) const {
  const Batch batch = set_.micro(micro);
  const int64_t n = batch.token.dim[0];
  model.evaluate(
      on,
      {.token = batch.token, .target = batch.target, .batch = n / sequence_, .sequence = sequence_},
      nats.rows(0, n));
}

std::vector<EvalResult> Validation::run(Exec on, Model& model) {
  double nats = 0, nats_of_text = 0;
  int64_t counted = 0, bytes = 0;
  const int ranks = size_of(ranks_.all), rank = rank_of(ranks_.all);
  const int micro_batches = set_.micro_batches();
  for (int first = 0; first < micro_batches; first += ranks) {
    // Where ranks take part in each other's passes, one without a micro-batch repeats the last.
    const bool all = ranks_.together != nullptr;
    const int mine = all ? std::min(first + rank, micro_batches - 1) : first + rank;
    if (mine < micro_batches) compute(on, model, mine, nats_(rank));
    if (ranks > 1) {  // a row of a rank without a micro-batch is not read
      ranks_.all->all_gather({}, nats_.data, nats_.row(rank), nats_(rank).bytes());
    }
    for (int m = first; m < std::min(first + ranks, micro_batches); ++m) {
      const View<const int32_t, 1> targets = set_.micro(m).target;
      const float* const each = nats_.row(m - first);
      for (int64_t i = 0; i < targets.dim[0]; ++i) {
        const int32_t target = targets[i];
        if (target < 0 || target == mask_id_) continue;
        nats += double(each[i]);
        counted += 1;
        const bool is_token = size_t(target) < token_bytes_.size();
        if (!is_token || token_bytes_[size_t(target)] == 0) continue;
        nats_of_text += double(each[i]);
        bytes += token_bytes_[size_t(target)];
      }
    }
  }
  std::vector<EvalResult> results{
      {task_, "loss_nats", nats / double(std::max<int64_t>(counted, 1)), counted}};
  if (bytes > 0) {
    results.push_back(
        {task_, "bits_per_byte", nats_of_text / (std::log(2.0) * double(bytes)), bytes});
  }
  return results;
}

}  // namespace assay
