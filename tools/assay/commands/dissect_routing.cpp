// assay dissect routing: the loads on held-out text beside those of training, and by source.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/dissect/overlap.h"
#include "lab/router/history.h"
#include "session/dissect.h"
#include "tools/assay/commands/dissect.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

RoutedText training(const HeldOut& text) {
  const TelemetryReader telemetry(text.run() + "/telemetry.db");
  const RouterHistory history = read_router_history(telemetry, text.config().model.moe->top_k,
                                                    text.config().telemetry.window);
  RoutedText routed{.name = "training", .tokens = 0, .loads = {}};
  for (const LayerHistory& layer : history.layers) {
    routed.loads.emplace_back(layer.window_counts.begin(), layer.window_counts.end());
  }
  if (routed.loads.size() != text.layers().size() || routed.loads.front().empty()) {
    throw UserError(text.run() + " has no telemetry of its routers",
                    "give a run that was trained with telemetry, not an export");
  }
  return routed;
}

RoutedText routing_of(HeldOut& text, const std::string& name) {
  const RoutingRecord record = record_routing(text, RecordOutputs::kNo, RecordTokens::kNo);
  RoutedText routed{.name = name, .tokens = text.tokens(), .loads = {}};
  for (const LayerLoads& loads : record.loads) routed.loads.push_back(loads.counts);
  return routed;
}

int dissect_routing(const DissectOptions& a) {
  HeldOut text(a.run, a.text);
  RoutingReport report{.run = text.run(),
                       .step = text.source().state.step,
                       .experts = text.config().model.moe->experts,
                       .top_k = text.config().model.moe->top_k,
                       .layers = text.layers(),
                       .texts = {training(text), routing_of(text, "held-out")}};
  if (a.text.files.empty()) {
    for (const SourceShards& source : text.sources()) {
      HeldOutOptions of_source = a.text;
      of_source.files = source.files;
      HeldOut part(a.run, of_source);
      report.texts.push_back(routing_of(part, source.name));
    }
  }
  if (a.json) {
    print_json(routing_json(report));
  } else {
    std::fputs(routing_text(report).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_dissect_routing(Commands& commands, CLI::App* dissect) {
  auto a = std::make_shared<DissectOptions>();
  CLI::App* sub = dissect->add_subcommand(
      "routing", "the loads on held-out text beside those of training, and by source of a mixture");
  add_dissect_options(sub, *a);
  sub->footer(
      "Examples:\n"
      "  assay dissect routing runs/moe\n"
      "  assay dissect routing runs/moe --shards other.bin      text of another kind");
  commands.on_chosen(sub, [a] { return dissect_routing(*a); });
}

}  // namespace assay
