#include <numeric>

#include "ops/kv_cache_write.h"
#include "tests/ops/op_case.h"

namespace assay {

namespace {

struct Shape {
  int64_t rows, kept, width, x_width, column;
};

std::string shape_name(const Shape& s) {
  return " N=" + std::to_string(s.rows) + " P=" + std::to_string(s.kept) +
         " W=" + std::to_string(s.width) + " of " + std::to_string(s.x_width) + " from " +
         std::to_string(s.column);
}

// N different rows of P in random order.
std::vector<int32_t> places(const Shape& s) {
  std::vector<int32_t> row(static_cast<size_t>(s.kept));
  std::iota(row.begin(), row.end(), 0);
  RandomSequence random({7, stream_id("row")});
  for (size_t i = row.size(); i > 1; --i) {
    std::swap(row[i - 1], row[random.below(static_cast<uint32_t>(i))]);
  }
  row.resize(static_cast<size_t>(s.rows));
  return row;
}

template <typename T>
OpInstance instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto row = bench->in<int32_t, 1>("row", {s.rows}, {Fill::kZero});
  const std::vector<int32_t> place = places(s);
  std::copy(place.begin(), place.end(), row.data);
  const auto x = bench->in<T, 2>("x", {s.rows, s.x_width});
  const KvCacheWrite<T> a{
      .kept = bench->acc<T, 2>("kept", {s.kept, s.width}), .x = x, .row = row, .column = s.column};
  bench->commit();
  const auto before = Workbench::doubles(a.kept), from = Workbench::doubles(x);
  const auto check = [=](Report& report) {
    auto want = before;
    for (int64_t i = 0; i < s.rows; ++i) {
      for (int64_t c = 0; c < s.width; ++c) {
        want[size_t(place[size_t(i)] * s.width + c)] = from[size_t(i * s.x_width + s.column + c)];
      }
    }
    report.equal("kept", a.kept, want);
  };
  return {bench, [a, bench](Exec on) { kv_cache_write<T>(on, bench->located(a)); }, check,
          kv_cache_write_cost(a)};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{1, 1, 1, 1, 0}, Shape{0, 4, 8, 24, 8}, Shape{5, 40, 64, 128, 64},
                         Shape{130, 131, 33, 50, 17}, Shape{9, 2000, 512, 1536, 512},
                         Shape{64, 4096, 256, 768, 512}}) {
    cases.push_back({"kv_cache_write",
                     std::string("kv_cache_write ") + dtype_name<T>() + shape_name(s),
                     [s] { return instance<T>(s); }});
  }
}

}  // namespace

std::vector<OpCase> kv_cache_write_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  return cases;
}

}  // namespace assay
