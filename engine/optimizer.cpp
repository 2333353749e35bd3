#include "engine/optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "cuda/transfer.h"
#include "ops/adamw.h"
#include "ops/adamw_bf16.h"
#include "ops/checksum.h"

namespace assay {

Optimizer::Optimizer(const OptimizerConfig& config, Model& model, uint64_t seed)
    : config_(config),
      model_(model),
      seed_(seed),
      muon_(config.muon.value_or(MuonConfig{})),
      parameters_(model.parameters()),
      moments_(parameters_.size()) {
  for (const ParameterRef& p : parameters_) gradients_.push_back(p.grad);
}

void Optimizer::plan(MemoryPlan& plan) {
  parameters_ = model_.parameters();  // sizes are known after Model::plan()
  int64_t pieces = 0;
  std::vector<const ParameterSpec*> by_muon_specs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    gradients_[i] = p.grad;
    Moments& own = moments_[i];
    const auto add = [&](auto& m, auto& v) {
      plan.add(Section::kOptimizer, p.spec->name + ".m", m, {p.size()});
      plan.add(Section::kOptimizer, p.spec->name + ".v", v, {p.size()});
    };
    if (by_muon(i)) {
      own.stacks = muon_stacks(*p.spec);
      plan.add(Section::kOptimizer, p.spec->name + ".momentum", own.momentum, {p.size()});
      by_muon_specs.push_back(p.spec);
    } else if (p.bf16_state()) {
      add(own.bf16_m, own.bf16_v);
      own.stream = stream_id(p.spec->name + ".state");
    } else {
      add(own.m, own.v);
    }
    own.piece = pieces;
    own.pieces = by_muon(i) ? muon_pieces(own.stacks) : adamw_pieces(p.size());
    pieces += own.pieces;
  }
  if (!by_muon_specs.empty()) muon_.plan(plan, model_.backend(), by_muon_specs);
  plan.add(Section::kScratch, "gradient_norm", norm_, {1});
  plan.add(Section::kScratch, "gradient_clip", clip_, {1});
  plan.add(Section::kScratch, "gradient_non_finite", non_finite_, {1});
  plan.add(Section::kScratch, "gradient_norm_partial", partial_,
           {global_norm_pieces({gradients_.data(), {int64_t(gradients_.size())}}), 2});
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

void Optimizer::bind() {
  parameters_ = model_.parameters();
  for (size_t i = 0; i < parameters_.size(); ++i) gradients_[i] = parameters_[i].grad;
}

Optimizer::GroupSettings Optimizer::settings(Group group) const {
  switch (group) {
    case Group::kDecay:
      return {config_.lr, config_.beta2, config_.weight_decay};
    case Group::kNoDecay:
      return {config_.lr, config_.beta2, 0.0};
    case Group::kRouter:
      return {config_.router_lr.value_or(config_.lr), config_.beta2, 0.0};
    case Group::kExperts:
      return {config_.expert_lr.value_or(config_.lr), config_.expert_beta2.value_or(config_.beta2),
              config_.weight_decay};
  }
  return {};
}

void Optimizer::step(Exec on, int64_t step, double lr_share, Sample sample) {
  sampled_ = sample == Sample::kRatios;
  global_norm(on, {.norm = norm_,
                   .clip = clip_,
                   .non_finite = non_finite_,
                   .partial = partial_,
                   .grads = {gradients_.data(), {int64_t(gradients_.size())}},
                   .max_norm = static_cast<float>(config_.clip)});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (by_muon(i)) {
      step_muon(on, i, lr_share);
    } else if (parameters_[i].bf16_state()) {
      step_bf16(on, i, step, lr_share);
    } else {
      step_fp32(on, i, step, lr_share);
    }
  }
  model_.repack_weights(on);
}

bool Optimizer::by_muon(size_t i) const {
  return config_.kind == OptimizerKind::kMuon && parameters_[i].spec->is_hidden_matrix();
}

View<double, 2> Optimizer::squares_of(size_t i) const {
  if (!sampled_) return {};
  return squares_.rows(moments_[i].piece, moments_[i].pieces);
}

