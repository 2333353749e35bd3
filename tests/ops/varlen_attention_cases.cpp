#include <set>

#include "ops/varlen_attention.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/varlen_attention.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

// A segment: its own rows, the rows of its prefix, and how many of its first rows have no query.
// Prefix: where the prefixes are.
struct Piece {
  int64_t rows, prefix, seen_only = 0;
};
// kCacheOfEach: no two texts share rows of the cache.
enum class Prefix { kOwnRows, kCache, kCacheOfEach };

struct Shape {
  const char* name;
  std::vector<Piece> pieces;
  Prefix where;
  int64_t heads, kv_heads, head_dim;
  double std = 1.0;  // of q, k and v
  BehindPrefix behind_prefix = BehindPrefix::kTiles;
  CaseSize size = CaseSize::kUsual;

  int64_t rows() const {
    int64_t n = 0;
    for (const Piece& p : pieces) n += p.rows;
    return n;
  }
  int64_t prefix_rows() const {
    int64_t n = 1, sum = 0;
    for (const Piece& p : pieces) {
      n = std::max(n, p.prefix + 3);
      sum += p.prefix;
    }
    return where == Prefix::kCacheOfEach ? sum : n;
  }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// A prefix in qkv begins at row 0, in segment 0. A prefix in a shared cache begins at row 0 or, for
// every second segment, at row 3.
std::vector<AttentionSegment> segments_of(const Shape& s) {
  std::vector<AttentionSegment> out;
  int64_t begin = 0, cached = 0;
  for (const Piece& p : s.pieces) {
    const bool later = s.where == Prefix::kCache && out.size() % 2 == 1 && p.prefix > 0;
    const int64_t from = s.where == Prefix::kCacheOfEach ? cached : later ? 3 : 0;
    out.push_back(
        {begin, begin + p.rows, from, from + p.prefix, p.seen_only > 0 ? begin + p.seen_only : 0});
    begin += p.rows;
    cached += p.prefix;
  }
  return out;
}

// attention_work() counted row by row.
AttentionWork counted_work(const std::vector<AttentionSegment>& segments) {
  AttentionWork work;
  std::set<int64_t> seen;
  for (const AttentionSegment& g : segments) {
    const int64_t first = std::max(g.begin, g.query_begin);
    for (int64_t t = first; t < g.end; ++t) {
      work.pairs += double(g.prefix_end - g.prefix_begin + t - g.begin + 1);
      work.queries += 1;
    }
    for (int64_t j = g.prefix_begin; j < g.prefix_end && first < g.end; ++j) seen.insert(j);
  }
  work.prefix_rows = int64_t(seen.size());
  return work;
}

void check_work(Report& report, const AttentionWork& got, const AttentionWork& want) {
  const double words[] = {got.pairs, double(got.queries), double(got.prefix_rows)};
  report.equal("pairs, queries, rows of prefixes", View<const double, 1>{words, {3}},
               {want.pairs, double(want.queries), double(want.prefix_rows)});
}

// The checked rows of out: all, or 24 of large cases.
std::vector<int64_t> looked_rows(const Shape& s) {
  return wide_sample(s.rows(), s.size == CaseSize::kLarge ? 1e6 : 1.0);
}

template <typename T>
OpInstance instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto segments = segments_of(s);
  const auto words = bench->in<int64_t, 2>("segment", {int64_t(segments.size()), 5}, {Fill::kZero});
  const View<AttentionSegment, 1> segment{reinterpret_cast<AttentionSegment*>(words.data),
                                          {words.dim[0]}};
  std::copy(segments.begin(), segments.end(), segment.data);
  const auto qkv = bench->in<T, 2>("qkv", {s.rows(), s.width()}, normal(s.std));
  const int64_t cache_width = 2 * s.kv_heads * s.head_dim;
  const bool cached = s.where != Prefix::kOwnRows;
  const auto cache = bench->in<T, 2>("cache", {s.prefix_rows(), cache_width}, normal(s.std));
  bench->commit();
  // Rows without a query must stay 0.
  const auto out = bench->acc<T, 2>("out", {s.rows(), s.heads * s.head_dim}, {Fill::kZero});
  const VarlenAttention<T> a{.out = out,
                             .qkv = qkv,
                             .prefix = cached ? cache : qkv,
                             .segment = segment,
                             .work = attention_work(segment),
                             .prefix_column = cached ? 0 : s.heads * s.head_dim,
                             .heads = s.heads,
                             .kv_heads = s.kv_heads,
                             .head_dim = s.head_dim,
                             .behind_prefix = s.behind_prefix};
  const AttentionWork work = counted_work(segments);
  const double q_bytes = double(work.queries * s.heads * s.head_dim) * sizeof(T);
  const double kv_bytes = double(cache_width) * sizeof(T);  // of a row
  bench->must_move(qkv, q_bytes + double(s.rows()) * kv_bytes);
  bench->must_move(out, q_bytes);
  bench->must_move(cache, cached ? double(work.prefix_rows) * kv_bytes : 0);
  const auto check = [=](Report& report) {
    check_work(report, a.work, work);
    const ref::VarlenAttention attention{s.heads,   s.kv_heads,      s.head_dim,
                                         s.width(), a.prefix.dim[1], a.prefix_column};
    const size_t d_model = size_t(s.heads * s.head_dim), values = size_t(s.kv_heads * s.head_dim);
    const auto looked = looked_rows(s);
    std::vector<double> want(looked.size() * d_model), tolerance(want.size());
    for (const AttentionSegment& g : segments) {
      const auto row = [&](int64_t r) { return std::lower_bound(looked.begin(), looked.end(), r); };
      const auto begin = row(std::max(g.begin, g.query_begin)), end = row(g.end);
      if (begin == end) continue;
      const auto own = Workbench::doubles(qkv.rows(g.begin, *(end - 1) + 1 - g.begin));
      const auto kept =
          Workbench::doubles(a.prefix.rows(g.prefix_begin, g.prefix_end - g.prefix_begin));
      for (auto at = begin; at != end; ++at) {
        const int64_t t = *at - g.begin;
        for (int64_t h = 0; h < s.heads; ++h) {
          const int64_t kv = h / (s.heads / s.kv_heads) * s.head_dim;
          std::vector<ref::VarlenAttention::Key> keys;
          for (int64_t j = 0; j < g.prefix_end - g.prefix_begin; ++j) {
            keys.push_back({&kept, size_t(j * a.prefix.dim[1] + a.prefix_column + kv)});
          }
          for (int64_t j = 0; j <= t; ++j) {
            keys.push_back({&own, size_t(j * s.width()) + d_model + size_t(kv)});
          }
          double largest = 0;
          const auto p = attention.row(&own[size_t(t * s.width() + h * s.head_dim)], keys, largest);
          const double count = double(keys.size());
          const double error = tol::sum(double(s.head_dim) + 1, largest) + tol::elementary(4, 1) +
                               tol::sum(count, 1);
          for (size_t d = 0; d < size_t(s.head_dim); ++d) {
            double sum = 0, abs_sum = 0, squares = 0;
            for (size_t j = 0; j < keys.size(); ++j) {
              const double term = p[j] * (*keys[j].from)[keys[j].at + values + d];
              sum += term;
              abs_sum += std::abs(term);
              squares += term * term;
            }
            const size_t o = size_t(at - looked.begin()) * d_model + size_t(h * s.head_dim) + d;
            want[o] = sum;
            tolerance[o] = tol::rounding<T>(sum) + error * abs_sum + tol::sum(count, abs_sum) +
                           tol::rounded_factors<T>(std::sqrt(squares));
          }
        }
      }
    }
    auto got = chosen_rows(a.out.data, int64_t(d_model), looked);
    report.near("out", got.view(), want, [&](int64_t i) { return tolerance[size_t(i)]; });
  };
  return {bench, [a, bench](Exec on) { varlen_attention<T>(on, bench->located(a)); }, check,
          varlen_attention_cost(a)};
}

