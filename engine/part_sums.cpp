#include "engine/part_sums.h"

#include <bit>
#include <string>

#include "base/check.h"
#include "ops/carry_sum.h"

namespace assay {

PartSums::PartSums(int64_t parts) : parts_(parts), levels_(std::bit_width(uint64_t(parts - 1))) {
  CHECK(parts >= 1 && levels_.size() <= size_t(kMostCarried), "part_sums: %ld parts", long(parts));
}

void PartSums::plan(MemoryPlan& plan) {
  this->plan(plan, "parts", int64_t(plan.section_bytes(Section::kGradients) / sizeof(float)));
}

void PartSums::plan(MemoryPlan& plan, const std::string& name, int64_t values) {
  for (size_t l = 0; l < levels_.size(); ++l) {
    plan.add(Section::kSums, name + ".level" + std::to_string(l), levels_[l], {values});
  }
}

void PartSums::bind(const MemoryPlan& plan) {
  const View<std::byte, 1> all = plan.block(Section::kGradients);
  bind({reinterpret_cast<float*>(all.data), {all.dim[0] / int64_t(sizeof(float))}});
}

void PartSums::bind(View<float, 1> gradients) {
  gradients_ = gradients;
  for (const View<float, 1>& level : levels_) {
    CHECK(level.dim[0] == gradients_.dim[0], "part_sums: planned for %ld gradients of %ld",
          long(level.dim[0]), long(gradients_.dim[0]));
  }
}

void PartSums::end_part(Exec on, int64_t part) const {
  if (parts_ == 1) return;
  CHECK(part >= 0 && part < parts_, "part_sums: part %ld of %ld", long(part), long(parts_));
  // Level l holds a sum if bit l of `part` is set. A part in the middle adds those up to the first
  // empty level and waits there; the last part adds all.
  const bool last = part + 1 == parts_;
  const int first_empty = std::countr_one(uint64_t(part));
  const int end = last ? std::bit_width(uint64_t(part)) : first_empty;
  CarrySum<float> a{.to = last ? gradients_ : levels_[size_t(first_empty)], .own = gradients_};
  for (int l = 0; l < end; ++l) {
    if ((part >> l & 1) != 0) a.earlier[size_t(a.carried++)] = levels_[size_t(l)];
  }
  carry_sum(on, a);
}

}  // namespace assay
