#include "engine/optimizer_muon.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/muon.h"

namespace assay {

std::vector<MuonStack> muon_stacks(const ParameterSpec& spec) {
  const size_t rank = spec.shape.size();
  CHECK(rank == 2 || rank == 3, "%s: Muon steps matrices, this has rank %zu", spec.name.c_str(),
        rank);
  const int64_t rows = spec.shape[rank - 2], cols = spec.shape[rank - 1];
  const int64_t experts = rank == 3 ? spec.shape[0] : 1;
  const std::vector<int64_t> parts = spec.parts.empty() ? std::vector{rows} : spec.parts;
  std::vector<MuonStack> stacks;
  int64_t row = 0;
  for (const int64_t part : parts) {
    if (stacks.empty() || stacks.back().rows != part) {
      stacks.push_back({.begin = row * cols, .n = 0, .rows = part, .cols = cols});
    }
    stacks.back().n += 1;
    row += part;
  }
  CHECK(row == rows, "%s: its parts have %ld rows of %ld", spec.name.c_str(), long(row),
        long(rows));
  CHECK(experts == 1 || stacks.size() == 1, "%s: experts with parts of different sizes",
        spec.name.c_str());
  for (MuonStack& s : stacks) s.n *= experts;
  return stacks;
}

std::vector<MuonStack> muon_stacks_within(const std::vector<MuonStack>& stacks, int64_t first,
                                          int64_t count) {
  std::vector<MuonStack> within;
  for (MuonStack s : stacks) {
    const int64_t matrix = s.rows * s.cols;
    const int64_t begin = std::max(first, s.begin);
    const int64_t end = std::min(first + count, s.begin + s.size());
    if (begin >= end) continue;
    CHECK((begin - s.begin) % matrix == 0 && (end - s.begin) % matrix == 0,
          "elements [%ld, %ld) cut a matrix of %ld x %ld", long(begin), long(end), long(s.rows),
          long(s.cols));
    s.begin = begin;
    s.n = (end - begin) / matrix;
    within.push_back(s);
  }
  return within;
}

int64_t muon_pieces(const std::vector<MuonStack>& stacks) {
  int64_t pieces = 0;
  for (const MuonStack& s : stacks) pieces += adamw_pieces(s.size());
  return pieces;
}

double muon_factor(MuonAdjust adjust, int64_t rows, int64_t cols) {
  if (adjust == MuonAdjust::kMatchRmsAdamW) return 0.2 * std::sqrt(double(std::max(rows, cols)));
  return std::sqrt(std::max(1.0, double(rows) / double(cols)));
}

void MuonUpdates::plan(MemoryPlan& plan, Backend backend,
                       const std::vector<const ParameterSpec*>& owned) {
  int64_t elements = 0, gram = 0, sums = 0, partial = 0, offsets = 0;
  int64_t packed_x = 0, packed_gram = 0, workspace = 0;
  for (const ParameterSpec* spec : owned) {
    for (const MuonStack& s : muon_stacks(*spec)) {
      const int64_t m = std::min(s.rows, s.cols);
      elements = std::max(elements, s.size());
      gram = std::max(gram, s.n * m * m);
      if (s.rows > s.cols) sums = std::max(sums, s.n * m * m);
      partial = std::max(partial, s.n * newton_schulz_pieces(s.rows * s.cols));
      offsets = std::max(offsets, 2 * (s.n + 1));
      packed_x = std::max(packed_x, newton_schulz_packed_x(s.n, s.rows, s.cols));
      packed_gram = std::max(packed_gram, newton_schulz_packed_gram(s.n, s.rows, s.cols));
      workspace = std::max(workspace, newton_schulz_workspace_bytes(backend, s.n, s.rows, s.cols));
    }
  }
  plan.add(Section::kScratch, "muon.x", x_, {elements});
  plan.add(Section::kScratch, "muon.product", product_, {elements});
  plan.add(Section::kScratch, "muon.gram", gram_, {gram});
  plan.add(Section::kScratch, "muon.square", square_, {gram});
  plan.add(Section::kScratch, "muon.gram_sums", gram_sums_, {sums});
  plan.add(Section::kScratch, "muon.partial", partial_, {partial});
  plan.add(Section::kScratch, "muon.offsets", offsets_, {offsets});
  plan.add(Section::kScratch, "muon.workspace", workspace_, {workspace});
  if (backend == Backend::kCpu) {
    plan.add(Section::kScratch, "muon.packed_x", packed_x_, {packed_x});
    plan.add(Section::kScratch, "muon.packed_gram", packed_gram_, {packed_gram});
  }
}

NewtonSchulz MuonUpdates::scratch_of(const MuonStack& s, Backend backend) const {
  const int64_t m = std::min(s.rows, s.cols);
  const bool tall = s.rows > s.cols;
  NewtonSchulz a{.x = {x_.data, {s.n, s.rows, s.cols}},
                 .product = {product_.data, {s.n, s.rows, s.cols}},
                 .gram = {gram_.data, {s.n, m, m}},
                 .square = {square_.data, {s.n, m, m}},
                 .gram_sums = {gram_sums_.data, {tall ? s.n : 0, m, m}},
                 .partial = {partial_.data, {s.n, newton_schulz_pieces(s.rows * s.cols)}},
                 .offsets = {offsets_.data, {2, s.n + 1}},
                 .steps = config_.steps};
  if (backend == Backend::kCpu) {
    a.packed_x = packed_x_.rows(0, newton_schulz_packed_x(s.n, s.rows, s.cols));
    a.packed_gram = packed_gram_.rows(0, newton_schulz_packed_gram(s.n, s.rows, s.cols));
  }
  return a;
}

void MuonUpdates::step(Exec on, const Step& s) const {
  on.workspace = workspace_;
  const ParameterRef& p = s.parameter;
  int64_t piece = 0;
  const int64_t first = s.stacks.empty() ? 0 : s.stacks.front().begin;
  for (const MuonStack& stack : s.stacks) {
    const int64_t begin = stack.begin, size = stack.size(), pieces = adamw_pieces(size);
    const NewtonSchulz scratch = scratch_of(stack, on.gpu ? Backend::kGpu : Backend::kCpu);
    const View<bf16, 1> x = x_.rows(0, size);
    muon_momentum(on, {.u = x,
                       .momentum = s.momentum.rows(begin - first, size),
                       .grad = p.grad.rows(begin, size),
                       .grad_scale = s.clip,
                       .mu = static_cast<float>(config_.momentum),
                       .look = config_.nesterov ? MuonLook::kNesterov : MuonLook::kPlain});
    newton_schulz(on, scratch);
    const double factor = muon_factor(config_.adjust, stack.rows, stack.cols);
    const auto update = [&]<typename T>(View<T, 1> weight) {
      muon_update<T>(on, {.master = p.master.rows(begin, size),
                          .weight = weight,
                          .o = x,
                          .grad = p.grad.rows(begin, size),
                          .squares = s.squares.empty() ? s.squares : s.squares.rows(piece, pieces),
                          .decay = static_cast<float>(s.lr * s.weight_decay),
                          .rate = static_cast<float>(s.lr * factor)});
    };
    if (p.weight.empty()) {
      update(View<float, 1>{});
    } else {
      update(p.weight.rows(begin, size));
    }
    piece += pieces;
  }
}

}  // namespace assay
