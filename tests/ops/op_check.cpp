// op_check [--op NAME] [--filter TEXT] [--large] [--list]: runs every case on the CPU against its
// scalar reference, with sentinels: twice, with 1 and 3 threads, and with its buffers elsewhere.
// Exits 1 if one fails. Needs the standard library only. --large runs the large cases instead, once
// with all threads, which tests their comparisons.
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/ops/op_run.h"

int main(int argc, char** argv) {
  using namespace assay;
  const auto threads = [](int n) { return [n] { return Exec{.threads = n}; }; };
  OpBackend backend{.program = "op_check", .body = OpBody::kCpu, .variants = {}};
  backend.variants.push_back({"2 threads", threads(2)});
  backend.variants.push_back(
      {.name = "2 threads again", .begin = threads(2), .aim = OpBackend::Variant::Aim::kSameBits});
  backend.variants.push_back(
      {.name = "1 thread", .begin = threads(1), .aim = OpBackend::Variant::Aim::kSameBits});
  backend.variants.push_back({"3 threads", threads(3)});
  backend.variants.push_back({"elsewhere", threads(2), OpBackend::Variant::Buffers::kACopy});
  backend.copies = {.allocate =
                        [](size_t bytes) {
                          void* const p = std::aligned_alloc(256, bytes / 256 * 256 + 256);
                          return std::shared_ptr<std::byte>(static_cast<std::byte*>(p), std::free);
                        },
                    .copy =
                        [](void* to, const void* from, size_t bytes) {
                          if (bytes > 0) std::memcpy(to, from, bytes);
                        }};
  backend.variants_of_large.push_back(
      {"every thread", threads(int(std::thread::hardware_concurrency()))});
  return op_check_main(argc, argv, backend);
}