template <typename T>
OpCase case_of(const Shape& s) {
  OpCase c{"varlen_attention",
           std::string("varlen_attention ") + dtype_name<T>() + " " + s.name +
               " H=" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
               " D=" + std::to_string(s.head_dim),
           [s] { return instance<T>(s); }};
  c.size = s.size;
  return c;
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  const Shape shapes[] = {
      {"one row", {{1, 0}}, Prefix::kOwnRows, 1, 1, 32},
      {"a question and its answers",
       {{37, 0}, {3, 37}, {1, 37}, {9, 37}},
       Prefix::kOwnRows,
       4,
       2,
       32},
      {"texts of many lengths",
       {{70, 0}, {1, 0}, {0, 0}, {33, 0}, {65, 0}},
       Prefix::kOwnRows,
       3,
       3,
       64},
      {"one new token each",
       {{1, 5}, {1, 64}, {1, 0}, {1, 131}},
       Prefix::kCache,
       6,
       2,
       128,
       1.0,
       BehindPrefix::kRowByRow},
      {"pieces after a cache",
       {{5, 40}, {33, 65}, {2, 1}},
       Prefix::kCache,
       4,
       1,
       64,
       1.0,
       BehindPrefix::kRowByRow},
      {"last rows only",
       {{70, 0, 69}, {9, 70, 3}, {66, 0, 66}, {65, 70, 60}},
       Prefix::kOwnRows,
       4,
       2,
       64},
      {"last rows of pieces after a cache",
       {{5, 40, 4}, {33, 65, 31}, {2, 1, 2}},
       Prefix::kCache,
       2,
       1,
       32,
       1.0,
       BehindPrefix::kRowByRow},
      {"extreme", {{20, 0}, {4, 20}}, Prefix::kOwnRows, 2, 1, 64, 30.0},
      {"behind a long prefix", {{530, 0}, {70, 530}}, Prefix::kOwnRows, 2, 1, 32},
      {"many answers",
       {{300, 0}, {8, 300}, {8, 300}, {8, 300}, {8, 300}},
       Prefix::kOwnRows,
       8,
       8,
       32},
  };
  for (const Shape& s : shapes) cases.push_back(case_of<T>(s));
}

}  // namespace

std::vector<OpCase> varlen_attention_cases() {
  std::vector<OpCase> cases;
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  // An evaluation, and a step of generation.
  const Shape texts{.name = "32 texts of 512",
                    .pieces = std::vector<Piece>(32, {512, 0}),
                    .where = Prefix::kOwnRows,
                    .heads = 12,
                    .kv_heads = 12,
                    .head_dim = 64,
                    .size = CaseSize::kLarge};
  const Shape tokens{.name = "64 new tokens behind 2048 each",
                     .pieces = std::vector<Piece>(64, {1, 2048}),
                     .where = Prefix::kCacheOfEach,
                     .heads = 12,
                     .kv_heads = 4,
                     .head_dim = 64,
                     .behind_prefix = BehindPrefix::kRowByRow,
                     .size = CaseSize::kLarge};
  for (const Shape& s : {texts, tokens}) cases.push_back(case_of<bf16>(s));
  return cases;
}

}  // namespace assay
