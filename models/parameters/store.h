// The parameters of a decoder with their buffers: fp32 master, fp32 gradient, the working copy the
// products read (bf16 recipe: a rounded copy; fp32 recipe: the master itself) and its packed form.
// With optimizer.state bf16 (bf16 recipe) the working copy of a matrix is its master, and there is
// no other.
// Inference on a CPU reads the packed forms only; each rounded copy is made in one shared buffer
// and packed from there.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda/memory_plan.h"
#include "engine/config/config.h"
#include "engine/model.h"
#include "engine/parameter_spec.h"
#include "models/parameters/master_view.h"
#include "models/parameters/purpose.h"
#include "ops/weight_matrix.h"

namespace assay {

template <typename T>
class ParameterStore {
 public:
  ParameterStore(std::vector<ParameterSpec> specs, Backend backend,
                 StateFormat state = StateFormat::kFp32);

  // Call before plan(). The parameter gets no working copy here, because its products read other
  // copies (models/linear/weight_copies.h).
  void leave_out(const std::string& name);
  // For inference, gradients are not planned (their views are empty), nor are the working copies of
  // packed bf16 matrices (plain() has null data).
  void plan(MemoryPlan& plan, Purpose purpose);
  void initialise(Exec on, uint64_t seed);
  // Working copies and packed forms from the masters.
  void refresh(Exec on);
  // Packed forms from working copies that the optimizer has already rounded.
  void repack(Exec on);
  // All but those with these names.
  void zero_gradients(Exec on, const std::set<std::string>& but);

  // Valid after MemoryPlan::allocate(). Each checks the name and the rank.
  const ParameterSpec& spec(const std::string& name) const;
  MasterView master(const std::string& name) const;
  View<float, 1> vector(const std::string& name) const;
  View<float, 1> vector_gradient(const std::string& name) const;
  View<const T, 2> plain(const std::string& name) const;
  WeightMatrix<T> matrix(const std::string& name) const;
  View<float, 2> matrix_gradient(const std::string& name) const;
  WeightStack<T> stack(const std::string& name) const;
  View<float, 3> stack_gradient(const std::string& name) const;

  std::vector<ParameterRef> trained();
  std::vector<TensorRef> tensors();
  // The same as parts of whole tensors.
  std::vector<Slice> slices();
  const std::vector<ParameterSpec>& specs() const { return specs_; }

 private:
  struct Buffers {
    View<float, 1> master, grad;
    View<bf16, 1> weight;  // recipe bf16, matrices only; empty where only the packed form is kept
    bool own_master = false;  // weight is the master; `master` is not planned
    View<std::byte, 1> packed;
    bool left_out = false;
  };
  // Masters lie one after the other in the order of the gradients, as ranks exchange them
  // (engine/rank_sums.h): those that all ranks have, then those of which each has a share.
  static bool has_all(const ParameterSpec& spec) { return spec.trained() && !spec.shared_out(); }
  static bool has_share(const ParameterSpec& spec) { return spec.trained() && spec.shared_out(); }
  void plan_masters(MemoryPlan& plan, bool (*wanted)(const ParameterSpec&));
  int64_t planned_pack_bytes(const ParameterSpec& spec) const;
  void pack(Exec on, size_t i, const T* plain) const;
  size_t index(const std::string& name) const;
  size_t index(const std::string& name, size_t rank) const;
  View<const T, 1> working(size_t i) const;

  std::vector<ParameterSpec> specs_;
  const Backend backend_;
  const StateFormat state_;
  std::vector<Buffers> buffers_;
  View<bf16, 1> turn_;  // the rounded copy of the matrix being packed
  std::map<std::string, size_t> by_name_;
};

}  // namespace assay
