#include "engine/optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "cuda/transfer.h"
#include "ops/adamw.h"
#include "ops/adamw_bf16.h"
#include "ops/checksum.h"
#include "ops/zero.h"

namespace assay {

namespace {

// Each row is written by the rank that owns it and zero on the others, so that the integer sum of
// the bits is the owner's bits.
void sum_owned_rows(Exec on, Group& ranks, View<double, 2> rows) {
  ranks.sum_integers(on, {reinterpret_cast<int64_t*>(rows.data), {rows.size()}});
}

// The pieces of a tensor of which each rank has a share: those that a share touches, share after
// share. A piece that two shares touch counts for both.
int64_t pieces_before(const ParameterSpec& spec, int64_t share, int64_t piece) {
  int64_t pieces = 0;
  for (int64_t s = 0; s < share; ++s) {
    const int64_t first = s * spec.size(), last = first + spec.size() - 1;
    pieces += last / piece - first / piece + 1;
  }
  return pieces;
}

// The number, within its share, of the piece of element `first` of the share.
int64_t piece_of(const ParameterSpec& spec, int64_t first, int64_t piece) {
  return (spec.first_element() + first) / piece - spec.first_element() / piece;
}

// The parts of a segment that end at the first piece of the whole tensor, and go on there.
std::vector<Segment> at_pieces(const Segment& s, const ParameterSpec& spec) {
  const int64_t head = kShardPiece - (spec.first_element() + s.first) % kShardPiece;
  if (!spec.shared_out() || head == kShardPiece || head >= s.count) return {s};
  return {{s.parameter, s.first, head}, {s.parameter, s.first + head, s.count - head}};
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, Model& model, uint64_t seed,
                     const OwnedSegments* owned)
    : config_(config),
      model_(model),
      seed_(seed),
      muon_(config.muon.value_or(MuonConfig{})),
      parameters_(model.parameters()),
      whole_(owned == nullptr) {
  if (!whole_) {
    for (const Segment& s : *owned) {
      for (const Segment& part : at_pieces(s, *parameters_[s.parameter].spec)) {
        owned_.emplace_back(part);
      }
    }
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    owned_.emplace_back(Segment{.parameter = i, .first = 0, .count = parameters_[i].spec->size()});
  }
}

void Optimizer::plan(MemoryPlan& plan) {
  parameters_ = model_.parameters();  // sizes are known after Model::plan()
  int64_t pieces = 0, norm_pieces = 0;
  std::vector<const ParameterSpec*> by_muon_specs;
  std::vector<int64_t> first_norm_piece;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = *parameters_[i].spec;
    const int64_t own =
        by_muon(i) ? muon_pieces(muon_stacks(spec)) : pieces_before(spec, spec.shares, kAdamWPiece);
    pieces_.push_back({pieces, own, pieces + pieces_before(spec, spec.share, kAdamWPiece)});
    pieces += own;
    first_norm_piece.push_back(norm_pieces + pieces_before(spec, spec.share, kShardPiece));
    norm_pieces += pieces_before(spec, spec.shares, kShardPiece);
  }
  for (Owned& own : owned_) {
    const ParameterSpec& spec = *parameters_[own.parameter].spec;
    own.norm_piece = first_norm_piece[own.parameter] + piece_of(spec, own.first, kShardPiece);
    plan_state(plan, own, pieces_[own.parameter].share);
    if (by_muon(own.parameter)) by_muon_specs.push_back(parameters_[own.parameter].spec);
  }
  if (!by_muon_specs.empty()) muon_.plan(plan, model_.backend(), by_muon_specs);
  plan.add(Section::kScratch, "gradient_norm", norm_, {1});
  plan.add(Section::kScratch, "gradient_clip", clip_, {1});
  plan.add(Section::kScratch, "gradient_non_finite", non_finite_, {1});
  plan.add(Section::kScratch, "gradient_norm_partial", partial_, {norm_pieces, 2});
  plan.add(Section::kScratch, "squares", squares_, {pieces, 3});
  plan.add(Section::kHostVisible, "squares", read_squares_, {pieces, 3});
  plan.add(Section::kHostVisible, "gradient_norm", read_norm_, {1});
  plan.add(Section::kHostVisible, "gradient_clip", read_clip_, {1});
  plan.add(Section::kHostVisible, "gradient_non_finite", read_non_finite_, {1});
  plan.add(Section::kHostVisible, "checksums", checksums_, {int64_t(parameters_.size())});
  if (model_.backend() == Backend::kGpu) {
    plan.add(Section::kScratch, "checksums", device_checksums_, {int64_t(parameters_.size())});
  }
}

// Buffers of a parameter that is owned whole have its name.
void Optimizer::plan_state(MemoryPlan& plan, Owned& own, int64_t first_piece) const {
  const ParameterRef& p = parameters_[own.parameter];
  const bool all = own.count == p.spec->size();
  const auto add = [&](const char* what, auto& view) {
    const std::string part = all ? "" : "#" + std::to_string(own.first);
    plan.add(Section::kOptimizer, p.spec->name + what + part, view, {own.count});
  };
  own.piece = first_piece + piece_of(*p.spec, own.first, kAdamWPiece);
  own.pieces = adamw_pieces(own.count);
  if (by_muon(own.parameter)) {
    const std::vector<MuonStack> stacks = muon_stacks(*p.spec);
    own.stacks = muon_stacks_within(stacks, own.first, own.count);
    own.piece = first_piece + muon_pieces(muon_stacks_within(stacks, 0, own.first));
    own.pieces = muon_pieces(own.stacks);
    add(".momentum", own.momentum);
  } else if (p.bf16_state()) {
    add(".m", own.bf16_m);
    add(".v", own.bf16_v);
    own.stream = stream_id(p.spec->name + ".state");
  } else {
    add(".m", own.m);
    add(".v", own.v);
  }
}

void Optimizer::bind() {
  parameters_ = model_.parameters();
  gradients_.clear();
  for (const Owned& own : owned_) {
    gradients_.push_back(parameters_[own.parameter].grad.rows(own.first, own.count));
  }
}

Optimizer::GroupSettings Optimizer::settings(ParameterGroup group) const {
  switch (group) {
    case ParameterGroup::kDecay:
      return {config_.lr, config_.beta2, config_.weight_decay};
    case ParameterGroup::kNoDecay:
      return {config_.lr, config_.beta2, 0.0};
    case ParameterGroup::kRouter:
      return {config_.router_lr.value_or(config_.lr), config_.beta2, 0.0};
    case ParameterGroup::kExperts:
      return {config_.expert_lr.value_or(config_.lr), config_.expert_beta2.value_or(config_.beta2),
              config_.weight_decay};
  }
  return {};
}

void Optimizer::step(Exec on, int64_t step, double lr_share, Sample sample, Group* ranks) {
  CHECK((ranks == nullptr) == whole_, "optimizer: shards and ranks do not go together, step %ld",
        long(step));
  sampled_ = sample == Sample::kRatios;
  measure_norm(on, ranks);
  if (sampled_ && !whole_) zero(on, squares_);
  for (const Owned& own : owned_) {
    if (by_muon(own.parameter)) {
      step_muon(on, own, lr_share);
    } else if (parameters_[own.parameter].bf16_state()) {
      step_bf16(on, own, step, lr_share);
    } else {
      step_fp32(on, own, step, lr_share);
    }
  }
  if (sampled_ && !whole_) sum_owned_rows(on, *ranks, squares_);
  if (whole_) model_.repack_weights(on);
}

void Optimizer::measure_norm(Exec on, Group* ranks) const {
  const GradientList all{gradients_.data(), {int64_t(gradients_.size())}};
  if (whole_) {
    return global_norm(on, {.norm = norm_,
                            .clip = clip_,
                            .non_finite = non_finite_,
                            .partial = partial_,
                            .grads = all,
                            .max_norm = static_cast<float>(config_.clip)});
  }
  zero(on, partial_);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const GradientList one = all.rows(int64_t(i), 1);
    square_sums(on, {.partial = partial_.rows(owned_[i].norm_piece, global_norm_pieces(one)),
                     .grads = one});
  }
  sum_owned_rows(on, *ranks, partial_);
  norm_of_squares(on, {.norm = norm_,
                       .clip = clip_,
                       .non_finite = non_finite_,
                       .partial = partial_,
                       .max_norm = static_cast<float>(config_.clip)});
}

