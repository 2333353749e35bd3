#include "cuda/memory_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>

#include "base/math.h"
#include "base/memory_limit.h"
#include "base/memory_units.h"
#include "cuda/context.h"

namespace assay {

namespace {

constexpr size_t kAlign = 256;  // cuBLASLt requires it of its workspace

size_t aligned(size_t bytes) {
  return round_up(bytes, kAlign);
}

constexpr Section kSections[] = {Section::kParameters,  Section::kGradients,   Section::kSums,
                                 Section::kOptimizer,   Section::kActivations, Section::kScratch,
                                 Section::kHostVisible, Section::kData};

gpu::Place place_of(Section section) {
  const bool host = section == Section::kHostVisible || section == Section::kData;
  return host ? gpu::Place::kHostVisible : gpu::Place::kDevice;
}

// "blocks.12.attn.norm" and "blocks.3.attn.norm" are one line: digits between dots become "*".
std::string folded(const std::string& name) {
  std::string out;
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    out += (begin ? "." : "") + (number ? std::string("*") : part);
    begin = end + 1;
  }
  return out;
}

}  // namespace

const char* section_name(Section section) {
  switch (section) {
    case Section::kParameters:
      return "parameters";
    case Section::kGradients:
      return "gradients";
    case Section::kSums:
      return "sums of parts";
    case Section::kOptimizer:
      return "optimizer";
    case Section::kActivations:
      return "activations";
    case Section::kScratch:
      return "scratch";
    case Section::kHostVisible:
      return "read by the host";
    case Section::kData:
      return "data";
  }
  return "?";
}

MemoryPlan::~MemoryPlan() {
  for (const Block& b : blocks_) {
    if (gpu_) {
      gpu_->memory->release(b.address, place_of(b.section));
    } else {
      munmap(b.address, b.bytes);
    }
  }
}

void MemoryPlan::add_bytes(Section section, std::string name, size_t bytes, void** address) {
  CHECK(blocks_.empty(), "memory plan: '%s' added after allocate()", name.c_str());
  entries_.push_back({section, std::move(name), bytes, address});
}

size_t MemoryPlan::section_bytes(Section section) const {
  size_t sum = 0;
  for (const Entry& e : entries_) {
    if (e.section == section) sum += aligned(e.bytes);
  }
  return sum;
}

size_t MemoryPlan::total_bytes() const {
  size_t sum = 0;
  for (const Section s : kSections) sum += section_bytes(s);
  return sum;
}

size_t MemoryPlan::bytes_on(const gpu::Context* gpu) const {
  size_t sum = 0;
  for (const Section s : kSections) {
    if (!gpu || place_of(s) == gpu::Place::kDevice) sum += section_bytes(s);
  }
  return sum;
}

size_t MemoryPlan::room_on(const gpu::Context& gpu) {
  return size_t(std::max<int64_t>(0, gpu.memory->available() - gpu::kTakenLater));
}

void* MemoryPlan::take(Section section, size_t bytes) const {
  if (gpu_) return gpu_->memory->allocate(bytes, place_of(section));
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) {
    throw UserError(strprintf("cannot allocate %zu bytes for %s", bytes, section_name(section)),
                    "reduce run.micro_batch or the model; --plan prints the memory needed");
  }
  madvise(block, bytes, MADV_HUGEPAGE);
  std::memset(block, 0, bytes);
  return block;
}

void MemoryPlan::require_room(const gpu::Context* gpu) const {
  const size_t needed = bytes_on(gpu);
  const MemoryLimit host = memory_limit();
  const size_t available = gpu ? room_on(*gpu) : host.bytes;
  if (needed > available) {
    print(std::cerr);
    const char* const there = gpu                ? "the GPU has"
                              : host.cgroup == 0 ? "this machine has"
                                                 : "the limit of its cgroup is";
    throw NotEnoughMemory(
        strprintf("the run needs %.1f GiB of memory, %s %.1f GiB%s", in_gib(needed), there,
                  in_gib(available), gpu ? " free for it" : ""),
        "reduce run.micro_batch or the model; the table above lists what needs memory", available);
  }
}

void MemoryPlan::allocate(gpu::Context* gpu) {
  CHECK(blocks_.empty(), "memory plan: allocated twice (%zu bytes)", total_bytes());
  require_room(gpu);
  gpu_ = gpu;
  for (const Section section : kSections) {
    const size_t bytes = section_bytes(section);
    if (bytes == 0) continue;
    void* const block = take(section, bytes);
    blocks_.push_back({block, bytes, section});
    auto* next = static_cast<std::byte*>(block);
    for (Entry& e : entries_) {
      if (e.section != section) continue;
      *e.address = next;
      next += aligned(e.bytes);
    }
  }
}

View<std::byte, 1> MemoryPlan::block(Section section) const {
  for (const Block& b : blocks_) {
    if (b.section == section) return {static_cast<std::byte*>(b.address), {int64_t(b.bytes)}};
  }
  return {};
}

void MemoryPlan::print(std::ostream& out) const {
  const auto line = [&](const char* indent, const std::string& name, size_t count, size_t bytes) {
    std::string label = indent + name;
    if (count > 1) label += " x" + std::to_string(count);
    out << strprintf("%-52s %14zu B %10.1f MiB\n", label.c_str(), bytes, in_mib(bytes));
  };
  for (const Section section : kSections) {
    if (section_bytes(section) == 0) continue;
    line("", section_name(section), 1, section_bytes(section));
    std::vector<std::string> order;
    std::map<std::string, std::pair<size_t, size_t>> groups;
    for (const Entry& e : entries_) {
      if (e.section != section) continue;
      auto& group = groups[folded(e.name)];
      if (group.first == 0) order.push_back(folded(e.name));
      group.first += 1;
      group.second += aligned(e.bytes);
    }
    for (const std::string& name : order) line("  ", name, groups[name].first, groups[name].second);
  }
  line("", "total", 1, total_bytes());
}

}  // namespace assay
