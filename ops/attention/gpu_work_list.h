// The works of attention's wgmma kernels: the rows of a head that a block owns at a time, in the
// order of a list.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/gpu.h"

namespace assay::gpu::attention {

// As many blocks as SMs walk a list. Heads are counted over all sequences. A section of heads,
// whose streamed rows stay in L2, is followed by the next; within one, the longest works come
// first.
struct WorkList {
  int works, heads, section, of_head;  // of_head: works of a head
};
struct ListPlace {
  int head, turn;  // turn: 0 for the longest work of the head
};
GPU_DEVICE ListPlace place_at(const WorkList& list, int i) {
  const int first = i / (list.section * list.of_head) * list.section;
  const int left = list.heads - first, heads = list.section < left ? list.section : left;
  const int of_section = i - first * list.of_head;
  return {first + of_section % heads, of_section / heads};
}

// Calls f(place, round) for each work of the block. Every second round goes backwards, so that no
// block always has the longest work of a round.
template <typename F>
GPU_DEVICE void for_each_place(const WorkList& list, F&& f) {
  const int blocks = int(gridDim.x), block = int(blockIdx.x);
  for (int round = 0;; ++round) {
    const int i = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (i >= list.works) return;
    f(place_at(list, i), round);
  }
}

// Bytes of streamed rows that are to stay in L2, half of an H100's.
inline constexpr int64_t kKeptBytes = int64_t{24} << 20;

// A section has a quarter of the SMs' number of heads, or less if L2 asks for it: with sequences of
// a multiple of 1024 a section is then an even number of rounds, and all blocks have the same share
// of it. `streamed`: bytes of a head.
inline WorkList work_list(int64_t heads, int64_t of_head, int64_t streamed, int multiprocessors) {
  int section = std::max(multiprocessors / 4, 1);
  while (section > 1 && section * streamed > kKeptBytes) section /= 2;
  return {int(heads * of_head), int(heads), section, int(of_head)};
}
inline unsigned blocks_of(const WorkList& list, int multiprocessors) {
  return unsigned(std::min(list.works, multiprocessors));
}

// A pair of full and empty barriers completes one phase per use of a stage. Uses are counted over
// all works of a block.
GPU_DEVICE uint32_t full_phase(int use, int stages) {
  return uint32_t(use / stages) & 1;
}
GPU_DEVICE uint32_t empty_phase(int use, int stages) {
  return uint32_t(use / stages + 1) & 1;  // the first use does not wait
}

}  // namespace assay::gpu::attention
