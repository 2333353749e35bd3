#include "engine/run/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/math.h"
#include "base/read_failed.h"
#include "data/json_text.h"
#include "data/sha256.h"

namespace assay {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr int64_t kLargePiece = 1 << 20;  // hashing it takes far longer than starting a thread
constexpr const char* kHint =
    "the file is damaged or not a safetensors file: use another checkpoint or write it again";

int64_t bytes_of_dtype(const std::string& dtype) {
  static const std::map<std::string, int64_t> known = {
      {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},      {"U16", 2},
      {"U32", 4}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = known.find(dtype);
  return found == known.end() ? 0 : found->second;
}

[[noreturn]] void throw_damaged(const std::string& path, const std::string& what) {
  throw UserError(path + ": " + what, kHint);
}

void read_exactly(int file, const std::string& path, int64_t offset, void* data, int64_t bytes) {
  char* to = static_cast<char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const size_t piece = static_cast<size_t>(std::min(kTensorPieceBytes, bytes - done));
    const ssize_t got = pread(file, to + done, piece, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_unread(path, errno, "check the disk");
    if (got == 0) throw_damaged(path, "ends at byte " + std::to_string(offset + done));
    done += got;
  }
}

json parse_header(const std::string& path, const std::string& text) {
  if (json_is_too_deep(text)) throw_damaged(path, "its header is nested too deep");
  if (const auto twice = first_repeated_key(text)) {
    throw_damaged(path, "its header names " + *twice + " twice");
  }
  try {
    return json::parse(text);
  } catch (const json::exception&) {
    throw_damaged(path, "its header is not JSON");
  }
}

// A non-negative integer below 2^53.
int64_t read_count(const std::string& path, const std::string& name, const json& value) {
  const bool ok = value.is_number_unsigned() && value.get<uint64_t>() < (uint64_t{1} << 53);
  if (!ok) throw_damaged(path, "tensor " + name + " has a size or offset that is not a count");
  return static_cast<int64_t>(value.get<uint64_t>());
}

SafetensorsFile::Entry read_entry(const std::string& path, const std::string& name,
                                  const json& value, int64_t data_begin, int64_t data_bytes) {
  const bool has_fields = value.is_object() && value.contains("dtype") &&
                          value["dtype"].is_string() && value.contains("shape") &&
                          value["shape"].is_array() && value.contains("data_offsets") &&
                          value["data_offsets"].is_array() && value["data_offsets"].size() == 2;
  if (!has_fields) throw_damaged(path, "tensor " + name + " lacks dtype, shape or data_offsets");
  SafetensorsFile::Entry entry = {.name = name, .dtype = value["dtype"], .shape = {}};
  const int64_t element = bytes_of_dtype(entry.dtype);
  if (element == 0) throw_damaged(path, "tensor " + name + " has the unknown type " + entry.dtype);
  __int128 bytes = element;
  for (const json& dim : value["shape"]) {
    entry.shape.push_back(read_count(path, name, dim));
    bytes *= entry.shape.back();
    if (bytes > data_bytes) throw_damaged(path, "tensor " + name + " is larger than the file");
  }
  const int64_t begin = read_count(path, name, value["data_offsets"][0]);
  const int64_t end = read_count(path, name, value["data_offsets"][1]);
  if (end < begin || end > data_bytes || end - begin != bytes) {
    throw_damaged(path,
                  strprintf("tensor %s has bytes %ld to %ld, its shape needs %ld, the file has %ld",
                            name.c_str(), static_cast<long>(begin), static_cast<long>(end),
                            static_cast<long>(bytes), static_cast<long>(data_bytes)));
  }
  entry.begin = data_begin + begin;
  entry.bytes = end - begin;
  return entry;
}

std::string header_of(const std::vector<TensorRef>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  using nlohmann::ordered_json;
  ordered_json::object_t header;  // emplace_back() does not search all names, as [] would
  std::set<std::string> names;
  if (!metadata.empty()) header.emplace_back("__metadata__", metadata);
  int64_t offset = 0;
  for (const TensorRef& t : tensors) {
    CHECK(names.insert(t.name).second, "two tensors are called %s", t.name.c_str());
    header.emplace_back(t.name, ordered_json{{"dtype", dtype_name(t.dtype)},
                                             {"shape", t.shape},
                                             {"data_offsets", {offset, offset + t.bytes()}}});
    offset += t.bytes();
  }
  std::string text = ordered_json(std::move(header)).dump();
  text.resize(round_up(text.size(), 8), ' ');  // the tensors start at a multiple of 8
  return text;
}

// Gives the bytes of the file to `put`, in their order.
void put_safetensors(const std::vector<TensorRef>& tensors,
                     const std::map<std::string, std::string>& metadata, const ReadElements& read,
                     const std::function<void(const void*, int64_t)>& put) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  put(&length, kLengthBytes);
  put(header.data(), static_cast<int64_t>(length));
  std::vector<char> buffer(read ? kTensorPieceBytes : 0);
  for (const TensorRef& t : tensors) {
    const char* data = static_cast<const char*>(t.data);
    const int64_t element = dtype_bytes(t.dtype), piece = kTensorPieceBytes / element;
    for (int64_t first = 0; first < t.size(); first += piece) {
      const int64_t count = std::min(piece, t.size() - first);
      if (read) read(t, first, count, buffer.data());
      put(read ? buffer.data() : data + first * element, count * element);
    }
  }
}

}  // namespace

