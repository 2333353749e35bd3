#include "interop/weights.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/bf16.h"
#include "base/check.h"
#include "base/joined.h"
#include "interop/json_fields.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kHint =
    "give the folder as it was published: every shard that its index names, and no other";
constexpr const char* kOtherModel =
    "config.json and the weights belong to different models, or the file is damaged";

// IEEE binary16.
float half_to_float(uint16_t bits) {
  const float sign = bits & 0x8000u ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
  if (exponent == 31) return fraction ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(float(fraction), -24);
  return sign * std::ldexp(float(fraction + 1024), exponent - 25);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return TensorRef{.name = "", .dtype = DType::kF32, .shape = shape, .data = nullptr}.shape_text();
}

// Tensor names by file. UserError if the file is not an index.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  const json index = read_json_object(path, kHint);
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw UserError(path + ": is not an index: it has no weight_map", kHint);
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string plain = file.is_string() ? file.get<std::string>() : "";
    if (plain.empty() || plain.find('/') != std::string::npos) {
      throw UserError(path + ": tensor " + name + " is not in a file of this folder", kHint);
    }
    files[plain].insert(name);
  }
  return files;
}

}  // namespace

HfWeights::HfWeights(const std::string& folder) : folder_(folder) {
  std::error_code ignored;
  const std::string single = folder + "/" + kSingle, index = folder + "/" + kIndex;
  if (!fs::exists(index, ignored)) {
    if (!fs::exists(single, ignored)) {
      throw UserError(folder + " holds neither " + kSingle + " nor " + kIndex,
                      "only safetensors are read: save_pretrained(FOLDER) writes them");
    }
    add(single);
    return;
  }
  const std::map<std::string, std::set<std::string>> shards = read_index(index);
  if (fs::exists(single, ignored) && !shards.contains(kSingle)) {
    throw UserError(
        folder + " holds " + kSingle + ", and " + kIndex + " with other files: two models",
        "transformers would read " + std::string(kSingle) + ": remove it, or the index");
  }
  for (const auto& [file, names] : shards) {
    add(folder + "/" + file);
    for (const std::string& name : names) {
      if (files_.back()->find(name) == nullptr) {
        throw UserError(index + ": expects in " + file + " a tensor " + name + " that it lacks",
                        kHint);
      }
    }
  }
}

void HfWeights::add(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const SafetensorsFile::Entry& entry : files_.back()->entries()) {
    const auto [at, is_new] = places_.emplace(entry.name, Place{files_.back().get(), &entry, path});
    if (!is_new) {
      throw UserError(path + ": has " + entry.name + ", which is in " + at->second.path + " too",
                      kHint);
    }
  }
}

std::vector<std::string> HfWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const HfWeights::Place& HfWeights::place(const std::string& name) const {
  const auto at = places_.find(name);
  if (at == places_.end()) throw UserError(folder_ + " has no tensor " + name, kOtherModel);
  return at->second;
}

void HfWeights::require(const std::string& name, const std::vector<int64_t>& shape) const {
  const Place& at = place(name);
  if (at.entry->shape != shape) {
    throw UserError(at.path + ": " + name + " is " + shape_text(at.entry->shape) +
                        ", config.json requires " + shape_text(shape),
                    kOtherModel);
  }
  const std::string& type = at.entry->dtype;
  if (type != "F32" && type != "BF16" && type != "F16") {
    throw UserError(at.path + ": " + name + " has the type " + type,
                    "F32, BF16 and F16 are read; save it in one of them");
  }
}

void HfWeights::read(const std::string& name, const std::vector<int64_t>& shape, float* out) const {
  require(name, shape);
  const Place& at = place(name);
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  if (at.entry->dtype == "F32") {
    at.file->read_bytes(*at.entry, 0, out, at.entry->bytes);
  } else {
    std::vector<uint16_t> raw(static_cast<size_t>(count));
    at.file->read_bytes(*at.entry, 0, raw.data(), at.entry->bytes);
    const bool is_half = at.entry->dtype == "F16";
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = raw[static_cast<size_t>(i)];
      out[i] = is_half ? half_to_float(bits) : float(bf16::from_bits(bits));
    }
  }
  const std::string not_finite =
      first_not_finite({{.name = name, .dtype = DType::kF32, .shape = shape, .data = out}});
  if (not_finite.empty()) return;
  throw UserError(at.path + ": " + not_finite,
                  "the weights are not finite: take another checkpoint");
}

std::string HfWeights::dtypes() const {
  std::set<std::string> types;
  for (const auto& [name, place] : places_) types.insert(place.entry->dtype);
  return joined(types, ", ");
}

}  // namespace assay
