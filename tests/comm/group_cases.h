// The calls of a group of ranks against what every rank can compute: the same cases for every
// transport. A failure on one rank ends the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/group.h"

namespace assay {

using Row = std::vector<std::byte>;

// Prints and ends the process with 1 unless it holds; that ends the other ranks too, by mpirun or
// as threads.
void expect(bool holds, const char* what, int call);

// Bytes in the memory of an Exec: the host's or a GPU's.
class Buffer {
 public:
  Buffer(Exec on, const Row& bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  std::byte* data() { return on_.gpu == nullptr ? host_.data() : device_; }
  Row read();  // behind what is queued on the Exec

 private:
  Exec on_;
  Row host_;
  std::byte* device_ = nullptr;
};

void check_sum(Group& g, int call, int64_t n, Exec lane = {});
// Sizes from nothing to `most` bytes, empty runs, in place, bytes_sent.
void check_sizes(Group& g, Exec lane = {}, size_t most = size_t{3} << 20);
// `calls` calls of all kinds; the same draws on every rank decide which.
void check_sequences(Group& g, Exec lane = {}, int calls = 1000);
// That all members made the same calls; `host` is a group of the same members, for host memory.
void check_same_calls(Group& g, Group& host);
inline void check_same_calls(Group& g) {
  check_same_calls(g, g);
}

}  // namespace assay
