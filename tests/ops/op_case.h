// One case list per op (tests/ops/<op>_cases.cpp), used by op_check (correctness) and by the
// benches (time).
//
// A case makes an instance: buffers in a Workbench (each between sentinels), a call, and a
// comparison with the scalar reference in double. op_check (on the CPU) and op_check_simt (the CUDA
// kernels on the CPU, cuda/simt) run every instance
//   check    once, and compare with the reference;
//   guard    look at the sentinels around every buffer;
//   repeat   again from the same start: outputs equal to the bit;
//   vary     with 1 and 3 threads, or under other schedules: outputs equal to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
constexpr const char* dtype_name();
template <>
constexpr const char* dtype_name<float>() {
  return "float";
}
template <>
constexpr const char* dtype_name<bf16>() {
  return "bf16";
}

// How a buffer starts. normal(): N(0, std) rounded to T, keyed by the buffer's name.
struct Fill {
  enum Kind { kNormal, kZero, kPoison } kind = kNormal;
  double std = 1.0;
  double mean = 0.0;
};
inline Fill normal(double std = 1.0, double mean = 0.0) {
  return {Fill::kNormal, std, mean};
}

// Where buffers and the workspace come from: the heap, or memory that a device reads as well.
struct CaseMemory {
  void* (*allocate)(size_t bytes);
  void (*release)(void* p);
};
// Where copies of a workbench's buffers go, and how bytes get there and back: a device's memory.
struct CopyMemory {
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
  std::function<void(void* to, const void* from, size_t bytes)> copy;
};
// For every Workbench and CaseWorkspace made from now on.
void set_case_memory(CaseMemory memory);
CaseMemory case_memory();

class Workbench {
 public:
  // in: filled, must not change. out: starts poisoned (NaN bits), must be written. acc: filled, is
  // added to. tmp: poisoned, not compared between repeats.
  template <typename T, int Rank>
  View<T, Rank> in(const std::string& name, const std::array<int64_t, Rank>& shape,
                   Fill fill = normal()) {
    return make<T, Rank>(name, shape, fill, Role::kIn);
  }
  template <typename T, int Rank>
  View<T, Rank> out(const std::string& name, const std::array<int64_t, Rank>& shape) {
    return make<T, Rank>(name, shape, {Fill::kPoison}, Role::kOut);
  }
  template <typename T, int Rank>
  View<T, Rank> acc(const std::string& name, const std::array<int64_t, Rank>& shape,
                    Fill fill = normal()) {
    return make<T, Rank>(name, shape, fill, Role::kAcc);
  }
  template <typename T, int Rank>
  View<T, Rank> tmp(const std::string& name, const std::array<int64_t, Rank>& shape) {
    return make<T, Rank>(name, shape, {Fill::kPoison}, Role::kTmp);
  }

  // The starting values, in double, of what a view holds now. Call it before the op runs.
  template <typename T, int Rank>
  static std::vector<double> doubles(const View<T, Rank>& v) {
    std::vector<double> out(static_cast<size_t>(v.size()));
    for (int64_t i = 0; i < v.size(); ++i) out[static_cast<size_t>(i)] = double(float(v[i]));
    return out;
  }
  // After an input was filled by hand (token ids, offsets): makes that the starting state.
  void commit();

  void restore();                                          // every buffer back to its start
  std::vector<std::byte> results() const;                  // bytes of all out and acc buffers
  bool gave(const std::vector<std::byte>& results) const;  // are they these?
  std::vector<std::string> damage() const;  // sentinels or inputs that changed, by name
  size_t bytes() const;                     // of all buffers

  // The benches on a device: `count` copies of every buffer there, each as it starts. A case's run
  // gives its op located(arguments): the arguments with every pointer into a buffer moved into the
  // copy in use. Without copies, or with none in use, they stay as they are.
  void place_copies(const CopyMemory& memory, int count);
  void use_copy(int copy) { copy_ = copy; }
  void fetch_copy();  // into the buffers
  int64_t calls_located() const { return calls_located_; }
  template <typename A>
  A located(A a) const {
    static_assert(std::is_trivially_copyable_v<A>);
    if (copy_ < 0) return a;
    calls_located_ += 1;
    for (size_t at = 0; at + sizeof(void*) <= sizeof(A); at += alignof(void*)) {
      auto* const word = reinterpret_cast<std::byte*>(&a) + at;
      std::byte* p;
      std::memcpy(&p, word, sizeof p);
      p = moved(p);
      std::memcpy(word, &p, sizeof p);
    }
    return a;
  }

 private:
  enum class Role { kIn, kOut, kAcc, kTmp };
  static constexpr int64_t kFilledAlone = 1 << 16;  // elements that one thread fills
  static constexpr int64_t kKept = 1 << 22;         // normals of one key that stay in memory
  struct Buffer {
    std::string name;
    Role role;
    size_t bytes;
    std::unique_ptr<std::byte, void (*)(void*)>
        memory;  // sentinel, data (64-byte aligned), sentinel
    std::byte* data = nullptr;
    std::vector<std::byte> start = {};  // of in and acc; the others start poisoned
    std::vector<std::shared_ptr<std::byte>> copies = {};
  };

