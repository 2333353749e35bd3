// Reads the bytes of a file in order; *.gz and *.zst are unpacked as they are read, never whole in
// memory.
//
// A compressed file may have several streams one after the other, as `cat a.gz b.gz` makes them; a
// *.gz may end in zeros. UserError with the line of the text reached when it is damaged, cut short,
// or not of the format that its name implies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "data/sha256.h"

namespace assay {

// The extension of the path in small letters: ".gz" of "a.GZ".
std::string lower_extension(const std::string& path);

// The path without .gz or .zst.
std::string unpacked_name(const std::string& path);

// meant: for the beginning of the hint, "did you mean NAME? ", or "".
[[noreturn]] void throw_unreadable(const std::string& path, const std::string& why,
                                   const std::string& meant = "");

// Unpacks one compression format piece by piece.
class Unpacker {
 public:
  struct Piece {
    const char* in;
    size_t in_bytes;
    char* out;
    size_t out_bytes;
  };
  virtual ~Unpacker() = default;
  // Consumes the front of `in` and fills the front of `out`; on return `piece` has what is left of
  // both. Returns "" or what is wrong with the bytes.
  virtual std::string unpack(Piece& piece) = 0;
  // True if a stream has ended and no other has begun; the file may end only here.
  virtual bool between_streams() const = 0;
  // What is wrong is that the bytes were packed with a dictionary, which the file does not have.
  virtual bool needs_dictionary() const { return false; }
};

class InputFile {
 public:
  explicit InputFile(const std::string& path);

  // Reads up to `bytes` bytes of the text; returns how many, 0 at the end.
  size_t read(char* out, size_t bytes);

  int64_t bytes_read() const { return bytes_read_; }  // of the file as stored
  std::string sha256() { return hash_.hex(); }  // of the stored bytes read; call once, at the end

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  size_t read_stored(char* out, size_t bytes);
  size_t unpack_some(char* out, size_t bytes);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<Unpacker> unpacker_;  // null: the bytes are the text
  std::string stored_;                  // stored bytes; those from at_ on are not unpacked yet
  size_t at_ = 0;
  bool end_of_file_ = false;
  int64_t bytes_read_ = 0;
  int64_t line_ = 1;  // line of the text where the unpacked bytes end
  Sha256 hash_;
};

}  // namespace assay