bool Optimizer::by_muon(size_t parameter) const {
  return config_.kind == OptimizerKind::kMuon && parameters_[parameter].spec->is_hidden_matrix();
}

View<double, 2> Optimizer::squares_of(const Owned& own) const {
  if (!sampled_) return {};
  return squares_.rows(own.piece, own.pieces);
}

void Optimizer::step_muon(Exec on, const Owned& own, double lr_share) const {
  const MuonConfig muon = config_.muon.value_or(MuonConfig{});
  const GroupSettings group = settings(parameters_[own.parameter].spec->group);
  muon_.step(on, {.parameter = parameters_[own.parameter],
                  .stacks = own.stacks,
                  .momentum = own.momentum,
                  .clip = clip_,
                  .squares = squares_of(own),
                  .lr = muon.lr.value_or(group.lr) * lr_share,
                  .weight_decay = muon.weight_decay.value_or(group.weight_decay)});
}

void Optimizer::step_fp32(Exec on, const Owned& own, int64_t step, double lr_share) const {
  const ParameterRef& p = parameters_[own.parameter];
  const GroupSettings group = settings(p.spec->group);
  const auto update = [&]<typename T>(View<T, 1> weight) {
    adamw<T>(on, {.master = p.master.rows(own.first, own.count),
                  .m = own.m,
                  .v = own.v,
                  .weight = weight,
                  .grad = p.grad.rows(own.first, own.count),
                  .grad_scale = clip_,
                  .squares = squares_of(own),
                  .lr = static_cast<float>(group.lr * lr_share),
                  .beta1 = static_cast<float>(config_.beta1),
                  .beta2 = static_cast<float>(group.beta2),
                  .eps = static_cast<float>(config_.eps),
                  .weight_decay = static_cast<float>(group.weight_decay),
                  .step = step + 1});
  };
  if (p.weight.empty()) {
    update(View<float, 1>{});
  } else {
    update(p.weight.rows(own.first, own.count));
  }
}

