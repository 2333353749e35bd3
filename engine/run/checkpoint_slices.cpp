#include "engine/run/checkpoint_slices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "cuda/transfer.h"
#include "data/json_text.h"

namespace assay {
namespace {

using nlohmann::json;

const std::string kSlice = "slice:";  // begins a key of the metadata
constexpr int64_t kMostElements = int64_t{1} << 53;
constexpr const char* kSliceHint =
    "the checkpoint is damaged: remove its folder to use the previous one";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw UserError(where + ": " + what, kSliceHint);
}

// Elements [first, last], for messages.
std::string range_text(int64_t first, int64_t end) {
  return end - first == 1 ? "element " + std::to_string(first)
                          : "elements " + std::to_string(first) + " to " + std::to_string(end - 1);
}

std::optional<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  return std::nullopt;
}

// The full shape in the metadata: at most 2^53 elements.
std::vector<int64_t> shape_of(const std::string& path, const std::string& entry,
                              const std::string& text) {
  const json shape = json_of(text);
  if (!shape.is_array()) refuse(path, "the full shape of " + entry + " is not a list");
  std::vector<int64_t> dims;
  __int128 elements = 1;
  for (const json& dim : shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t(kMostElements))
      refuse(path, "the full shape of " + entry + " has a size that is not a count");
    dims.push_back(dim);
    elements *= dims.back();
    if (elements > kMostElements) refuse(path, "the full shape of " + entry + " is too large");
  }
  return dims;
}

// The number behind the last '#', written as we write it; -1 if there is none.
int64_t first_of(const std::string& entry, size_t mark) {
  const std::string digits = mark == std::string::npos ? "" : entry.substr(mark + 1);
  if (digits.empty() || digits.size() > 16) return -1;
  int64_t first = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    first = first * 10 + (c - '0');
  }
  return std::to_string(first) == digits ? first : -1;
}

}  // namespace

std::vector<Slice> whole_slices(const std::vector<TensorRef>& tensors) {
  std::vector<Slice> slices;
  for (const TensorRef& t : tensors)
    slices.push_back({.whole = t, .first = 0, .count = t.size(), .data = t.data});
  return slices;
}

WrittenFile write_slices(const std::string& path, std::span<const Slice> slices,
                         const ReadElements& read) {
  std::vector<TensorRef> entries;
  std::map<std::string, std::string> metadata;
  for (const Slice& s : slices) {
    const TensorRef& t = s.whole;
    CHECK(s.first >= 0 && s.count >= 0 && s.first + s.count <= t.size(),
          "%s %s: a slice of %ld elements at %ld", t.name.c_str(), t.shape_text().c_str(),
          long(s.count), long(s.first));
    CHECK(t.name.find('#') == std::string::npos, "tensor %s has a # in its name", t.name.c_str());
    if (s.count == t.size()) {
      entries.push_back({.name = t.name, .dtype = t.dtype, .shape = t.shape, .data = s.data});
    } else if (s.count > 0) {
      const std::string name = t.name + "#" + std::to_string(s.first);
      entries.push_back({.name = name, .dtype = t.dtype, .shape = {s.count}, .data = s.data});
      metadata[kSlice + name] = json(t.shape).dump();
    }
  }
  return write_safetensors(path, entries, metadata, read);
}

CheckpointSlices::CheckpointSlices(const std::string& folder, TensorKind kind) {
  const CheckpointManifest manifest = read_checkpoint_manifest(folder);
  const std::vector<std::string>& order = manifest.order(kind);
  where_ = manifest.tensor_files_text(folder, kind);
  open(folder, manifest.tensor_files(kind));
  if (manifest.format() == 1) return;
  const size_t listed = sort(order);
  if (listed < order.size()) refuse(where_, "the manifest lists a tensor twice");
  if (listed < tensors_.size())
    refuse(where_, "the manifest does not list tensor " + tensors_[listed].name);
}

CheckpointSlices::CheckpointSlices(const std::string& folder, const std::vector<std::string>& files,
                                   const std::vector<std::string>& order)
    : where_(folder) {
  open(folder, files);
  sort(order);
}

