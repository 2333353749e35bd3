#include "ops/zero.h"
#include "tests/ops/op_case.h"

namespace assay {

namespace {

// Bytes [skip, bytes) of a buffer become zero; those before do not change.
OpInstance instance(int64_t bytes, int64_t skip) {
  auto bench = std::make_shared<Workbench>();
  const View<bf16, 1> buffer = bench->acc<bf16, 1>("x", {bytes / 2}, normal(0.0, 3.0));
  const Zero a{{reinterpret_cast<std::byte*>(buffer.data) + skip, {bytes - skip}}};
  bench->must_move(buffer, double(bytes - skip));  // the rest is only there to stay
  const auto check = [=](Report& report) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < buffer.dim[0]; ++i) {
      wrong += buffer[i].bits != bf16(i < skip / 2 ? 3.0f : 0.0f).bits;
    }
    report.below("elements that differ", double(wrong), 0.5);
  };
  return {bench, [a, bench](Exec on) { zero(on, bench->located(a)); }, check, zero_cost(a)};
}

}  // namespace

std::vector<OpCase> zero_cases() {
  std::vector<OpCase> cases;
  for (const auto& [bytes, skip] : {std::pair<int64_t, int64_t>{2, 0},
                                    {6, 0},
                                    {48, 6},
                                    {4002, 0},
                                    {4002, 14},
                                    {100000, 2},
                                    {9000002, 0}}) {
    cases.push_back({"zero",
                     "zero " + std::to_string(bytes) + " bytes, from " + std::to_string(skip),
                     [bytes = bytes, skip = skip] { return instance(bytes, skip); }});
  }
  cases.push_back(
      large("zero", "zero 200000000 bytes, from 0", [] { return instance(200000000, 0); }));
  return cases;
}

}  // namespace assay
