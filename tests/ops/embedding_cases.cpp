#include "ops/embedding.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/op_case.h"
#include "tests/ref/complex_step.h"
#include "tests/ref/embedding.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

// kHighDigit: few different ids, which differ in bits 16 and above or in bits 0 and 1.
enum class Tokens { kRandom, kAllTheSame, kAllZero, kHighDigit };

struct Shape {
  int64_t tokens, vocab, width;
  float gain;
  Tokens kind;
};

std::string shape_name(const Shape& s) {
  return " N=" + std::to_string(s.tokens) + " V=" + std::to_string(s.vocab) +
         " C=" + std::to_string(s.width) + (s.gain == 1.0f ? "" : " gain") +
         (s.kind == Tokens::kAllTheSame ? " one token" : "") +
         (s.kind == Tokens::kAllZero ? " all 0" : "") +
         (s.kind == Tokens::kHighDigit ? " high digit" : "");
}

// Rows of the table that so many tokens can choose.
int64_t most_rows(const Shape& s) {
  return std::min(s.tokens, s.vocab);
}

View<int32_t, 1> tokens_of(Workbench& bench, const Shape& s) {
  const auto token = bench.in<int32_t, 1>("token", {s.tokens}, {Fill::kZero});
  RandomSequence random({3, stream_id("token")});
  for (int64_t i = 0; i < s.tokens; ++i) {
    const auto drawn = int32_t(random.below(uint32_t(s.vocab)));
    token[i] = s.kind == Tokens::kAllTheSame  ? int32_t(s.vocab - 1)
               : s.kind == Tokens::kAllZero   ? 0
               : s.kind == Tokens::kHighDigit ? (drawn & 3) + (drawn & 4) * (65536 / 4)
                                              : drawn;
  }
  bench.commit();
  return token;
}

template <typename T>
OpInstance forward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const EmbeddingForward<T> a{.y = bench->out<T, 2>("y", {s.tokens, s.width}),
                              .weight = bench->in<T, 2>("weight", {s.vocab, s.width}),
                              .token = tokens_of(*bench, s),
                              .gain = s.gain};
  bench->must_move(a.weight, double(most_rows(s) * s.width) * sizeof(T));
  const auto check = [a](Report& report) {
    const auto rows = wide_sample(a.y.dim[0], double(a.y.dim[1]));
    ref::Embedding<double> embedding{a.y.dim[1], double(a.gain), {}};
    std::vector<int64_t> of_weight;
    for (const int64_t row : rows) {
      embedding.token.push_back(int32_t(of_weight.size()));
      of_weight.push_back(a.token[row]);
    }
    const auto want = embedding.forward(chosen_doubles(a.weight, of_weight));
    auto y = chosen_rows(a.y.data, a.y.dim[1], rows);
    report.near("y", y.view(), want, [&](int64_t i) {
      return a.gain == 1.0f ? tol::exact() : tol::rounding<T>(want[size_t(i)]);
    });
  };
  return {bench, [a, bench](Exec on) { embedding_forward<T>(on, bench->located(a)); }, check,
          embedding_forward_cost(a)};
}

