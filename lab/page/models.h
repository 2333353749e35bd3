// The models of a page: runs that differ only in the seed, how they compare, and in which fields
// their configurations differ.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

// A run of the page. Its record has at least path, name (the label) and configuration.
struct PageRun {
  RunRecord record;
  bool readable = false;  // telemetry and all
};

// Sets, for the models in order of their first run:
//
//   "models":      [{"name", "runs": [index of a run]}]; a run of a seed that its model has
//                  already is a model of its own
//   "comparison":  the judgement of lab/compare with its "sentence", of models of these names;
//                  {"refused": why, "incomparable": [difference of their data]} if the runs cannot
//                  be compared; null for fewer than two readable runs
//   "differences": [{"field", "values": [text per model; null if it does not have the field]}]
//
// contract: as in ReportChoices (lab/page/data.h). read_failed becomes true if the comparison needs
// a file that could not be read (ReadFailed).
void add_models(std::span<const PageRun> runs, const std::string& contract,
                nlohmann::ordered_json& data, bool& read_failed);

}  // namespace assay
