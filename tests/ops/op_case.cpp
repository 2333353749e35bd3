#include "tests/ops/op_case.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace assay {

namespace {

constexpr size_t kGuard = 256;
constexpr int64_t kWorkspaceGuard = 4096;
constexpr std::byte kSentinel{0xA5};
constexpr std::byte kPoisonByte{0xFF};  // NaN in float and bf16

bool same_bytes(const std::byte* a, const std::byte* b, size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

CaseMemory memory{[](size_t bytes) { return ::operator new(bytes); },
                  [](void* p) { ::operator delete(p); }};

// Bytes of the sentinel behind a buffer.
size_t guard_behind() {
  return memory.watched ? 0 : kGuard;
}

}  // namespace

void set_case_memory(CaseMemory m) {
  memory = m;
}
CaseMemory case_memory() {
  return memory;
}

std::byte* Workbench::add(const std::string& name, size_t bytes, Role role) {
  const size_t padded = kGuard + (memory.watched ? 0 : 64) + bytes + guard_behind();
  auto* const whole = static_cast<std::byte*>(memory.allocate(padded));
  const double times = role == Role::kTmp ? 0 : role == Role::kAcc ? 2 : 1;
  Buffer b{.name = name,
           .role = role,
           .bytes = bytes,
           .memory = {whole, memory.release},
           .traffic = times * double(bytes)};
  std::memset(b.memory.get(), static_cast<int>(kSentinel), padded);
  const auto address = reinterpret_cast<uintptr_t>(b.memory.get()) + kGuard;
  b.data = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  std::memset(b.data, static_cast<int>(kPoisonByte), bytes);
  buffers_.push_back(std::move(b));
  return buffers_.back().data;
}

const std::vector<double>& Workbench::kept_normals(const RandomKey& key, int64_t count) {
  static std::map<uint64_t, std::vector<double>> of_stream;
  std::vector<double>& kept = of_stream[key.stream];
  const int64_t first = int64_t(kept.size()), end = std::min(count, kKept);
  if (first < end) kept.resize(size_t(end));
#pragma omp parallel for schedule(static) if (end - first > kFilledAlone)
  for (int64_t i = first; i < end; ++i) kept[size_t(i)] = random_normal(key, uint64_t(i));
  return kept;
}

void Workbench::commit(Buffer& b) {
  const bool poisoned = b.role == Role::kOut || b.role == Role::kTmp;
  if (!poisoned) b.start.assign(b.data, b.data + b.bytes);
}

void Workbench::commit() {
  for (Buffer& b : buffers_) commit(b);
}

double Workbench::traffic() const {
  double sum = 0;
  for (const Buffer& b : buffers_) sum += b.traffic;
  return sum;
}

void Workbench::must_move(const std::byte* p, double bytes) {
  for (Buffer& b : buffers_) {
    if (!holds(b, p)) continue;
    b.traffic = bytes;
    return;
  }
  CHECK(false, "must_move: no buffer of the case holds the view");
}

bool Workbench::holds(const Buffer& b, const std::byte* p) {
  return p >= b.data && p < b.data + std::max<size_t>(b.bytes, 1);
}

void Workbench::restore() {
  for (Buffer& b : buffers_) {
    if (b.start.empty()) {
      std::memset(b.data, static_cast<int>(kPoisonByte), b.bytes);
    } else {
      std::memcpy(b.data, b.start.data(), b.bytes);
    }
  }
}

std::vector<std::byte> Workbench::results() const {
  size_t sum = 0;
  for (const Buffer& b : buffers_) sum += is_result(b.role) ? b.bytes : 0;
  std::vector<std::byte> all;
  all.reserve(sum);
  for (const Buffer& b : buffers_) {
    if (is_result(b.role)) all.insert(all.end(), b.data, b.data + b.bytes);
  }
  return all;
}

bool Workbench::gave(const std::vector<std::byte>& results) const {
  size_t at = 0;
  for (const Buffer& b : buffers_) {
    if (!is_result(b.role)) continue;
    if (results.size() - at < b.bytes || !same_bytes(results.data() + at, b.data, b.bytes)) {
      return false;
    }
    at += b.bytes;
  }
  return at == results.size();
}

std::vector<std::string> Workbench::damage() const {
  std::vector<std::string> names;
  for (const Buffer& b : buffers_) {
    bool intact = true;
    for (size_t i = 1; i <= kGuard; ++i) intact &= b.data[-static_cast<ptrdiff_t>(i)] == kSentinel;
    for (size_t i = 0; i < guard_behind(); ++i) intact &= b.data[b.bytes + i] == kSentinel;
    if (!intact) names.push_back(b.name + ": written outside");
    if (b.role == Role::kIn && !same_bytes(b.start.data(), b.data, b.bytes)) {
      names.push_back(b.name + ": input changed");
    }
  }
  return names;
}

size_t Workbench::bytes() const {
  size_t sum = 0;
  for (const Buffer& b : buffers_) sum += b.bytes;
  return sum;
}

void Workbench::place_copies(const CopyMemory& memory, int count) {
  copies_ = memory;
  if (count > 0) restore();
  for (Buffer& b : buffers_) {
    b.copies.clear();
    for (int i = 0; i < count; ++i) {
      b.copies.push_back(memory.allocate(b.bytes));
      memory.copy(b.copies.back().get(), b.data, b.bytes);
    }
  }
}

void Workbench::fetch_copy() {
  for (Buffer& b : buffers_) copies_.copy(b.data, b.copies.at(size_t(copy_)).get(), b.bytes);
}

std::byte* Workbench::moved(std::byte* p) const {
  for (const Buffer& b : buffers_) {
    if (holds(b, p)) {
      return b.copies.at(size_t(copy_)).get() + (p - b.data);
    }
  }
  return p;
}

CaseWorkspace::CaseWorkspace(int64_t bytes) : memory_(nullptr, memory.release) {
  if (bytes == 0) return;
  sentinel_ = memory.watched ? 0 : kWorkspaceGuard;
  const int64_t to_align = memory.watched ? 0 : 256;
  memory_.reset(memory.allocate(size_t(bytes + sentinel_ + to_align)));
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  view_ = {reinterpret_cast<std::byte*>((address + 255) / 256 * 256), {bytes}};
  std::memset(view_.data + bytes, static_cast<int>(kSentinel), size_t(sentinel_));
}

std::optional<int64_t> CaseWorkspace::overwritten() const {
  const int64_t bytes = view_.dim[0];
  for (int64_t i = bytes; i < bytes + sentinel_; ++i) {
    if (view_.data[i] != kSentinel) return i;
  }
  return std::nullopt;
}

void Report::add(Comparison& c, int64_t i, double got, double want, double tolerance) {
  const double error = got == want ? 0 : std::abs(got - want);
  const double used = error == 0                              ? 0
                      : (std::isnan(error) || tolerance <= 0) ? INFINITY
                                                              : error / tolerance;
  if (used > 1) c.outside += 1;
  if (c.worst_index < 0 || used > c.used) {
    c.worst_index = i;
    c.got = got;
    c.want = want;
    c.tolerance = tolerance;
    c.used = used;
  }
}

void Report::below(const std::string& claim, double value, double limit) {
  Comparison c{claim, 0, -1, 0, 0, 0, 0};
  add(c, 0, value, 0, limit);
  comparisons_.push_back(c);
}

}  // namespace assay
