#include "models/parameters/store.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/transfer.h"
#include "models/parameters/table.h"
#include "ops/cast.h"
#include "ops/zero.h"

namespace assay {

namespace {

template <typename T>
int64_t pack_bytes(const ParameterSpec& spec) {
  if (spec.shape.size() == 3) {
    return weight_stack_pack_bytes<T>(spec.shape[0], spec.shape[1], spec.shape[2]);
  }
  return weight_pack_bytes<T>(spec.shape[0], spec.shape[1]);
}

}  // namespace

template <typename T>
ParameterStore<T>::ParameterStore(std::vector<ParameterSpec> specs, Backend backend,
                                  StateFormat state)
    : specs_(std::move(specs)), backend_(backend), state_(state), buffers_(specs_.size()) {
  CHECK(sizeof(T) == 2 || state == StateFormat::kFp32, "fp32 weights with %s state",
        name_of(state));
  for (size_t i = 0; i < specs_.size(); ++i) {
    const bool added = by_name_.emplace(specs_[i].name, i).second;
    CHECK(added, "parameter '%s' is in the table twice", specs_[i].name.c_str());
  }
}

template <typename T>
void ParameterStore<T>::leave_out(const std::string& name) {
  buffers_[index(name)].left_out = true;
}

template <typename T>
void ParameterStore<T>::plan(MemoryPlan& plan, Purpose purpose) {
  plan_masters(plan, has_all);
  plan_masters(plan, has_share);
  plan_masters(plan, [](const ParameterSpec& spec) { return !spec.trained(); });
  int64_t largest_turn = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const ParameterSpec& spec = specs_[i];
    Buffers& b = buffers_[i];
    if (!spec.is_matrix() || b.left_out) continue;
    const int64_t bytes = planned_pack_bytes(spec);
    const bool packed_alone = purpose == Purpose::kInference && bytes > 0 &&
                              spec.role != Role::kEmbedding;  // lookups read the plain copy
    if constexpr (sizeof(T) == 2) {
      if (packed_alone && !b.own_master) {
        largest_turn = std::max(largest_turn, spec.size());
      } else if (!b.own_master) {
        plan.add(Section::kParameters, spec.name + ".bf16", b.weight, {spec.size()});
      }
    }
    if (bytes > 0) plan.add(Section::kParameters, spec.name + ".packed", b.packed, {bytes});
  }
  // In the order in which backward ends them.
  for (const auto wanted : {has_all, has_share}) {
    for (size_t i = specs_.size(); i-- > 0 && purpose == Purpose::kTraining;) {
      if (!wanted(specs_[i])) continue;
      plan.add(Section::kGradients, specs_[i].name, buffers_[i].grad, {specs_[i].size()});
    }
  }
  if (largest_turn > 0) plan.add(Section::kParameters, "packing", turn_, {largest_turn});
}

template <typename T>
void ParameterStore<T>::plan_masters(MemoryPlan& plan, bool (*wanted)(const ParameterSpec&)) {
  for (size_t i = specs_.size(); i-- > 0;) {
    const ParameterSpec& spec = specs_[i];
    Buffers& b = buffers_[i];
    if (!wanted(spec)) continue;
    b.own_master = state_ == StateFormat::kBf16 && spec.is_matrix();
    if (b.own_master) {
      plan.add(Section::kParameters, spec.name, b.weight, {spec.size()});
    } else {
      plan.add(Section::kParameters, spec.name, b.master, {spec.size()});
    }
  }
}

template <typename T>
int64_t ParameterStore<T>::planned_pack_bytes(const ParameterSpec& spec) const {
  if (backend_ == Backend::kGpu) return 0;  // GPU products read the plain weight
  // The embedding is multiplied only if it is also the head.
  const bool tied = by_name_.count("head.weight") == 0;
  if (spec.role == Role::kEmbedding && !tied) return 0;
  return pack_bytes<T>(spec);
}

template <typename T>
void ParameterStore<T>::initialise(Exec on, uint64_t seed) {
  std::vector<float> values;
  std::vector<bf16> rounded;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const Buffers& b = buffers_[i];
    View<float, 1> master = b.master;
    if (backend_ == Backend::kGpu || b.own_master) {
      values.resize(static_cast<size_t>(specs_[i].size()));
      master = {values.data(), {specs_[i].size()}};
    }
    assay::initialise(on, specs_[i], seed, master);
    if (b.own_master) {
      rounded.resize(values.size());
      for (size_t k = 0; k < values.size(); ++k) round_to(rounded[k], values[k]);
      copy(on, b.weight, View<const bf16, 1>{rounded.data(), {specs_[i].size()}});
      wait(on);
      continue;
    }
    if (backend_ == Backend::kCpu) continue;
    copy(on, b.master, master);
    wait(on);
  }
}

template <typename T>
void ParameterStore<T>::refresh(Exec on) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    Buffers& b = buffers_[i];
    if (b.own_master) continue;
    if (!b.weight.empty()) cast<bf16, float>(on, {.y = b.weight, .x = b.master});
    if constexpr (sizeof(T) == 2) {
      if (b.packed.empty() || !b.weight.empty()) continue;
      const View<bf16, 1> rounded = turn_.rows(0, specs_[i].size());
      cast<bf16, float>(on, {.y = rounded, .x = b.master});
      pack(on, i, rounded.data);
    }
  }
  repack(on);
}

