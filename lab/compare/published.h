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

// How a figure is recomputed, or why it cannot be. With both, `derive` gives a value to put beside
// it, and `note` says which.
struct FigureRule {
  nlohmann::ordered_json derive;  // lab/compare/derivation.h; null = none
  std::string not_derivable;      // the reason; "" = derivable
  std::string note;               // what a reader must know of the derivation
};

// A column of a published table. If runs here have the same quantity, `measure` names it.
struct PublishedColumn {
  std::string key, unit, what;
  std::string measure;                   // "" = not measured here
  std::optional<int64_t> step;           // step of the measure; absent = at the end
  std::optional<int64_t> layer;          // block index
  std::optional<int64_t> decimals = {};  // printed; absent = whole numbers that were not rounded
  FigureRule rule = {};                  // for each figure of the column
};

struct PublishedTable {
  std::string title;
  std::vector<std::string> keys;  // the first cells of a row
  std::vector<PublishedColumn> columns;
  std::vector<std::vector<nlohmann::ordered_json>>
      rows;  // keys, then columns; null = not published
};

// A figure that has a rule of its own: of the text of a study, or of one cell of a table.
struct PublishedFigure {
  std::string what, where;        // of the text
  std::vector<std::string> cell;  // title, keys, column; empty = of the text
  std::string printed;            // "~4.5"; "" = as in the table
  std::string unit;
  FigureRule rule;
};

struct PublishedStudy {
  std::string name, title, setting;
  std::optional<double> target_loss;
  std::optional<int64_t> vocab_size;  // of the tokenizer, without padding
  std::string reference_data;         // data.reference of its validation text; "" = unknown
  std::vector<PublishedTable> tables;
  std::vector<PublishedFigure> checks;
  nlohmann::ordered_json receipt_names;   // of row keys in its receipts; an object
  nlohmann::ordered_json receipt_places;  // of figures in them: lab/compare/published_receipts.h
  std::vector<std::string> notes;
};

std::vector<std::string> published_names();
// The study whose claims a matrix of this name tests: "0003" for 0003 and 0003-mini; "" for others.
std::string study_of_matrix(const std::string& matrix);
// UserError suggesting the nearest name if there is no such study.
PublishedStudy published_study(const std::string& name);

// The value of a column for a model: mean over its seeds (best_val_loss_sd: standard deviation);
// nullopt if it was not measured.
std::optional<double> published_measure(const PublishedColumn& column, const SeedGroup& group,
                                        std::optional<double> target_loss);

// Why a measure of this model says nothing beside the study's: a loss of another tokenizer or text,
// or a time of a CPU. "" if it may stand there.
std::string published_mismatch(const PublishedStudy& study, const PublishedColumn& column,
                               const SeedGroup& group);

}  // namespace assay
