#include "models/audit/dense_twin.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace assay {

Twin dense_twin(const Config& like, const std::string& kind, int64_t multiple) {
  CHECK(multiple >= 1, "multiple %ld", static_cast<long>(multiple));
  if (kind != "active" && kind != "total")
    throw UserError("no dense twin of kind " + kind, "choose active or total");
  const Audit model = audit(like);
  const int64_t target = kind == "active" ? model.active : model.total;

  Config twin = like;
  twin.model.moe.reset();
  const auto parameters = [&](int64_t width) {
    twin.model.ffn = width;
    return count_from_formula(twin.model).total();
  };
  const int64_t step = parameters(2 * multiple) - parameters(multiple);
  const int64_t below = std::max<int64_t>(1, (target - parameters(multiple)) / step + 1) * multiple;
  const int64_t above = below + multiple;
  const int64_t width =
      std::abs(parameters(above) - target) < std::abs(parameters(below) - target) ? above : below;

  Twin result = {.ffn = width, .target = target, .parameters = parameters(width)};
  result.residual = result.parameters - target;
  result.residual_percent =
      100.0 * static_cast<double>(result.residual) / static_cast<double>(target);
  return result;
}

}  // namespace assay
