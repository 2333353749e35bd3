// Defines every field of a run's configuration: type, default, documentation, check. YAML parsing,
// --set, --help-config, the resolved copy in the run directory, the comparison on resume and the
// start-up print are all visitors over these lists (engine/config/yaml.h).
//
// A visitor is called as v(name, field, doc, check) and v.section(name, nested, doc), where nested
// is a config struct or a std::optional of one; engine/config/section_visitor.h enters them. Field
// types: bool, int64_t, double, std::string, std::vector<std::string>, std::optional<double>,
// std::optional<std::vector<double>>, BiasRate, an enum with a table of names
// (engine/config/choice.h), which is its own list of choices, and a std::optional of one. An absent
// optional field is in no file and no hash.
#pragma once

#include "engine/config/contract_config.h"
#include "engine/config/data_config.h"
#include "engine/config/model_config.h"
#include "engine/config/parallel_config.h"
#include "engine/config/run_config.h"
#include "engine/config/training_config.h"

namespace assay {

struct Config {
  ModelConfig model;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DataConfig data;
  RunConfig run;
  ParallelConfig parallel;
  PrecisionConfig precision;
  EvalConfig eval;
  TelemetryConfig telemetry;
  ContractConfig contract;
};

template <typename V>
void visit(V& v, Config& c) {
  v.section("model", c.model, "shape of the network");
  v.section("optimizer", c.optimizer, "AdamW and its groups");
  v.section("schedule", c.schedule, "learning rate over the steps");
  v.section("data", c.data, "shards and tokenizer");
  v.section("run", c.run, "length, batch, seed");
  v.section("parallel", c.parallel, "parts of a batch");
  v.section("precision", c.precision, "number formats of the matrix products");
  v.section("eval", c.eval, "validation");
  v.section("telemetry", c.telemetry, "measurements during training");
  v.section("contract", c.contract, "what the comparison holds fixed");
}

}  // namespace assay
