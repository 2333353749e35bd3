// One case list per op (tests/ops/<op>_cases.cpp), used by op_check (correctness) and by the
// benches (time).
//
// A case makes an instance: buffers in a Workbench (each between sentinels), a call of the op, and
// a comparison with the scalar reference in double. op_check (on the CPU), op_check_simt (the CUDA
// kernels on the SIMT emulator, cuda/simt) and op_check_cuda (on a GPU) run every instance
//   check    once, compared with the reference;
//   guard    with a check of the sentinels around every buffer after each run;
//   repeat   again from the same start: outputs equal to the bit;
//   vary     with 1 and 3 threads, under other schedules, or with copies of the buffers elsewhere:
//            outputs equal to the bit.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "cuda/exec.h"
#include "tests/ops/value_bytes.h"

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

// Initial contents of a buffer. normal(): N(mean, std) rounded to T, keyed by the buffer's name.
struct Fill {
  enum Kind { kNormal, kZero, kPoison } kind = kNormal;
  double std = 1.0;
  double mean = 0.0;
};
inline Fill normal(double std = 1.0, double mean = 0.0) {
  return {Fill::kNormal, std, mean};
}

// Allocator of buffers and workspaces: the heap, or memory that a device can access too.
struct CaseMemory {
  void* (*allocate)(size_t bytes);
  void (*release)(void* p);
  // The memory aligns allocations to 256 bytes and itself notices accesses past their ends. Buffers
  // then end where their allocations do, without a sentinel, so that reads are noticed too.
  bool watched = false;
};
// Allocator of the copies of a workbench's buffers, e.g. in device memory, and a copy function in
// both directions.
struct CopyMemory {
  std::function<std::shared_ptr<std::byte>(size_t bytes)> allocate;
  std::function<void(void* to, const void* from, size_t bytes)> copy;
};
// Sets the memory of every Workbench and CaseWorkspace made later.
void set_case_memory(CaseMemory memory);
CaseMemory case_memory();

class Workbench {
 public:
  // Buffers by role. in: filled, must not change. out: poisoned (NaN bits), must be written. acc:
  // filled, is added to. tmp: poisoned, not compared between runs.
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

  // The view's current values in double. Called before the op runs, these are the starting values.
  template <typename T, int Rank>
  static std::vector<double> doubles(const View<T, Rank>& v) {
    std::vector<double> out(static_cast<size_t>(v.size()));
    for (int64_t i = 0; i < v.size(); ++i) out[static_cast<size_t>(i)] = double(float(v[i]));
    return out;
  }
  // Makes the current contents the starting state, after inputs were filled by hand (token ids,
  // offsets).
  void commit();

  // The bytes that the op of a case must move, which its cost function must give (base/cost.h): in
  // and out once, acc twice, tmp not at all. must_move() sets another number for a buffer of which
  // the op needs a part, or nothing. It does nothing for a view without memory.
  double traffic() const;
  template <typename T, int Rank>
  void must_move(const View<T, Rank>& v, double bytes) {
    if (!v.empty()) must_move(reinterpret_cast<const std::byte*>(v.data), bytes);
  }

  void restore();                                          // resets every buffer to its start
  std::vector<std::byte> results() const;                  // bytes of all out and acc buffers
  bool gave(const std::vector<std::byte>& results) const;  // true if results() returns the same
  std::vector<std::string> damage() const;  // overwritten sentinels and changed inputs, by name
  size_t bytes() const;                     // of all buffers together

