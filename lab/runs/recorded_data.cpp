#include "lab/runs/recorded_data.h"

#include <filesystem>

#include "data/json_text.h"

namespace assay {

FileHashes recorded_data(const nlohmann::ordered_json& launch) {
  FileHashes files;
  if (!launch.is_object() || !launch.contains("data_sha256") || !launch["data_sha256"].is_object())
    return files;
  for (const auto& [path, hash] : launch["data_sha256"].items()) {
    if (hash.is_string()) files[path] = hash.get<std::string>();
  }
  return files;
}

FileHashes recorded_data_of(const std::string& run) {
  return recorded_data(
      json_in_file<nlohmann::ordered_json>(std::filesystem::path(run) / "meta.json"));
}

std::string recorded_tokenizer(const nlohmann::ordered_json& launch) {
  return text_or_empty(launch, "tokenizer_sha256");
}

bool same_tokenizer(const TokenizerHashes& a, const TokenizerHashes& b) {
  const auto is_of_b = [&](const std::string& hash) {
    return !hash.empty() && (hash == b.files || hash == b.content);
  };
  return is_of_b(a.files) || is_of_b(a.content);
}

NamedContents content_by_name(const FileHashes& files) {
  NamedContents named;
  for (const auto& [path, hash] : files)
    named.emplace(std::filesystem::path(path).filename().string(), hash);
  return named;
}

}  // namespace assay
