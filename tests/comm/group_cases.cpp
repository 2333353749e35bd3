#include "tests/comm/group_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "cuda/context.h"
#include "cuda/transfer.h"

namespace assay {
namespace {

// What `rank` sends to `to` in call `call`: bytes that depend on all three.
Row row_of(int call, int rank, int to, size_t bytes) {
  RandomSequence random({7, uint64_t(call), uint32_t(rank * 1000 + to)});
  Row row(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
    const uint32_t word = random.next();
    std::memcpy(row.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return row;
}

const std::byte kUntouched{0xA5};

void check_all_gather(Group& g, Exec lane, int call, size_t bytes, bool in_place) {
  Row all(size_t(g.size()) * bytes + 1, kUntouched);
  const Row mine = row_of(call, g.rank(), 0, bytes);
  const size_t own = size_t(g.rank()) * bytes;
  if (in_place) std::copy(mine.begin(), mine.end(), all.begin() + ptrdiff_t(own));
  Buffer to(lane, all), from(lane, mine);
  g.all_gather(lane, to.data(), in_place ? to.data() + own : from.data(), bytes);
  all = to.read();
  for (int r = 0; r < g.size(); ++r) {
    const Row want = row_of(call, r, 0, bytes);
    expect(std::equal(want.begin(), want.end(), all.begin() + ptrdiff_t(size_t(r) * bytes)),
           "all_gather", call);
  }
  expect(all.back() == kUntouched, "all_gather wrote past its end", call);
}

void check_all_to_all(Group& g, Exec lane, int call, size_t bytes) {
  Row rows;
  for (int r = 0; r < g.size(); ++r) {
    const Row row = row_of(call, g.rank(), r, bytes);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  Buffer received(lane, Row(rows.size() + 1, kUntouched)), sent(lane, rows);
  g.all_to_all(lane, received.data(), sent.data(), bytes);
  const Row to = received.read();
  for (int r = 0; r < g.size(); ++r) {
    const Row want = row_of(call, r, g.rank(), bytes);
    expect(std::equal(want.begin(), want.end(), to.begin() + ptrdiff_t(size_t(r) * bytes)),
           "all_to_all", call);
  }
  expect(to.back() == kUntouched, "all_to_all wrote past its end", call);
}

// sizes(a, b): bytes from a to b. Runs lie in the reverse order of ranks, with a gap of 3 bytes.
void check_all_to_all_v(Group& g, Exec lane, int call,
                        const std::function<size_t(int, int)>& sizes) {
  Group::Exchange e;
  e.sent.resize(size_t(g.size()));
  e.received.resize(size_t(g.size()));
  size_t out = 3, in = 3;
  for (int r = g.size(); r-- > 0;) {
    e.sent[size_t(r)] = {out, sizes(g.rank(), r)};
    e.received[size_t(r)] = {in, sizes(r, g.rank())};
    out += e.sent[size_t(r)].bytes + 3;
    in += e.received[size_t(r)].bytes + 3;
  }
  Row from(out), want(in, kUntouched);
  for (int r = 0; r < g.size(); ++r) {
    const Row sent = row_of(call, g.rank(), r, e.sent[size_t(r)].bytes);
    std::copy(sent.begin(), sent.end(), from.begin() + ptrdiff_t(e.sent[size_t(r)].offset));
    const Row received = row_of(call, r, g.rank(), e.received[size_t(r)].bytes);
    std::copy(received.begin(), received.end(),
              want.begin() + ptrdiff_t(e.received[size_t(r)].offset));
  }
  Buffer to_memory(lane, Row(in, kUntouched)), from_memory(lane, from);
  e.from = from_memory.data();
  e.to = to_memory.data();
  g.all_to_all_v(lane, e);
  expect(to_memory.read() == want, "all_to_all_v", call);
}

}  // namespace

void expect(bool holds, const char* what, int call) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s, call %d\n", what, call);
  std::_Exit(1);
}

Buffer::Buffer(Exec on, const Row& bytes) : on_(on), host_(bytes) {
  if (on.gpu == nullptr) return;
  device_ = static_cast<std::byte*>(on.gpu->memory->allocate(bytes.size(), gpu::Place::kDevice));
  copy_bytes(on, device_, host_.data(), host_.size());
}

Buffer::~Buffer() {
  if (device_ != nullptr) on_.gpu->memory->release(device_, gpu::Place::kDevice);
}

Row Buffer::read() {
  if (on_.gpu != nullptr) {
    wait(on_);  // with the context's watch, which a copy to the host does not have
    copy_bytes(on_, host_.data(), device_, host_.size());
    wait(on_);
  }
  return host_;
}

void check_sum(Group& g, int call, int64_t n, Exec lane) {
  std::vector<int64_t> x(size_t(n), 0);
  for (int64_t i = 0; i < n; ++i) x[size_t(i)] = (int64_t{1} << 61) + i * (g.rank() + 1);
  Row bytes(size_t(n) * sizeof(int64_t));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  Buffer memory(lane, bytes);
  g.sum_integers(lane, {reinterpret_cast<int64_t*>(memory.data()), {n}});
  bytes = memory.read();
  std::memcpy(x.data(), bytes.data(), bytes.size());
  const int64_t d = g.size();
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t want = uint64_t(d) * (uint64_t{1} << 61) + uint64_t(i * d * (d + 1) / 2);
    expect(uint64_t(x[size_t(i)]) == want, "sum_integers", call);
  }
}

void check_sizes(Group& g, Exec lane, size_t most) {
  const uint64_t before = g.bytes_sent();
  uint64_t sent = 0;
  int call = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, most}) {
    check_all_gather(g, lane, ++call, bytes, false);
    check_all_gather(g, lane, ++call, bytes, true);
    check_all_to_all(g, lane, ++call, bytes);
    sent += 3 * bytes * uint64_t(g.size() - 1);
  }
  expect(g.bytes_sent() - before == sent, "bytes_sent", call);
  for (const int64_t n : {0, 1, 777, 100000}) check_sum(g, ++call, n, lane);
  // Nothing at all; only to the next rank; all to rank 0; nothing from rank 0.
  const int d = g.size();
  check_all_to_all_v(g, lane, ++call, [](int, int) { return size_t{0}; });
  check_all_to_all_v(g, lane, ++call,
                     [d](int a, int b) { return size_t(b == (a + 1) % d ? 100 : 0); });
  check_all_to_all_v(g, lane, ++call, [](int a, int b) { return size_t(b == 0 ? 10 + a : 0); });
  check_all_to_all_v(g, lane, ++call, [](int a, int) { return size_t(a == 0 ? 0 : 5 * a); });
}

