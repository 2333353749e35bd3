// The bytes of a file in order; *.gz and *.zst are unpacked as they are read, never whole in
// memory.
//
// A compressed file may have several streams one after the other, as `cat a.gz b.gz` makes them.
// UserError with the line of the text reached when it is damaged, cut short, or not what its name
// says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "data/sha256.h"

namespace assay {

// What a file is called without .gz or .zst.
std::string unpacked_name(const std::string& path);

[[noreturn]] void throw_unreadable(const std::string& path, const std::string& why);

// One compression format, a piece at a time.
class Unpacker {
 public:
  struct Piece {
    const char* in;
    size_t in_bytes;
    char* out;
    size_t out_bytes;
  };
  virtual ~Unpacker() = default;
  // Takes from the front of `in`, fills the front of `out`. "" or what is wrong with the bytes.
  virtual std::string unpack(Piece& piece) = 0;
  // A stream has ended and no other has begun: here the file may end.
  virtual bool between_streams() const = 0;
};

class InputFile {
 public:
  explicit InputFile(const std::string& path);

  // Up to `bytes` bytes of the text; 0 at its end.
  size_t read(char* out, size_t bytes);

  int64_t bytes_read() const { return bytes_read_; }  // of the file as it is stored
  std::string sha256() { return hash_.hex(); }        // of what was read of it; once, at the end

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  size_t read_stored(char* out, size_t bytes);
  size_t unpack_some(char* out, size_t bytes);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<Unpacker> unpacker_;  // null: the bytes are the text
  std::string stored_;                  // read, not yet unpacked from at_ on
  size_t at_ = 0;
  bool end_of_file_ = false;
  int64_t bytes_read_ = 0;
  int64_t line_ = 1;  // of the text, what was unpacked last ends in it
  Sha256 hash_;
};

}  // namespace assay