void CheckpointSlices::open(const std::string& folder, const std::vector<std::string>& files) {
  for (const std::string& name : files) {
    paths_.push_back(folder + "/" + name);
    files_.push_back(std::make_unique<SafetensorsFile>(paths_.back()));
    for (const SafetensorsFile::Entry& entry : files_.back()->entries())
      add(files_.size() - 1, entry);
    for (const auto& [key, shape] : files_.back()->metadata()) {
      if (key.starts_with(kSlice) && !files_.back()->find(key.substr(kSlice.size())))
        refuse(paths_.back(), "its metadata " + key + " is of no entry");
    }
  }
  for (std::vector<Piece>& pieces : pieces_) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.first < b.first; });
  }
  require_covered();
}

void CheckpointSlices::add(size_t file, const SafetensorsFile::Entry& entry) {
  const std::string& path = paths_[file];
  const std::optional<DType> dtype = dtype_of(entry.dtype);
  if (!dtype) {
    refuse(path, "tensor " + entry.name + " has type " + entry.dtype +
                     ", a checkpoint has F32, BF16 and I64");
  }
  TensorRef whole = {.name = entry.name, .dtype = *dtype, .shape = entry.shape, .data = nullptr};
  Piece piece = {.file = file, .entry = &entry};
  const auto& metadata = files_[file]->metadata();
  const auto shape = metadata.find(kSlice + entry.name);
  const size_t mark = entry.name.rfind('#');
  if (shape != metadata.end()) {
    piece.first = first_of(entry.name, mark);
    if (piece.first < 0 || entry.shape.size() != 1 || entry.bytes == 0)
      refuse(path, "the slice " + entry.name + " is not NAME#FIRST, with elements on one axis");
    whole.name = entry.name.substr(0, mark);
    whole.shape = shape_of(path, entry.name, shape->second);
  } else if (mark != std::string::npos) {
    refuse(path, "its metadata has no full shape of the slice " + entry.name);
  }
  piece.count = entry.bytes / dtype_bytes(*dtype);
  if (piece.first + piece.count > whole.size()) {
    refuse(path, strprintf("the slice %s has %ld elements, the whole %s %ld", entry.name.c_str(),
                           long(piece.count), whole.shape_text().c_str(), long(whole.size())));
  }
  const auto [found, is_new] = index_.try_emplace(whole.name, tensors_.size());
  if (is_new) {
    tensors_.push_back(whole);
    pieces_.emplace_back();
  }
  const TensorRef& known = tensors_[found->second];
  std::vector<Piece>& pieces = pieces_[found->second];
  if (known.dtype != whole.dtype || known.shape != whole.shape) {
    refuse(path, whole.name + " is " + dtype_name(whole.dtype) + " " + whole.shape_text() +
                     ", in " + paths_[pieces.front().file] + " it is " + dtype_name(known.dtype) +
                     " " + known.shape_text());
  }
  pieces.push_back(piece);
}

void CheckpointSlices::require_covered() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    int64_t end = 0;
    const Piece* last = nullptr;
    for (const Piece& piece : pieces_[i]) {
      if (piece.first > end)
        refuse(where_, "no file has " + range_text(end, piece.first) + " of tensor " + name);
      if (piece.first < end) {
        refuse(where_, paths_[last->file] + " and " + paths_[piece.file] + " both have " +
                           range_text(piece.first, std::min(end, piece.first + piece.count)) +
                           " of tensor " + name);
      }
      end = piece.first + piece.count;
      last = &piece;
    }
    const int64_t size = tensors_[i].size();
    if (end < size) refuse(where_, "no file has " + range_text(end, size) + " of tensor " + name);
  }
}