void Optimizer::step_bf16(Exec on, const Owned& own, int64_t step, double lr_share) const {
  const ParameterRef& p = parameters_[own.parameter];
  const GroupSettings group = settings(p.spec->group);
  adamw_bf16(on,
             {.weight = p.weight.rows(own.first, own.count),
              .m = own.bf16_m,
              .v = own.bf16_v,
              .grad = p.grad.rows(own.first, own.count),
              .grad_scale = clip_,
              .squares = squares_of(own),
              .lr = static_cast<float>(group.lr * lr_share),
              .beta1 = static_cast<float>(config_.beta1),
              .beta2 = static_cast<float>(group.beta2),
              .eps = static_cast<float>(config_.eps),
              .weight_decay = static_cast<float>(group.weight_decay),
              .step = step + 1,
              .key = {.seed = seed_, .stream = own.stream, .step = static_cast<uint32_t>(step + 1)},
              .first = p.spec->first_element() + own.first});
}

void Optimizer::read_back(Exec on) {
  copy(on, read_norm_, norm_);
  copy(on, read_clip_, clip_);
  copy(on, read_non_finite_, non_finite_);
  if (sampled_) copy(on, read_squares_, squares_);
}

uint64_t Optimizer::parameter_checksum(Exec on, Group* share_holders) const {
  const View<int64_t, 1>& sums = on.gpu ? device_checksums_ : checksums_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const View<int64_t, 1> sum = sums.rows(int64_t(i), 1);
    if (p.bf16_state()) {
      checksum<bf16>(on, {.sum = sum, .x = p.weight, .first = p.spec->first_element()});
    } else {
      checksum<float>(on, {.sum = sum, .x = p.master, .first = p.spec->first_element()});
    }
  }
  if (on.gpu) {
    copy(on, checksums_, sums);
    wait(on);
  }
  for (size_t i = 0; share_holders != nullptr && i < parameters_.size(); ++i) {
    if (!parameters_[i].spec->shared_out()) continue;
    share_holders->sum_integers({}, checksums_.rows(int64_t(i), 1));
  }
  return hash_words(reinterpret_cast<const uint64_t*>(checksums_.data), parameters_.size());
}