WrittenFile write_safetensors(const std::string& path, const std::vector<TensorRef>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const ReadElements& read) {
  AtomicFile file(path);
  Sha256 hash;
  put_safetensors(tensors, metadata, read, [&](const void* data, int64_t bytes) {
    const auto update = [&] { hash.update(data, static_cast<size_t>(bytes)); };
    // Large pieces are hashed while they are written; a jthread is joined if writing throws.
    std::jthread hashing;
    if (bytes >= kLargePiece) {
      hashing = std::jthread(update);
    } else {
      update();
    }
    file.write(data, static_cast<size_t>(bytes));
  });
  const int64_t bytes = file.bytes();
  file.commit();
  return {.bytes = bytes, .sha256 = hash.hex()};
}

WrittenFile hash_safetensors(const std::vector<TensorRef>& tensors,
                             const std::map<std::string, std::string>& metadata,
                             const ReadElements& read) {
  WrittenFile written;
  Sha256 hash;
  put_safetensors(tensors, metadata, read, [&](const void* data, int64_t bytes) {
    hash.update(data, static_cast<size_t>(bytes));
    written.bytes += bytes;
  });
  written.sha256 = hash.hex();
  return written;
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  file_ = open_regular(path_);
  struct stat info = {};
  if (file_ < 0 || fstat(file_, &info) != 0) {
    throw_unread(path_, errno, "check the path");
  }
  try {
    if (!S_ISREG(info.st_mode)) throw_damaged(path_, "is not a file");
    const int64_t size = info.st_size;
    if (size < kLengthBytes)
      throw_damaged(path_, "has " + std::to_string(size) + " bytes, a header needs more");
    uint64_t length = 0;
    read_exactly(file_, path_, 0, &length, kLengthBytes);
    if (length > static_cast<uint64_t>(std::min(kLargestHeader, size - kLengthBytes))) {
      throw_damaged(path_, "says its header has " + std::to_string(length) + " bytes of " +
                               std::to_string(size));
    }
    std::string text(length, ' ');
    read_exactly(file_, path_, kLengthBytes, text.data(), static_cast<int64_t>(length));
    const json header = parse_header(path_, text);
    if (!header.is_object()) throw_damaged(path_, "its header is not a JSON object");

    const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
    for (const auto& [name, value] : header.items()) {
      if (name != "__metadata__") {
        entries_.push_back(read_entry(path_, name, value, data_begin, size - data_begin));
        continue;
      }
      if (!value.is_object()) throw_damaged(path_, "its metadata is not a JSON object");
      for (const auto& [key, word] : value.items()) {
        if (!word.is_string()) throw_damaged(path_, "its metadata " + key + " is not a string");
        metadata_[key] = word;
      }
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes;
    });
    int64_t at = data_begin;
    for (const Entry& entry : entries_) {
      if (entry.begin != at)
        throw_damaged(path_, "tensor " + entry.name + " overlaps another or leaves a hole");
      at += entry.bytes;
    }
    if (at != size)
      throw_damaged(path_, "has " + std::to_string(size - at) + " bytes after the last tensor");
    for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
  } catch (...) {
    close(file_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  close(file_);
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void throw_no_tensor(const std::string& where, const std::string& name) {
  const bool moment = name.ends_with(".momentum") || name.ends_with(".m") || name.ends_with(".v");
  throw UserError(where + ": has no tensor " + name,
                  moment
                      ? "the run was trained with another optimizer.kind: check its configuration"
                      : "the file belongs to another model: check model.* of its configuration");
}

void require_like(const std::string& where, const std::string& dtype,
                  const std::vector<int64_t>& shape, const TensorRef& into) {
  if (dtype == dtype_name(into.dtype) && shape == into.shape) return;
  const bool rounded = dtype == "BF16" && into.dtype == DType::kF32;
  const bool wide = dtype == "F32" && into.dtype == DType::kBF16;
  const bool other_state = shape == into.shape && (rounded || wide);
  const TensorRef there = {.name = "", .dtype = into.dtype, .shape = shape, .data = nullptr};
  throw UserError(where + ": " + into.name + " is " + dtype + " " + there.shape_text() +
                      ", expected " + dtype_name(into.dtype) + " " + into.shape_text(),
                  other_state
                      ? "the run was trained with another optimizer.state: check its configuration"
                      : "the file belongs to another model: check model.* of its configuration");
}

void SafetensorsFile::read(const TensorRef& into) const {
  const Entry* entry = find(into.name);
  if (entry == nullptr) throw_no_tensor(path_, into.name);
  require_like(path_, entry->dtype, entry->shape, into);
  read_exactly(file_, path_, entry->begin, into.data, entry->bytes);
}

void SafetensorsFile::read_bytes(const Entry& entry, int64_t offset, void* into,
                                 int64_t bytes) const {
  CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= entry.bytes,
        "%s has %ld bytes, not %ld + %ld", entry.name.c_str(), static_cast<long>(entry.bytes),
        static_cast<long>(offset), static_cast<long>(bytes));
  read_exactly(file_, path_, entry.begin + offset, into, bytes);
}

namespace {

template <typename T>
std::string first_not_finite_of(const std::string& name, int64_t first, int64_t count,
                                const T* values) {
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    int bad = 0;  // counted without leaving the loop, so that it vectorises
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(values[i]));
      bad += (bits & 0x7F800000u) == 0x7F800000u;
    }
    for (int64_t i = begin; bad > 0 && i < end; ++i) {
      const double value = static_cast<float>(values[i]);
      if (std::isfinite(value)) continue;
      return strprintf("element %ld of %s is %g", static_cast<long>(first + i), name.c_str(),
                       value);
    }
  }
  return "";
}

}  // namespace

std::string first_not_finite(const TensorRef& tensor, int64_t first, int64_t count,
                             const void* values) {
  switch (tensor.dtype) {
    case DType::kF32:
      return first_not_finite_of(tensor.name, first, count, static_cast<const float*>(values));
    case DType::kBF16:
      return first_not_finite_of(tensor.name, first, count, static_cast<const bf16*>(values));
    case DType::kI64:
      return "";
  }
  return "";
}

std::string first_not_finite(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& t : tensors) {
    const std::string found = first_not_finite(t, 0, t.size(), t.data);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace assay
