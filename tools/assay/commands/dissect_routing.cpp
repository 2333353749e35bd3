// assay dissect routing: the loads on held-out text beside those of training, and by source.
#include <algorithm>
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

// The loads of the last W logged steps up to the checkpoint; their steps go to the report.
RoutedText training(const HeldOut& text, RoutingReport& report) {
  const TelemetryReader telemetry(telemetry_file(text.run()));
  const RouterHistory history =
      read_router_history(telemetry, text.config().model.moe->top_k, text.config().telemetry.window,
                          text.source().state.step);
  RoutedText routed{.name = "training", .tokens = 0, .loads = {}};
  for (const LayerHistory& layer : history.layers) {
    routed.loads.emplace_back(layer.window_counts.begin(), layer.window_counts.end());
  }
  if (routed.loads.empty() || routed.loads.size() != text.layers().size() ||
      routed.loads.front().empty()) {
    throw UserError(strprintf("%s has no telemetry of its routers up to step %ld",
                              text.run().c_str(), long(text.source().state.step)),
                    "give a run that was trained with telemetry, not an export");
  }
  const auto steps = int64_t(history.steps.size());
  report.window_first = history.steps.at(size_t(std::max<int64_t>(0, steps - history.window)));
  report.window_last = history.steps.back();
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
                       .texts = {},
                       .unread = text.unread().sources,
                       .unread_folders = text.unread().folders};
  report.texts.push_back(training(text, report));
  report.texts.push_back(routing_of(text, "held-out"));
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
