// The figures of the published studies, as data in the program: docs/published/*.json, embedded
// when it is built. The schema is in docs/published/README.md.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/seed_groups.h"

namespace assay {

struct PublishedText {
  std::string name;  // of the file, without .json
  std::string json;
};
const std::vector<PublishedText>& published_texts();  // generated

// A column of a published table; where we measure the same, `measure` says what, and ours can stand
// beside it.
struct PublishedColumn {
  std::string key, unit, what;
  std::string measure;           // "" = nothing of ours corresponds
  std::optional<int64_t> step;   // at this step; absent = at the end
  std::optional<int64_t> layer;  // block index
};

struct PublishedTable {
  std::string title;
  std::vector<std::string> keys;  // the first cells of a row
  std::vector<PublishedColumn> columns;
  std::vector<std::vector<nlohmann::ordered_json>>
      rows;  // keys, then columns; null = not published
};

struct PublishedStudy {
  std::string name, title, setting;
  std::optional<double> target_loss;
  std::vector<PublishedTable> tables;
  std::vector<std::string> notes;
};

std::vector<std::string> published_names();
// UserError naming the nearest when there is none.
PublishedStudy published_study(const std::string& name);

// What a column says, of a model of ours: mean over its seeds; nothing where it was not measured.
std::optional<double> published_measure(const PublishedColumn& column, const SeedGroup& group,
                                        std::optional<double> target_loss);

// Every measure that a column may name.
const std::vector<std::string>& published_measures();

}  // namespace assay