template <typename T>
void ParameterStore<T>::repack(Exec on) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const T* const plain = working(i).data;
    if (!buffers_[i].packed.empty() && plain != nullptr) pack(on, i, plain);
  }
}

template <typename T>
void ParameterStore<T>::pack(Exec on, size_t i, const T* plain) const {
  const std::vector<int64_t>& s = specs_[i].shape;
  const View<std::byte, 1> packed = buffers_[i].packed;
  if (s.size() == 3) {
    weight_stack_pack<T>(on, {.packed = packed, .plain = {plain, {s[0], s[1], s[2]}}});
  } else {
    weight_pack<T>(on, {.packed = packed, .plain = {plain, {s[0], s[1]}}});
  }
}

template <typename T>
void ParameterStore<T>::zero_gradients(Exec on, const std::set<std::string>& but) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!buffers_[i].grad.empty() && but.count(specs_[i].name) == 0) zero(on, buffers_[i].grad);
  }
}

template <typename T>
size_t ParameterStore<T>::index(const std::string& name) const {
  const auto found = by_name_.find(name);
  CHECK(found != by_name_.end(), "no parameter '%s'", name.c_str());
  return found->second;
}

template <typename T>
size_t ParameterStore<T>::index(const std::string& name, size_t rank) const {
  const size_t i = index(name);
  CHECK(specs_[i].shape.size() == rank, "parameter '%s' has rank %zu, not %zu", name.c_str(),
        specs_[i].shape.size(), rank);
  return i;
}

template <typename T>
const ParameterSpec& ParameterStore<T>::spec(const std::string& name) const {
  return specs_[index(name)];
}

template <typename T>
MasterView ParameterStore<T>::master(const std::string& name) const {
  const Buffers& b = buffers_[index(name)];
  if (b.own_master) return {.fp32 = {}, .rounded = b.weight};
  return {.fp32 = b.master, .rounded = {}};
}

template <typename T>
View<const T, 1> ParameterStore<T>::working(size_t i) const {
  if constexpr (sizeof(T) == 2) {
    return buffers_[i].weight;
  } else {
    return buffers_[i].master;
  }
}

template <typename T>
View<float, 1> ParameterStore<T>::vector(const std::string& name) const {
  return buffers_[index(name, 1)].master;
}

template <typename T>
View<float, 1> ParameterStore<T>::vector_gradient(const std::string& name) const {
  return buffers_[index(name, 1)].grad;
}

template <typename T>
View<const T, 2> ParameterStore<T>::plain(const std::string& name) const {
  const size_t i = index(name, 2);
  return {working(i).data, {specs_[i].shape[0], specs_[i].shape[1]}};
}

template <typename T>
WeightMatrix<T> ParameterStore<T>::matrix(const std::string& name) const {
  return {plain(name), buffers_[index(name, 2)].packed};
}

template <typename T>
View<float, 2> ParameterStore<T>::matrix_gradient(const std::string& name) const {
  const size_t i = index(name, 2);
  return {buffers_[i].grad.data, {specs_[i].shape[0], specs_[i].shape[1]}};
}

template <typename T>
WeightStack<T> ParameterStore<T>::stack(const std::string& name) const {
  const size_t i = index(name, 3);
  const auto& s = specs_[i].shape;
  return {{working(i).data, {s[0], s[1], s[2]}}, buffers_[i].packed};
}

template <typename T>
View<float, 3> ParameterStore<T>::stack_gradient(const std::string& name) const {
  const size_t i = index(name, 3);
  const auto& s = specs_[i].shape;
  return {buffers_[i].grad.data, {s[0], s[1], s[2]}};
}

template <typename T>
std::vector<ParameterRef> ParameterStore<T>::trained() {
  std::vector<ParameterRef> refs;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].trained()) continue;
    refs.push_back({&specs_[i], buffers_[i].master, buffers_[i].grad, buffers_[i].weight});
  }
  return refs;
}

template <typename T>
std::vector<TensorRef> ParameterStore<T>::tensors() {
  std::vector<TensorRef> refs;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const Buffers& b = buffers_[i];
    if (b.own_master) {
      refs.push_back({specs_[i].name, DType::kBF16, specs_[i].shape, b.weight.data});
    } else {
      refs.push_back({specs_[i].name, DType::kF32, specs_[i].shape, b.master.data});
    }
  }
  return refs;
}

template <typename T>
std::vector<Slice> ParameterStore<T>::slices() {
  std::vector<Slice> all;
  for (TensorRef& tensor : tensors()) {
    const ParameterSpec& of = spec(tensor.name);
    Slice slice{.whole = std::move(tensor), .first = of.first_element(), .count = of.size()};
    slice.data = slice.whole.data;
    slice.whole.shape = of.whole_shape();
    all.push_back(std::move(slice));
  }
  return all;
}

template class ParameterStore<float>;
template class ParameterStore<bf16>;

}  // namespace assay