// The same draws on every rank decide the calls.
void check_sequences(Group& g, Exec lane, int calls) {
  RandomSequence random({13, 0, 0});
  for (int call = 1000; call < 1000 + calls; ++call) {
    const size_t bytes = random.below(5) == 0 ? random.below(100000) : random.below(64);
    const uint32_t seed = random.below(1000);
    switch (random.below(4)) {
      case 0:
        check_all_gather(g, lane, call, bytes, seed % 2 == 0);
        break;
      case 1:
        check_all_to_all(g, lane, call, bytes);
        break;
      case 2:
        check_all_to_all_v(g, lane, call, [&](int a, int b) {
          RandomSequence size({uint64_t(call), uint64_t(a), uint32_t(b)});
          return size.below(3) == 0 ? size_t{0} : size_t(size.below(uint32_t(bytes + 1)));
        });
        break;
      default:
        check_sum(g, call, int64_t(bytes % 500), lane);
    }
  }
}

void check_same_calls(Group& g, Group& host) {
  std::vector<uint64_t> all(2 * size_t(g.size()));
  const uint64_t mine[] = {g.calls(), g.calls_hash()};
  host.all_gather({}, all.data(), mine, sizeof mine);
  for (int r = 0; r < g.size(); ++r) {
    expect(all[2 * size_t(r)] == mine[0] && all[2 * size_t(r) + 1] == mine[1], "calls_hash", r);
  }
  const uint64_t before = host.calls_hash();
  host.all_gather({}, all.data(), mine, sizeof mine);
  expect(host.calls_hash() != before, "a call changes the hash", 0);
}

}  // namespace assay