void Optimizer::step_muon(Exec on, size_t i, double lr_share) const {
  const MuonConfig muon = config_.muon.value_or(MuonConfig{});
  const GroupSettings group = settings(parameters_[i].spec->group);
  muon_.step(on, {.parameter = parameters_[i],
                  .stacks = moments_[i].stacks,
                  .momentum = moments_[i].momentum,
                  .clip = clip_,
                  .squares = squares_of(i),
                  .lr = muon.lr.value_or(group.lr) * lr_share,
                  .weight_decay = muon.weight_decay.value_or(group.weight_decay)});
}

void Optimizer::step_fp32(Exec on, size_t i, int64_t step, double lr_share) const {
  const ParameterRef& p = parameters_[i];
  const GroupSettings group = settings(p.spec->group);
  const auto update = [&]<typename T>(View<T, 1> weight) {
    adamw<T>(on, {.master = p.master,
                  .m = moments_[i].m,
                  .v = moments_[i].v,
                  .weight = weight,
                  .grad = p.grad,
                  .grad_scale = clip_,
                  .squares = squares_of(i),
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
    update(p.weight);
  }
}

void Optimizer::step_bf16(Exec on, size_t i, int64_t step, double lr_share) const {
  const ParameterRef& p = parameters_[i];
  const GroupSettings group = settings(p.spec->group);
  adamw_bf16(on, {.weight = p.weight,
                  .m = moments_[i].bf16_m,
                  .v = moments_[i].bf16_v,
                  .grad = p.grad,
                  .grad_scale = clip_,
                  .squares = squares_of(i),
                  .lr = static_cast<float>(group.lr * lr_share),
                  .beta1 = static_cast<float>(config_.beta1),
                  .beta2 = static_cast<float>(group.beta2),
                  .eps = static_cast<float>(config_.eps),
                  .weight_decay = static_cast<float>(group.weight_decay),
                  .step = step + 1,
                  .key = {.seed = seed_,
                          .stream = moments_[i].stream,
                          .step = static_cast<uint32_t>(step + 1)}});
}

void Optimizer::read_back(Exec on) {
  copy(on, read_norm_, norm_);
  copy(on, read_clip_, clip_);
  copy(on, read_non_finite_, non_finite_);
  if (sampled_) copy(on, read_squares_, squares_);
}

uint64_t Optimizer::parameter_checksum(Exec on) const {
  const View<int64_t, 1>& sums = on.gpu ? device_checksums_ : checksums_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const View<int64_t, 1> sum = sums.rows(int64_t(i), 1);
    if (p.bf16_state()) {
      checksum<bf16>(on, {.sum = sum, .x = p.weight});
    } else {
      checksum<float>(on, {.sum = sum, .x = p.master});
    }
  }
  if (on.gpu) {
    copy(on, checksums_, sums);
    wait(on);
  }
  return hash_words(reinterpret_cast<const uint64_t*>(checksums_.data), parameters_.size());
}

GroupRatios Optimizer::ratios() const {
  std::array<RatioSquares, kRatioRoles.size()> sums{};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const auto role = std::find(kRatioRoles.begin(), kRatioRoles.end(), p.spec->role);
    CHECK(role != kRatioRoles.end(), "%s is in no ratio group", p.spec->name.c_str());
    const int64_t first = moments_[i].piece;
    add(sums[size_t(role - kRatioRoles.begin())], read_squares_.rows(first, moments_[i].pieces));
  }
  GroupRatios ratios;
  for (size_t i = 0; i < sums.size(); ++i) ratios[i] = ratio_of(sums[i]);
  return ratios;
}

std::vector<TensorRef> Optimizer::tensors() {
  std::vector<TensorRef> refs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = *parameters_[i].spec;
    const Moments& own = moments_[i];
    if (by_muon(i)) {
      refs.push_back({spec.name + ".momentum", DType::kF32, spec.shape, own.momentum.data});
      continue;
    }
    if (parameters_[i].bf16_state()) {
      refs.push_back({spec.name + ".m", DType::kBF16, spec.shape, own.bf16_m.data});
      refs.push_back({spec.name + ".v", DType::kBF16, spec.shape, own.bf16_v.data});
      continue;
    }
    refs.push_back({spec.name + ".m", DType::kF32, spec.shape, own.m.data});
    refs.push_back({spec.name + ".v", DType::kF32, spec.shape, own.v.data});
  }
  return refs;
}

}  // namespace assay