  template <typename T, int Rank>
  View<T, Rank> make(const std::string& name, const std::array<int64_t, Rank>& shape, Fill fill,
                     Role role) {
    View<T, Rank> v;
    for (int r = 0; r < Rank; ++r) v.dim[r] = shape[static_cast<size_t>(r)];
    v.data = reinterpret_cast<T*>(add(name, v.bytes(), role));
    if (fill.kind == Fill::kZero) std::memset(static_cast<void*>(v.data), 0, v.bytes());
    if (fill.kind == Fill::kNormal) {
      const RandomKey key = {1, stream_id(name), 0};
      const std::vector<double>& kept = kept_normals(key, v.size());
#pragma omp parallel for schedule(static) if (v.size() > kFilledAlone)
      for (int64_t i = 0; i < v.size(); ++i) {
        const double z =
            i < int64_t(kept.size()) ? kept[size_t(i)] : random_normal(key, uint64_t(i));
        v[i] = static_cast<T>(static_cast<float>(fill.mean + fill.std * z));
      }
    }
    commit(buffers_.back());
    return v;
  }
  std::byte* add(const std::string& name, size_t bytes, Role role);
  // The first normals of a key, `count` of them or as many as are kept: most cases of an op ask for
  // the same ones again, and computing them takes longer than many an op. Valid until the next
  // call.
  static const std::vector<double>& kept_normals(const RandomKey& key, int64_t count);
  static void commit(Buffer& buffer);
  static bool is_result(Role role) {
    return role == Role::kOut || role == Role::kAcc;
  }
  std::byte* moved(std::byte* p) const;

  std::vector<Buffer> buffers_;
  CopyMemory copies_;
  int copy_ = -1;  // in use
  mutable int64_t calls_located_ = 0;
};

// Collects comparisons of one instance. near(): got and want element by element, each with its own
// tolerance.
class Report {
 public:
  template <typename T, int Rank, typename Tolerance>
  void near(const std::string& tensor, const View<T, Rank>& got, const std::vector<double>& want,
            Tolerance&& tolerance) {
    Comparison c{tensor, 0, -1, 0, 0, 0, 0};
    for (int64_t i = 0; i < got.size(); ++i) {
      double value;
      if constexpr (std::is_same_v<std::remove_const_t<T>, double>) {
        value = got[i];
      } else {
        value = double(float(got[i]));
      }
      add(c, i, value, want.at(static_cast<size_t>(i)), tolerance(i));
    }
    if (int64_t(want.size()) != got.size()) c.outside += 1;
    comparisons_.push_back(c);
  }
  template <typename T, int Rank>
  void equal(const std::string& tensor, const View<T, Rank>& got, const std::vector<double>& want) {
    near(tensor, got, want, [](int64_t) { return 0.0; });
  }
  // A scalar claim, e.g. complex_step_error(...) < 1e-12.
  void below(const std::string& claim, double value, double limit);

  struct Comparison {
    std::string tensor;
    int64_t outside;
    int64_t worst_index;
    double got, want, tolerance;
    double used;  // largest |got - want| / tolerance; over 1 is outside
  };
  const std::vector<Comparison>& comparisons() const { return comparisons_; }

 private:
  static void add(Comparison& c, int64_t i, double got, double want, double tolerance);
  std::vector<Comparison> comparisons_;
};

struct OpInstance {
  std::shared_ptr<Workbench> bench;
  std::function<void(Exec)> run;       // the op under test; Exec comes with a large workspace
  std::function<void(Report&)> check;  // after run
  Cost cost;
};

// kCpu: what only the CPU body promises. kGpu: what the CPU has no body for.
enum class OpBody { kEvery, kCpu, kGpu };
// kLarge: the sizes of training on a GPU, which say how fast a kernel is: hundreds of megabytes,
// compared in samples. For op_check_cuda and bench_device; op_check --large proves the comparisons
// on the CPU.
enum class CaseSize { kUsual, kLarge };

struct OpCase {
  std::string op;    // "rmsnorm_forward"
  std::string name;  // "rmsnorm_forward bf16 N=7 C=64": unique, what --filter matches
  std::function<OpInstance()> make;
  OpBody body = OpBody::kEvery;
  CaseSize size = CaseSize::kUsual;
  int capability = 0;  // that a GPU needs for it (100: 10.0)
  // The race check leaves out expensive cases, but for those that alone reach a kernel or its
  // pipeline's wrap-around.
  bool race_checked_at_any_cost = false;
};
inline OpCase large(std::string op, std::string name, std::function<OpInstance()> make) {
  return {std::move(op), std::move(name), std::move(make), OpBody::kEvery, CaseSize::kLarge};
}

// Exec::workspace in op_check and the benches: large enough for every case of a size, aligned as
// planned memory is.
class CaseWorkspace {
 public:
  explicit CaseWorkspace(CaseSize size = CaseSize::kUsual)
      : bytes_(int64_t{size == CaseSize::kLarge ? 256 : 64} << 20) {}
  View<std::byte, 1> view() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    return {reinterpret_cast<std::byte*>((address + 255) / 256 * 256), {bytes_}};
  }

 private:
  int64_t bytes_;
  std::unique_ptr<void, void (*)(void*)> memory_{case_memory().allocate(size_t(bytes_) + 256),
                                                 case_memory().release};
};

// Does `op` name the case's op or its family (rmsnorm: rmsnorm_forward, ...; empty: any), and its
// name hold `filter`?
inline bool selected(const OpCase& c, const std::string& op, const std::string& filter) {
  const bool of_op = op.empty() || c.op == op || c.op.rfind(op + "_", 0) == 0;
  return of_op && c.name.find(filter) != std::string::npos;
}

// The list <op>_cases() of one op, and of all in the order of ops/ops.cmake; CMake writes both
// functions. The proof of a reference is a case too: run does nothing, check calls
// complex_step_error.
std::vector<OpCase> op_cases(const std::string& op);
std::vector<OpCase> all_op_cases();

}  // namespace assay
