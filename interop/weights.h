// Reads the tensors of a folder in the Hugging Face format: model.safetensors, or the shards that
// model.safetensors.index.json names; both are refused. F32, BF16 and F16 are read as float.
// Everything is checked before it is used.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/safetensors.h"

namespace assay {

class HfWeights {
 public:
  explicit HfWeights(const std::string& folder);

  int64_t tensors() const { return static_cast<int64_t>(places_.size()); }
  bool has(const std::string& name) const { return places_.contains(name); }
  std::vector<std::string> names() const;
  // UserError if there is no such tensor, or if it has another shape or type.
  void require(const std::string& name, const std::vector<int64_t>& shape) const;
  // UserError also if a value is not finite.
  void read(const std::string& name, const std::vector<int64_t>& shape, float* out) const;
  // The types stored in the files: "BF16, F32".
  std::string dtypes() const;

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsFile::Entry* entry;
    std::string path;
  };
  const Place& place(const std::string& name) const;
  void add(const std::string& path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

}  // namespace assay
