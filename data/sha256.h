// SHA-256 as 64 lower-case hex digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace assay {

std::string sha256_hex(std::string_view bytes);

// Reads the file in pieces. UserError when it is missing, a folder or unreadable.
std::string sha256_file(const std::string& path);

// The same of an open file, from its first byte; its position does not change. on_bytes is called
// with the number of bytes after each piece.
std::string sha256_of(int file, const std::string& path,
                      const std::function<void(int64_t)>& on_bytes = {});

// Of the program that runs; "unknown" if its file cannot be read.
std::string program_sha256();

// "SHA-256 9f86d081884c7d65", which is enough for a message.
std::string short_hash(const std::string& sha256);

// For bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();
  void update(const void* data, size_t bytes);
  std::string hex();  // call once, at the end

 private:
  void* context_;
};

}  // namespace assay
