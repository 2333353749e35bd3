#include "engine/run/checkpoint_merge.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "data/sha256.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/checkpoint_slices.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr TensorKind kKinds[] = {TensorKind::kModel, TensorKind::kOptimizer};

ReadElements reader_of(const CheckpointSlices& checkpoint) {
  return [&checkpoint](const TensorRef& tensor, int64_t first, int64_t count, void* into) {
    checkpoint.read(tensor.name, first, count, into);
  };
}

// Removes the files that are called as those of ranks.
void remove_rank_files(const std::string& folder) {
  std::vector<fs::path> found;
  for (const std::string& name : names_in(folder)) {
    for (const TensorKind kind : kKinds) {
      const std::string form = rank_file(kind, 0);  // "model.00000.safetensors"
      const size_t digits = form.find("00000"), end = name.find('.', digits);
      const bool of_rank = name.size() >= form.size() && end != std::string::npos &&
                           name.compare(0, digits, form, 0, digits) == 0 &&
                           name.substr(end) == ".safetensors" &&
                           name.find_first_not_of("0123456789", digits) == end;
      if (of_rank) found.push_back(fs::path(folder) / name);
    }
  }
  std::error_code ignored;  // what stays is listed in no manifest
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace

bool merge_checkpoint(const std::string& folder) {
  const CheckpointManifest sliced = read_checkpoint_manifest(folder);
  if (sliced.format() == 1) {
    remove_rank_files(folder);
    return false;
  }
  CheckpointManifest merged = {
      .step = sliced.step, .milestone = sliced.milestone, .by_time = sliced.by_time};
  merged.files[kCheckpointState] = sliced.files.at(kCheckpointState);
  try {
    for (const TensorKind kind : kKinds) {
      const CheckpointSlices slices(folder, kind);
      merged.files[whole_file(kind)] = write_safetensors(folder + "/" + whole_file(kind),
                                                         slices.tensors(), {}, reader_of(slices));
    }
    write_file_atomic(folder + "/" + kCheckpointManifest, merged.text());
  } catch (const UserError&) {
    std::error_code ignored;
    for (const TensorKind kind : kKinds) fs::remove(folder + "/" + whole_file(kind), ignored);
    throw;
  }
  remove_rank_files(folder);
  return true;
}

std::string merged_model_sha256(const std::string& folder) {
  if (read_checkpoint_manifest(folder).format() == 1)
    return sha256_file(folder + "/" + whole_file(TensorKind::kModel));
  const CheckpointSlices slices(folder, TensorKind::kModel);
  return hash_safetensors(slices.tensors(), {}, reader_of(slices)).sha256;
}

}  // namespace assay
