// The figures of the published studies: docs/published/*.json, embedded in the program when it is
// built. The schema is in docs/published/README.md.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/seed_groups.h"

namespace assay {

struct PublishedText {
  std::string name;  // file name without .json
  std::string json;
};
const std::vector<PublishedText>& published_texts();  // generated

// A column of a published table. If runs here have the same quantity, `measure` names it.
struct PublishedColumn {
  std::string key, unit, what;
  std::string measure;           // "" = not measured here
  std::optional<int64_t> step;   // step of the measure; absent = at the end
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
  std::optional<int64_t> vocab_size;  // of the tokenizer, without padding
  std::vector<PublishedTable> tables;
  std::vector<std::string> notes;
};

std::vector<std::string> published_names();
// UserError suggesting the nearest name if there is no such study.
PublishedStudy published_study(const std::string& name);

// The value of a column for a model: mean over its seeds (best_val_loss_sd: standard deviation);
// nullopt if it was not measured.
std::optional<double> published_measure(const PublishedColumn& column, const SeedGroup& group,
                                        std::optional<double> target_loss);

// Why a measure of this model says nothing beside the study's: a loss of another tokenizer, or a
// time of a CPU. "" if it may stand there.
std::string published_mismatch(const PublishedStudy& study, const PublishedColumn& column,
                               const SeedGroup& group);

// Every measure that a column may name.
const std::vector<std::string>& published_measures();

}  // namespace assay
