#include "engine/optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "cuda/transfer.h"
#include "ops/adamw.h"

namespace assay {

namespace {

constexpr int64_t kStaging = int64_t{1} << 18;  // floats

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, Model& model)
    : config_(config),
      model_(model),
      parameters_(model.parameters()),
      moments_(parameters_.size()) {
  for (const ParameterRef& p : parameters_) gradients_.push_back(p.grad);
}

void Optimizer::plan(MemoryPlan& plan) {
  parameters_ = model_.parameters();  // shapes are set once the model has planned
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    gradients_[i] = p.grad;
    plan.add(Section::kOptimizer, p.spec->name + ".m", moments_[i].m, {p.master.dim[0]});
    plan.add(Section::kOptimizer, p.spec->name + ".v", moments_[i].v, {p.master.dim[0]});
  }
  plan.add(Section::kScratch, "gradient_norm", norm_, {1});
  plan.add(Section::kScratch, "gradient_clip", clip_, {1});
  plan.add(Section::kScratch, "gradient_non_finite", non_finite_, {1});
  plan.add(Section::kScratch, "gradient_norm_partial", partial_,
           {global_norm_pieces({gradients_.data(), {int64_t(gradients_.size())}}), 2});
  plan.add(Section::kHostVisible, "gradient_norm", read_norm_, {1});
  plan.add(Section::kHostVisible, "gradient_clip", read_clip_, {1});
  plan.add(Section::kHostVisible, "gradient_non_finite", read_non_finite_, {1});
  plan.add(Section::kHostVisible, "checksums", checksums_, {int64_t(parameters_.size())});
  if (model_.backend() == Backend::kGpu) {
    plan.add(Section::kHostVisible, "checksum_staging", staging_, {4, kStaging});
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

void Optimizer::step(Exec on, int64_t step, double lr_share) {
  global_norm(on, {
                      .norm = norm_,
                      .clip = clip_,
                      .non_finite = non_finite_,
                      .partial = partial_,
                      .grads = {gradients_.data(), {int64_t(gradients_.size())}},
                      .max_norm = static_cast<float>(config_.clip)
  });
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const GroupSettings group = settings(p.spec->group);
    const auto update = [&]<typename T>(View<T, 1> weight) {
      adamw<T>(on, {.master = p.master,
                    .m = moments_[i].m,
                    .v = moments_[i].v,
                    .weight = weight,
                    .grad = p.grad,
                    .grad_scale = clip_,
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
  last_step_ = step + 1;
  last_lr_share_ = lr_share;
  model_.repack_weights(on);
}

void Optimizer::read_back(Exec on) {
  copy(on, read_norm_, norm_);
  copy(on, read_clip_, clip_);
  copy(on, read_non_finite_, non_finite_);
}

// A piece at a time: the masters are large, and only logged steps ask.
uint64_t Optimizer::checksum_of_copies(Exec on, View<const float, 1> master) const {
  uint64_t sum = 0;
  for (int64_t begin = 0; begin < master.dim[0]; begin += kStaging) {
    const int64_t count = std::min(kStaging, master.dim[0] - begin);
    copy_bytes(on, staging_.row(0), master.data + begin, size_t(count) * sizeof(float));
    wait(on);
    sum += hash_floats(staging_.row(0), count, begin);
  }
  return sum;
}

uint64_t Optimizer::parameter_checksum(Exec on) const {
  if (on.gpu) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      checksums_[int64_t(i)] = checksum_of_copies(on, parameters_[i].master);
    }
    return hash_words(checksums_.data, parameters_.size());
  }
  parallel_for(on, int64_t(parameters_.size()), [&](int64_t i) {
    const View<float, 1>& master = parameters_[size_t(i)].master;
    checksums_[i] = hash_floats(master.data, master.dim[0]);
  });
  return hash_words(checksums_.data, parameters_.size());
}

AdamWConstants Optimizer::last_constants(Group group) const {
  const GroupSettings s = settings(group);
  return adamw_constants(AdamW<float>{.master = {},
                                      .m = {},
                                      .v = {},
                                      .grad = {},
                                      .lr = static_cast<float>(s.lr * last_lr_share_),
                                      .beta1 = static_cast<float>(config_.beta1),
                                      .beta2 = static_cast<float>(s.beta2),
                                      .eps = static_cast<float>(config_.eps),
                                      .weight_decay = static_cast<float>(s.weight_decay),
                                      .step = last_step_});
}

// A piece at a time, as the checksum.
RatioSquares Optimizer::squares_of_copies(Exec on, const RatioTensor& device) const {
  RatioSquares sum;
  for (int64_t begin = 0; begin < device.master.dim[0]; begin += kStaging) {
    const int64_t count = std::min(kStaging, device.master.dim[0] - begin);
    const View<const float, 1>* from[] = {&device.master, &device.m, &device.v, &device.grad};
    for (int64_t i = 0; i < 4; ++i) {
      copy_bytes(on, staging_.row(i), from[i]->data + begin, size_t(count) * sizeof(float));
    }
    wait(on);
    const auto copied = [&](int64_t i) { return View<const float, 1>{staging_.row(i), {count}}; };
    sum.add(ratio_squares(Exec{.threads = on.threads}, {.master = copied(0),
                                                        .m = copied(1),
                                                        .v = copied(2),
                                                        .grad = copied(3),
                                                        .step = device.step}));
  }
  return sum;
}

GroupRatios Optimizer::ratios(Exec on) const {
  CHECK(last_step_ >= 1, "ratios of step %ld", long(last_step_));
  std::array<RatioSquares, kRatioRoles.size()> sums{};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterRef& p = parameters_[i];
    const RatioTensor tensor{.master = p.master,
                             .m = moments_[i].m,
                             .v = moments_[i].v,
                             .grad = p.grad,
                             .step = last_constants(p.spec->group)};
    const auto role = std::find(kRatioRoles.begin(), kRatioRoles.end(), p.spec->role);
    CHECK(role != kRatioRoles.end(), "%s is in no group", p.spec->name.c_str());
    sums[size_t(role - kRatioRoles.begin())].add(on.gpu ? squares_of_copies(on, tensor)
                                                        : ratio_squares(on, tensor));
  }
  GroupRatios ratios;
  for (size_t i = 0; i < sums.size(); ++i) ratios[i] = ratio_of(sums[i]);
  return ratios;
}

std::vector<TensorRef> Optimizer::tensors() {
  std::vector<TensorRef> refs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = *parameters_[i].spec;
    refs.push_back({spec.name + ".m", DType::kF32, spec.shape, moments_[i].m.data});
    refs.push_back({spec.name + ".v", DType::kF32, spec.shape, moments_[i].v.data});
  }
  return refs;
}

}  // namespace assay
