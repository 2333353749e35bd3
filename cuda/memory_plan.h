// Memory is planned by name, printed, then allocated once. A view is registered with its shape; it
// gets its address when the whole plan is allocated, one zeroed block per section.
//
//   MemoryPlan plan;
//   plan.add(Section::kActivations, "blocks.0.norm", norm, {tokens, hidden});  // sets the shape
//   plan.print(std::cout);                                                     // --plan stops here
//   plan.allocate();                                                           // sets data, zeroed
//
// With a GPU's context, sections are in GPU memory, except kHostVisible and kData, which the host
// reads and writes.
//
// A registered view must not move between add() and allocate(). Copies taken after allocate() are
// fine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

// The plan does not fit. A caller that knows the model can suggest one that fits available_bytes.
class NotEnoughMemory : public UserError {
 public:
  NotEnoughMemory(const std::string& message, const std::string& hint, size_t available_bytes)
      : UserError(message, hint), available_bytes(available_bytes) {}
  size_t available_bytes;
};

// kSums: gradients of parts of a batch that wait for others (engine/part_sums.h). kHostVisible: the
// small results of a step that the host reads. kData: tokens.
enum class Section {
  kParameters,
  kGradients,
  kSums,
  kOptimizer,
  kActivations,
  kScratch,
  kHostVisible,
  kData
};
const char* section_name(Section section);

class MemoryPlan {
 public:
  MemoryPlan() = default;
  MemoryPlan(const MemoryPlan&) = delete;
  MemoryPlan& operator=(const MemoryPlan&) = delete;
  ~MemoryPlan();

  // Sets the view's shape; allocate() sets its data.
  template <typename T, int Rank>
  void add(Section section, std::string name, View<T, Rank>& view,
           const std::array<int64_t, Rank>& shape) {
    for (int r = 0; r < Rank; ++r) view.dim[r] = shape[static_cast<size_t>(r)];
    add_bytes(section, std::move(name), view.bytes(), reinterpret_cast<void**>(&view.data));
  }

  // Throws NotEnoughMemory, with the table on stderr, if the machine, the cgroup of the process, or
  // the GPU has too little.
  void require_room(const gpu::Context* gpu = nullptr) const;
  // Allocates every section (256-byte aligned entries, huge pages where the system grants them) and
  // sets the registered views. After require_room().
  void allocate(gpu::Context* gpu = nullptr);

  size_t total_bytes() const;
  // The bytes that must fit into the memory of `gpu`, or of the machine if it is null.
  size_t bytes_on(const gpu::Context* gpu) const;
  // What plans may take of a GPU's memory: what is free but gpu::kTakenLater.
  static size_t room_on(const gpu::Context& gpu);
  size_t section_bytes(Section section) const;
  // After allocate(): the whole section, entries in the order of add() with zeros between them.
  View<std::byte, 1> block(Section section) const;
  // One line per section, then one per group of entries (blocks.* folded), in bytes and MiB.
  void print(std::ostream& out) const;

  struct Entry {
    Section section;
    std::string name;
    size_t bytes;
    void** address;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add_bytes(Section section, std::string name, size_t bytes, void** address);

  std::vector<Entry> entries_;
  struct Block {
    void* address;
    size_t bytes;
    Section section;
  };
  void* take(Section section, size_t bytes) const;

  gpu::Context* gpu_ = nullptr;
  std::vector<Block> blocks_;  // made by allocate()
};

}  // namespace assay