GroupRatios Optimizer::ratios() const {
  std::array<RatioSquares, kRatioRoles.size()> sums{};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const auto role = std::find(kRatioRoles.begin(), kRatioRoles.end(), p.spec->role);
    CHECK(role != kRatioRoles.end(), "%s is in no ratio group", p.spec->name.c_str());
    add(sums[size_t(role - kRatioRoles.begin())],
        read_squares_.rows(pieces_[i].first, pieces_[i].count));
  }
  GroupRatios ratios;
  for (size_t i = 0; i < sums.size(); ++i) ratios[i] = ratio_of(sums[i]);
  return ratios;
}

std::vector<Slice> Optimizer::slices() {
  std::vector<Slice> all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = *parameters_[i].spec;
    std::vector<const char*> kinds{".m", ".v"};
    if (by_muon(i)) kinds = {".momentum"};
    for (const char* kind : kinds) {
      Slice slice{.whole = {spec.name + kind, DType::kF32, spec.whole_shape(), nullptr}};
      if (parameters_[i].bf16_state() && !by_muon(i)) slice.whole.dtype = DType::kBF16;
      add_owned(all, i, slice, [&](const Owned& own) -> void* {
        if (by_muon(i)) return own.momentum.data;
        const bool first = kind == kinds.front();
        if (parameters_[i].bf16_state()) return (first ? own.bf16_m : own.bf16_v).data;
        return (first ? own.m : own.v).data;
      });
    }
  }
  return all;
}

std::vector<Slice> Optimizer::master_slices() {
  std::vector<Slice> all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const DType dtype = p.bf16_state() ? DType::kBF16 : DType::kF32;
    add_owned(all, i, {.whole = {p.spec->name, dtype, p.spec->whole_shape(), nullptr}},
              [&](const Owned& own) -> void* {
                if (p.bf16_state()) return p.weight.data + own.first;
                return p.master.data + own.first;
              });
  }
  return all;
}

std::vector<TensorRef> Optimizer::tensors() {
  CHECK(whole_, "optimizer: whole tensors on one of several ranks, %zu parameters",
        parameters_.size());
  std::vector<TensorRef> all;
  for (const Slice& slice : slices()) {
    all.push_back(slice.whole);
    all.back().data = slice.data;
  }
  return all;
}

// Adds what this rank owns of a parameter, or an empty slice.
void Optimizer::add_owned(std::vector<Slice>& all, size_t parameter, const Slice& of,
                          const std::function<void*(const Owned&)>& data) const {
  bool any = false;
  for (const Owned& own : owned_) {
    if (own.parameter != parameter) continue;
    Slice slice = of;
    slice.first = parameters_[parameter].spec->first_element() + own.first;
    slice.count = own.count;
    slice.data = data(own);
    all.push_back(slice);
    any = true;
  }
  if (!any) all.push_back(of);
}

}  // namespace assay
