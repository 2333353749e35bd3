// What a MoE sublayer shows a MoeProbe, and takes back from it: copies on the host.
#include <vector>

#include "cuda/transfer.h"
#include "models/decoder/moe_sublayer.h"

namespace assay {

namespace {

// A copy on the host of a view where the ops run.
template <typename E, int Rank>
struct HostCopy {
  HostCopy(Exec on, View<E, Rank> from) : memory(size_t(from.size())), view(from) {
    view.data = memory.data();
    copy(on, view, from);
    wait(on);
  }
  std::vector<E> memory;
  View<E, Rank> view;
};

}  // namespace

template <typename T>
void MoeSublayer<T>::show_choices(Exec on, int64_t n) {
  const View<int32_t, 2> expert_here = expert_.rows(0, n);
  const View<float, 2> gate_here = gate_.rows(0, n);
  HostCopy<int32_t, 2> expert(on, expert_here);
  HostCopy<float, 2> gate(on, gate_here);
  if (probe_->routed(layer_, expert.view, gate.view) == MoeProbe::Changed::kNo) return;
  copy(on, expert_here, expert.view);
  copy(on, gate_here, gate.view);
  wait(on);
}

template <typename T>
void MoeSublayer<T>::show_outputs(Exec on, int64_t n) {
  const View<T, 2> here = expert_out_.rows(0, n * moe_.top_k);
  HostCopy<int32_t, 2> expert(on, expert_.rows(0, n)), slot(on, slot_.rows(0, n));
  HostCopy<T, 2> out(on, here);
  std::vector<float> values(out.memory.begin(), out.memory.end());
  const View<float, 2> shown{values.data(), {here.dim[0], here.dim[1]}};
  if (probe_->computed(layer_, expert.view, slot.view, shown) == MoeProbe::Changed::kNo) return;
  for (size_t i = 0; i < values.size(); ++i) out.memory[i] = T(values[i]);
  copy(on, here, out.view);
  wait(on);
}

template void MoeSublayer<float>::show_choices(Exec, int64_t);
template void MoeSublayer<bf16>::show_choices(Exec, int64_t);
template void MoeSublayer<float>::show_outputs(Exec, int64_t);
template void MoeSublayer<bf16>::show_outputs(Exec, int64_t);

}  // namespace assay