size_t CheckpointSlices::sort(const std::vector<std::string>& order) {
  std::vector<size_t> from;  // old positions in their new order
  std::vector<char> taken(tensors_.size(), 0);
  const auto take = [&](size_t i) {
    if (taken[i]) return;
    taken[i] = 1;
    from.push_back(i);
  };
  for (const std::string& name : order) {
    const auto found = index_.find(name);
    if (found == index_.end()) refuse(where_, "no file has tensor " + name);
    take(found->second);
  }
  const size_t listed = from.size();
  for (size_t i = 0; i < tensors_.size(); ++i) take(i);
  std::vector<TensorRef> tensors;
  std::vector<std::vector<Piece>> pieces;
  for (const size_t i : from) {
    index_[tensors_[i].name] = tensors.size();
    tensors.push_back(std::move(tensors_[i]));
    pieces.push_back(std::move(pieces_[i]));
  }
  tensors_ = std::move(tensors);
  pieces_ = std::move(pieces);
  return listed;
}

const TensorRef* CheckpointSlices::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void CheckpointSlices::require(const TensorRef& tensor) const {
  const TensorRef* there = find(tensor.name);
  if (there == nullptr) throw_no_tensor(where_, tensor.name);
  require_like(where_, dtype_name(there->dtype), there->shape, tensor);
}

void CheckpointSlices::read(const std::string& name, int64_t first, int64_t count,
                            void* into) const {
  const auto found = index_.find(name);
  CHECK(found != index_.end(), "%s has no tensor %s", where_.c_str(), name.c_str());
  const TensorRef& tensor = tensors_[found->second];
  CHECK(first >= 0 && count >= 0 && first <= tensor.size() - count,
        "%s %s: read of %ld elements at %ld", name.c_str(), tensor.shape_text().c_str(),
        long(count), long(first));
  const std::vector<Piece>& pieces = pieces_[found->second];
  // The last piece that begins at or before `first`.
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), first,
                                [](int64_t at, const Piece& p) { return at < p.first; });
  if (piece != pieces.begin()) --piece;
  const int64_t element = dtype_bytes(tensor.dtype), end = first + count;
  auto* to = static_cast<std::byte*>(into);
  for (; first < end; ++piece) {
    const int64_t n = std::min(end, piece->first + piece->count) - first;
    files_[piece->file]->read_bytes(*piece->entry, (first - piece->first) * element, to,
                                    n * element);
    to += n * element;
    first += n;
  }
}

namespace {

void require_no_others(const CheckpointSlices& checkpoint, std::span<const Slice> slices) {
  for (const TensorRef& there : checkpoint.tensors()) {
    const bool wanted = std::any_of(slices.begin(), slices.end(),
                                    [&](const Slice& s) { return s.whole.name == there.name; });
    if (!wanted) {
      throw UserError(
          checkpoint.where() + ": has a tensor " + there.name + " that this model does not have",
          "the file belongs to another model: check model.* of its configuration");
    }
  }
}

}  // namespace

std::string load_slices(const std::string& folder, TensorKind kind, std::span<const Slice> slices,
                        Others others, Exec on) {
  const CheckpointSlices checkpoint(folder, kind);
  for (const Slice& s : slices) checkpoint.require(s.whole);
  if (others == Others::kRefused) require_no_others(checkpoint, slices);
  std::string not_finite;
  std::vector<std::byte> staged(on.gpu == nullptr ? 0 : kTensorPieceBytes);
  for (const Slice& s : slices) {
    const int64_t element = dtype_bytes(s.whole.dtype), piece = kTensorPieceBytes / element;
    for (int64_t done = 0; done < s.count; done += piece) {
      const int64_t first = s.first + done, count = std::min(piece, s.count - done);
      void* const there = static_cast<std::byte*>(s.data) + done * element;
      void* const here = on.gpu == nullptr ? there : staged.data();
      checkpoint.read(s.whole.name, first, count, here);
      if (not_finite.empty()) not_finite = first_not_finite(s.whole, first, count, here);
      if (on.gpu == nullptr) continue;
      copy_bytes(on, there, here, static_cast<size_t>(count * element));
      wait(on);
    }
  }
  return not_finite;
}

std::string load_tensors(const std::string& folder, TensorKind kind,
                         const std::vector<TensorRef>& tensors, Exec on) {
  return load_slices(folder, kind, whole_slices(tensors), Others::kRefused, on);
}

}  // namespace assay
