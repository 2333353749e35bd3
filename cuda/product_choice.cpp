#include "cuda/product_choice.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace assay::gpu {

namespace {

std::string operand_text(const ProductKey::Operand& o) {
  constexpr const char* kTypes[] = {"float", "bf16", "e4m3", "e5m2", "e2m1"};
  constexpr const char* kScales[] = {"", " tensor", " 1x128", " 128x128", " 1x32", " 1x16"};
  return std::string(kTypes[int(o.type)]) + kScales[int(o.scales)] +
         (o.form == ProductKey::Form::kTransposed ? "^T" : "");
}

}  // namespace

std::string text_of(const ProductKey& key) {
  const bool widened =
      key.result == ProductKey::Type::kFloat && key.a.type != ProductKey::Type::kFloat;
  return strprintf("(%ld, %ld, %ld) %s by %s%s%s", long(key.m), long(key.n), long(key.k),
                   operand_text(key.a).c_str(), operand_text(key.b).c_str(),
                   widened ? " to float" : "",
                   key.added == ProductKey::Added::kNothing ? "" : " +=");
}

std::string text_of(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const AlgorithmField& field : kAlgorithmFields) {
    if (algorithm.*field.value == 0 && field.value != &ProductAlgorithm::id) continue;
    text +=
        strprintf("%s%s %ld", text.empty() ? "" : ", ", field.name, long(algorithm.*field.value));
  }
  return text;
}

const ProductChoice* ProductChoices::find(const ProductKey& key) const {
  const auto found = chosen_.find(key);
  return found == chosen_.end() ? nullptr : &found->second;
}

void ProductChoices::note(const Used& used) {
  const bool known = std::any_of(used_.begin(), used_.end(), [&](const Used& u) {
    return u.key == used.key && u.choice == used.choice;
  });
  if (!known) used_.push_back(used);
}

void ProductChoices::begin_calls() {
  calls_.clear();
  keeps_calls_ = true;
}

ProductChoices::Calls ProductChoices::end_calls() {
  keeps_calls_ = false;
  return std::exchange(calls_, {});
}

void ProductChoices::note_call(const ProductKey& key, const ProductOperands& operands) {
  if (keeps_calls_) calls_[key].push_back(operands);
}

}  // namespace assay::gpu
