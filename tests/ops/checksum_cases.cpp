#include <bit>

#include "base/hash.h"
#include "ops/checksum.h"
#include "tests/ops/op_case.h"

namespace assay {

namespace {

// The checksum of elements [skip, n), as a part of all, including starts that are not aligned to 16
// bytes. The reference applies the definition, hash_floats, to one element at a time, backwards.
template <typename T>
OpInstance instance(int64_t n, int64_t skip) {
  auto bench = std::make_shared<Workbench>();
  const View<T, 1> buffer = bench->in<T, 1>("x", {n}, normal(0.02));
  const Checksum<T> a{.sum = bench->out<int64_t, 1>("sum", {1}),
                      .x = {buffer.data + skip, {n - skip}},
                      .first = skip};
  bench->must_move(buffer, double(a.x.bytes()));
  const auto check = [=](Report& report) {
    uint64_t want = 0;
    for (int64_t i = a.x.dim[0]; i-- > 0;) {
      const float x = float(a.x[i]);
      want += hash_floats(&x, 1, skip + i);
    }
    report.below("other bits", uint64_t(a.sum[0]) == want ? 0 : 1, 0.5);
  };
  return {bench, [a, bench](Exec on) { checksum(on, bench->located(a)); }, check, checksum_cost(a)};
}

}  // namespace

std::vector<OpCase> checksum_cases() {
  std::vector<OpCase> cases;
  for (const auto& [n, skip] :
       {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {5, 1}, {4099, 0}, {70000, 3}, {1000000, 0}}) {
    cases.push_back({"checksum",
                     "checksum float n=" + std::to_string(n) + " from " + std::to_string(skip),
                     [n = n, skip = skip] { return instance<float>(n, skip); }});
    cases.push_back({"checksum",
                     "checksum bf16 n=" + std::to_string(n) + " from " + std::to_string(skip),
                     [n = n, skip = skip] { return instance<bf16>(n, skip); }});
  }
  cases.push_back(large("checksum", "checksum float n=32000001 from 1",
                        [] { return instance<float>(32000001, 1); }));
  return cases;
}

}  // namespace assay
