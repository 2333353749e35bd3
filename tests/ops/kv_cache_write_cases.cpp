#include <numeric>

#include "ops/kv_cache_write.h"
#include "tests/ops/matrix_case.h"
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
  const double moved = double(s.rows * s.width) * sizeof(T);  // rows and columns that are copied
  bench->must_move(a.kept, moved);
  bench->must_move(x, moved);
  // All rows of the cache, or some of large cases.
  const auto looked = wide_sample(s.kept, 10.0 * double(s.width));
  const auto before = chosen_doubles(a.kept, looked);
  const auto check = [=](Report& report) {
    std::vector<int64_t> source(size_t(s.kept), -1);
    for (int64_t i = 0; i < s.rows; ++i) source[size_t(place[size_t(i)])] = i;
    auto want = before;
    for (size_t at = 0; at < looked.size(); ++at) {
      const int64_t i = source[size_t(looked[at])];
      for (int64_t c = 0; c < s.width && i >= 0; ++c) {
        want[at * size_t(s.width) + size_t(c)] = double(float(x.at(i, s.column + c)));
      }
    }
    auto kept = chosen_rows(a.kept.data, s.width, looked);
    report.equal("kept", kept.view(), want);
  };
  return {bench, [a, bench](Exec on) { kv_cache_write<T>(on, bench->located(a)); }, check,
          kv_cache_write_cost(a)};
}

std::string case_name(const char* type, const Shape& s) {
  return std::string("kv_cache_write ") + type + shape_name(s);
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  for (const Shape& s : {Shape{1, 1, 1, 1, 0}, Shape{0, 4, 8, 24, 8}, Shape{5, 40, 64, 128, 64},
                         Shape{130, 131, 33, 50, 17}, Shape{9, 2000, 512, 1536, 512},
                         Shape{64, 4096, 256, 768, 512}}) {
    cases.push_back(
        {"kv_cache_write", case_name(dtype_name<T>(), s), [s] { return instance<T>(s); }});
  }
}

}  // namespace

std::vector<OpCase> kv_cache_write_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  // The prompts of 16,384 tokens of a model with 12 heads of 64.
  const Shape prompts{16384, 32768, 1536, 2304, 768};
  cases.push_back(large("kv_cache_write", case_name(dtype_name<bf16>(), prompts),
                        [prompts] { return instance<bf16>(prompts); }));
  return cases;
}

}  // namespace assay
