#include "engine/part_sums.h"

#include <bit>

#include "base/check.h"
#include "ops/carry_sum.h"

namespace assay {

PartSums::PartSums(int64_t parts, Model& model)
    : parts_(parts), model_(model), levels_(std::bit_width(uint64_t(parts - 1))) {
  CHECK(parts >= 1 && levels_.size() <= size_t(kMostCarried), "part_sums: %ld parts", long(parts));
}

void PartSums::plan(MemoryPlan& plan) {
  parameters_ = model_.parameters();  // sizes are known after Model::plan()
  int64_t values = 0;
  for (const ParameterRef& p : parameters_) values += p.size();
  for (size_t l = 0; l < levels_.size(); ++l) {
    plan.add(Section::kSums, "parts.level" + std::to_string(l), levels_[l], {values});
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
  int64_t at = 0;
  for (const ParameterRef& p : parameters_) {
    const auto level = [&](int l) { return levels_[size_t(l)].rows(at, p.size()); };
    CarrySum<float> a{.to = last ? p.grad : level(first_empty), .own = p.grad};
    for (int l = 0; l < end; ++l) {
      if ((part >> l & 1) != 0) a.earlier[size_t(a.carried++)] = level(l);
    }
    carry_sum(on, a);
    at += p.size();
  }
}

}  // namespace assay