template <typename T>
OpInstance backward_instance(const Shape& s) {
  auto bench = std::make_shared<Workbench>();
  const EmbeddingBackward<T> a{.dweight = bench->acc<float, 2>("dweight", {s.vocab, s.width}),
                               .dy = bench->in<T, 2>("dy", {s.tokens, s.width}),
                               .token = tokens_of(*bench, s),
                               .gain = s.gain};
  bench->must_move(a.dweight, 2 * double(most_rows(s) * s.width) * sizeof(float));
  const auto ids = wide_sample(s.vocab, double(s.width));
  const auto before = chosen_doubles(a.dweight, ids);
  const auto check = [=](Report& report) {
    // The tokens with one of the checked ids, each as the index of its id among them.
    ref::Embedding<double> embedding{s.width, double(a.gain), {}};
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < s.tokens; ++i) {
      const auto id = std::lower_bound(ids.begin(), ids.end(), int64_t{a.token[i]});
      if (id == ids.end() || *id != a.token[i]) continue;
      embedding.token.push_back(int32_t(id - ids.begin()));
      rows.push_back(i);
    }
    auto want = before;
    const auto dy = chosen_doubles(a.dy, rows);
    embedding.backward(dy, want);
    std::vector<double> size(want.size()), count(want.size(), 1.0), abs_dy = dy;
    for (size_t i = 0; i < size.size(); ++i) size[i] = std::abs(before[i]);
    for (double& d : abs_dy) d = std::abs(d);
    embedding.backward(abs_dy, size);
    ref::Embedding<double>{s.width, 1.0, embedding.token}.backward(
        std::vector<double>(dy.size(), 1.0), count);
    auto dweight = chosen_rows(a.dweight.data, s.width, ids);
    report.near("dweight", dweight.view(), want, [&](int64_t i) {
      return count[size_t(i)] == 1.0 ? tol::exact() : tol::sum(count[size_t(i)], size[size_t(i)]);
    });
  };
  const auto workspace = [s](Backend backend) {
    return embedding_backward_workspace_bytes(backend, s.tokens, s.width);
  };
  return {bench, [a, bench](Exec on) { embedding_backward<T>(on, bench->located(a)); }, check,
          embedding_backward_cost(a), workspace};
}

OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const auto weight = Workbench::doubles(bench->in<float, 2>("weight", {4, 3}));
  const auto dy = Workbench::doubles(bench->in<float, 2>("dy", {5, 3}));
  const auto check = [=](Report& report) {
    const std::vector<int32_t> token{2, 0, 2, 3, 2};
    ref::Vector dweight(weight.size(), 0.0);
    ref::Embedding<double>{3, 1.5, token}.backward(dy, dweight);
    const auto loss = [&](const ref::ComplexVector& w) {
      const auto y = ref::Embedding<ref::Complex>{3, 1.5, token}.forward(w);
      ref::Complex sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    report.below("dweight by complex step", ref::complex_step_error(loss, weight, dweight), 1e-13);
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_cases(std::vector<OpCase>& cases) {
  // Covers the GPU's sort: ids of one, two and three 8-bit digits, several blocks of 2048 tokens,
  // and segments of one id over many runs of 64.
  for (const Shape& s :
       {Shape{1, 1, 1, 1.0f, Tokens::kRandom}, Shape{7, 11, 65, 1.5f, Tokens::kRandom},
        Shape{130, 5, 100, 1.0f, Tokens::kRandom}, Shape{300, 17, 64, 0.3f, Tokens::kAllTheSame},
        Shape{0, 5, 8, 1.0f, Tokens::kRandom}, Shape{1000, 300, 40, 1.0f, Tokens::kRandom},
        Shape{2500, 70000, 16, 0.5f, Tokens::kHighDigit}, Shape{4100, 3, 24, 1.0f, Tokens::kRandom},
        Shape{2100, 2, 8, 1.0f, Tokens::kAllTheSame}, Shape{70, 9, 264, 1.0f, Tokens::kRandom},
        Shape{2048, 8192, 256, 1.0f, Tokens::kRandom},
        // One whole run of 64. What is behind its sorted tokens, their first position, is 0 too.
        Shape{64, 3, 8, 1.0f, Tokens::kAllZero}}) {
    const std::string suffix = std::string(" ") + dtype_name<T>() + shape_name(s);
    cases.push_back({"embedding_forward", "embedding_forward" + suffix,
                     [s] { return forward_instance<T>(s); }});
    cases.push_back({"embedding_backward", "embedding_backward" + suffix,
                     [s] { return backward_instance<T>(s); }});
  }
}

void add_large_cases(std::vector<OpCase>& cases) {
  const Shape s{65536, 50304, 768, 1.0f, Tokens::kRandom};
  const std::string suffix = " bf16" + shape_name(s);
  cases.push_back(large("embedding_forward", "embedding_forward" + suffix,
                        [s] { return forward_instance<bf16>(s); }));
  cases.push_back(large("embedding_backward", "embedding_backward" + suffix,
                        [s] { return backward_instance<bf16>(s); }));
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases{
      {"embedding_reference", "embedding_reference complex step", reference_instance}};
  add_cases<float>(cases);
  add_cases<bf16>(cases);
  add_large_cases(cases);
  return cases;
}

}  // namespace assay
