#include "models/decoder/expert_exchange.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "cuda/transfer.h"

namespace assay {

ExpertExchange::ExpertExchange(const Layout& layout, const RankGroups& groups, int64_t experts,
                               int64_t rows)
    : ranks_(layout.expert_ranks),
      rank_(layout.expert_position()),
      groups_(groups),
      experts_(experts),
      rows_(rows),
      sources_(size_t(layout.expert_ranks)) {
  CHECK(experts % ranks_ == 0 && rows > 0, "exchange of %ld experts on %d ranks, %ld rows",
        long(experts), ranks_, long(rows));
  for (const Group* group : {groups.experts, groups.experts_on_host}) {
    CHECK(group == nullptr || (group->size() == ranks_ && group->rank() == rank_),
          "exchange: rank %d of %d, the group has %d of %d", rank_, ranks_, group->rank(),
          group->size());
  }
}

void ExpertExchange::plan(MemoryPlan& plan, const std::string& name, int64_t assignments,
                          Backend backend) {
  const int64_t most_rounds = std::max<int64_t>(1, ceil_div(assignments * ranks_, rows_));
  const std::string sources = name + ".source_offsets";
  plan.add(Section::kHostVisible, name + ".offsets", offsets_, {ranks_, experts_ + 1});
  plan.add(Section::kHostVisible, sources, source_offsets_, {most_rounds * ranks_, local() + 1});
  if (backend == Backend::kCpu) return;
  plan.add(Section::kActivations, sources, gpu_source_offsets_,
           {source_offsets_.dim[0], source_offsets_.dim[1]});
}

void ExpertExchange::route(Exec on, View<const int32_t, 1> offsets) {
  CHECK(offsets.dim[0] == experts_ + 1, "exchange: %ld offsets of %ld experts",
        long(offsets.dim[0]), long(experts_));
  const View<int32_t, 1> own{offsets_.row(rank_), {experts_ + 1}};
  copy(on, own, offsets);
  wait(on);  // so nothing that was queued reads what is written below
  groups_.experts_on_host->all_gather({}, offsets_.data, own.data, own.bytes());
  int64_t most = 0;
  for (int to = 0; to < ranks_; ++to) {
    int64_t received = 0;
    for (int from = 0; from < ranks_; ++from) {
      received += offsets_.at(from, (to + 1) * local()) - offsets_.at(from, to * local());
    }
    most = std::max(most, received);
  }
  rounds_ = std::max<int64_t>(1, ceil_div(most, rows_));
  write_source_offsets(on);
}

void ExpertExchange::write_source_offsets(Exec on) {
  const int64_t first = rank_ * local(), needed = rounds_ * ranks_;
  CHECK(needed <= source_offsets_.dim[0], "exchange: %ld rounds of %d sources, planned for %ld",
        long(rounds_), ranks_, long(source_offsets_.dim[0]));
  for (int64_t i = 0; i < needed; ++i) {
    const int from = int(i % ranks_);
    const Piece here = piece(i / ranks_, from, rank_);
    const int64_t begin = offsets_.at(from, first) + here.skipped;
    for (int64_t e = 0; e <= local(); ++e) {
      const int64_t slot = offsets_.at(from, first + e) - begin;
      source_offsets_.at(i, e) = int32_t(std::clamp<int64_t>(slot, 0, here.count));
    }
  }
  if (gpu_source_offsets_.empty()) return;
  copy(on, gpu_source_offsets_.rows(0, needed), source_offsets_.rows(0, needed));
}

ExpertExchange::Piece ExpertExchange::piece(int64_t round, int from, int to) const {
  const auto begin = [&](int source) { return int64_t(offsets_.at(source, to * local())); };
  const auto length = [&](int source) {
    return offsets_.at(source, (to + 1) * local()) - begin(source);
  };
  int64_t before = 0;  // rows of earlier sources, in all rounds
  for (int source = 0; source < from; ++source) before += length(source);
  const int64_t first = std::clamp<int64_t>(round * rows_ - before, 0, length(from));
  const int64_t end = std::clamp<int64_t>((round + 1) * rows_ - before, 0, length(from));
  return {.slot = begin(from) + first,
          .row = end > first ? before + first - round * rows_ : 0,
          .count = end - first,
          .skipped = first};
}

void ExpertExchange::move(Exec on, const Move& m) const {
  Group::Exchange e{.to = m.to, .received = {}, .from = m.from, .sent = {}};
  for (int other = 0; other < ranks_; ++other) {
    const Piece away = piece(m.round, rank_, other), here = piece(m.round, other, rank_);
    const Group::Run slots{size_t(away.slot) * m.row_bytes, size_t(away.count) * m.row_bytes};
    const Group::Run rows{size_t(here.row) * m.row_bytes, size_t(here.count) * m.row_bytes};
    e.sent.push_back(m.way == Way::kToExperts ? slots : rows);
    e.received.push_back(m.way == Way::kToExperts ? rows : slots);
  }
  groups_.experts->all_to_all_v(on, e);
}

const std::vector<ExpertExchange::Source>& ExpertExchange::sources(int64_t round) {
  const View<int32_t, 2>& offsets =
      gpu_source_offsets_.empty() ? source_offsets_ : gpu_source_offsets_;
  for (int from = 0; from < ranks_; ++from) {
    const Piece here = piece(round, from, rank_);
    sources_[size_t(from)] = {.first = here.row,
                              .count = here.count,
                              .offsets = {offsets.row(round * ranks_ + from), {local() + 1}}};
  }
  return sources_;
}

}  // namespace assay