  // Copies of the buffers in other memory, for runs in device memory. place_copies restores the
  // buffers and makes `count` copies of each; use_copy selects one (-1: the buffers themselves).
  // The run of every case must call its op with located(arguments), not with the arguments.
  //
  // WARNING: located() does not know the fields of A. It scans the bytes of the struct at every
  // pointer-aligned offset and treats any word whose value is an address inside a buffer of this
  // bench as a pointer to be moved into the copy in use. Therefore:
  // - A must hold its pointers directly, as views do. Pointers in memory that A points to (a list
  //   of views) are not moved; a case must locate them itself (global_norm_cases.cpp).
  // - A pointer to one past the end of a buffer is not moved.
  // - An integer or double whose bits equal such an address would be changed. Sizes, scales and
  //   seeds are far from heap addresses. A float beside padding is not: what is left of an address
  //   in the padding makes one with it, in one run of a hundred. So padding is cleared first.
  // Without a copy in use the arguments are returned unchanged. calls_located() counts the calls
  // that moved pointers, so that a caller can detect a case that forgets located().
  void place_copies(const CopyMemory& memory, int count);
  void use_copy(int copy) { copy_ = copy; }
  void fetch_copy();  // copies the contents of the copy in use into the buffers
  int64_t calls_located() const { return calls_located_; }
  template <typename A>
  A located(A a) const {
    static_assert(std::is_trivially_copyable_v<A>);
    if (copy_ < 0) return a;
    calls_located_ += 1;
    static const std::bitset<sizeof(A)> kHolds = value_bytes<A>();
    for (size_t at = 0; at < sizeof(A); ++at) {
      if (!kHolds[at]) reinterpret_cast<std::byte*>(&a)[at] = std::byte{0};
    }
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
  // Up to this many elements are filled by one thread.
  static constexpr int64_t kFilledAlone = 1 << 16;
  static constexpr int64_t kKept = 1 << 22;  // normals per key that stay in memory
  struct Buffer {
    std::string name;
    Role role;
    size_t bytes;
    std::unique_ptr<std::byte, void (*)(void*)>
        memory;  // sentinel, data (64-byte aligned), sentinel unless the memory is watched
    double traffic = 0;
    std::byte* data = nullptr;
    // Starting contents of in and acc; the others start poisoned.
    std::vector<std::byte> start = {};
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
  // The first `count` normals of a key, at most kKept. They are cached, because most cases of an op
  // use the same ones and computing them takes longer than many ops. Valid until the next call.
  static const std::vector<double>& kept_normals(const RandomKey& key, int64_t count);
  static void commit(Buffer& buffer);
  static bool is_result(Role role) {
    return role == Role::kOut || role == Role::kAcc;
  }
  void must_move(const std::byte* p, double bytes);
  static bool holds(const Buffer& buffer, const std::byte* p);
  std::byte* moved(std::byte* p) const;

  std::vector<Buffer> buffers_;
  CopyMemory copies_;
  int copy_ = -1;  // the copy in use; -1: none
  mutable int64_t calls_located_ = 0;
};

// Collects the comparisons of one instance. near() compares element by element, each with its own
// tolerance.
class Report {
 public:
  template <typename T, int Rank, typename Tolerance>
  void near(const std::string& tensor, const View<T, Rank>& got, const std::vector<double>& want,
            Tolerance&& tolerance) {
    Comparison c{tensor, 0, -1, 0, 0, 0, 0};
    for (int64_t i = 0; i < got.size(); ++i) {
      double value;
      if constexpr (sizeof(T) == 8) {
        value = double(got[i]);  // double, or an integer below 2^53
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
  // Claims |value| <= limit, e.g. for complex_step_error(...).
  void below(const std::string& claim, double value, double limit);

  struct Comparison {
    std::string tensor;
    int64_t outside;
    int64_t worst_index;
    double got, want, tolerance;
    double used;  // largest |got - want| / tolerance; above 1 fails
  };
  const std::vector<Comparison>& comparisons() const { return comparisons_; }

 private:
  static void add(Comparison& c, int64_t i, double got, double want, double tolerance);
  std::vector<Comparison> comparisons_;
};

struct OpInstance {
  std::shared_ptr<Workbench> bench;
  std::function<void(Exec)> run;       // runs the op; Exec has the workspace below
  std::function<void(Report&)> check;  // after run
  Cost cost;                           // of run; decides where a case is too expensive
  // The bytes of Exec::workspace that run asks for, by the op's own *_workspace_bytes(). The checks
  // give it so many and no more. Not set: none.
  std::function<int64_t(Backend)> workspace = {};
  // Where run also calls other ops, before the op or to compare with it: the op alone, which
  // benches time on buffers as run left them. Without a cost, they leave the case out.
  struct Alone {
    std::function<void(Exec)> run;
    Cost cost;
  };
  std::optional<Alone> alone = std::nullopt;
  Alone timed() const { return alone ? *alone : Alone{run, cost}; }
};

// kCpu: only for the CPU implementation. kGpu: only for the CUDA kernels. kEvery: for both.
enum class OpBody { kEvery, kCpu, kGpu };
// kLarge: the sizes of training on a GPU, which show a kernel's speed: hundreds of megabytes,
// checked in samples. Run by op_check_cuda and bench_device; op_check --large tests their
// comparisons on the CPU.
enum class CaseSize { kUsual, kLarge };

struct OpCase {
  std::string op;    // "rmsnorm_forward"
  std::string name;  // "rmsnorm_forward bf16 N=7 C=64": unique, what --filter matches
  std::function<OpInstance()> make;
  OpBody body = OpBody::kEvery;
  CaseSize size = CaseSize::kUsual;
  // Compute capabilities of GPUs that have the op (100: 10.0).
  int capability = 0, last_capability = 1000;
  // Set for cases that are the only ones to reach a kernel or its pipeline's wrap-around: the race
  // check runs them although they are expensive.
  bool race_checked_at_any_cost = false;
};
// 0: a GPU that has everything.
inline bool runs_on(const OpCase& c, int capability) {
  return capability == 0 || (c.capability <= capability && capability <= c.last_capability);
}
inline OpCase large(std::string op, std::string name, std::function<OpInstance()> make) {
  return {std::move(op), std::move(name), std::move(make), OpBody::kEvery, CaseSize::kLarge};
}

// Memory of Exec::workspace, aligned to 256 bytes like planned memory, with a sentinel behind it.
// Benches have enough for every case of the usual sizes, checks as much as an instance asks for.
class CaseWorkspace {
 public:
  explicit CaseWorkspace(int64_t bytes = int64_t{64} << 20);
  View<std::byte, 1> view() const { return view_; }  // without bytes: no pointer either
  // The first byte behind it that was overwritten, counted from its start.
  std::optional<int64_t> overwritten() const;

 private:
  std::unique_ptr<void, void (*)(void*)> memory_;
  View<std::byte, 1> view_ = {};
  int64_t sentinel_ = 0;  // bytes
};

// True if `op` is the case's op or its family (rmsnorm: rmsnorm_forward, ...; empty: any) and the
// case's name contains `filter`.
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
