// assay dissect used: the experts that held-out text reaches, P_used, and the model without the
// others.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/check.h"
#include "lab/dissect/used.h"
#include "models/audit/audit.h"
#include "models/audit/audit_report.h"
#include "session/dissect.h"
#include "session/prune.h"
#include "tools/assay/commands/dissect.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct DissectUsedArguments : DissectOptions {
  std::string folder;
  std::vector<std::string> command;
};

std::string pruned_text(const Pruned& p, const Config& config) {
  std::string text =
      strprintf("\n%s: %s experts in every layer, P_total %s\n", p.checkpoint.c_str(),
                grouped(p.experts).c_str(), grouped(p.parameters).c_str());
  if (p.different == 0) {
    return text + strprintf(
                      "its loss of each of %s held-out targets is that of the original, to "
                      "the bit\n",
                      grouped(p.targets).c_str());
  }
  text += strprintf(
      "its mean loss is %.6f nats, the original's %.6f: it differs at %s of %s held-out targets, "
      "by at most %.3g nats\n",
      p.loss, p.original_loss, grouped(p.different).c_str(), grouped(p.targets).c_str(), p.largest);
  const RouterConfig& router = config.model.moe->router;
  if (router.score != RouterScore::kSoftmax) return text;
  if (!router.normalize_gates) {
    text +=
        "softmax gates that are not normalised are shares of a sum over all experts, which is "
        "another sum now\n";
  } else if (router.bias_rate.on()) {
    text +=
        "the selection bias is added to softmax scores, shares of a sum over all experts, which "
        "is another sum now: tokens may choose others\n";
  }
  return text;
}

int dissect_used(const DissectUsedArguments& a) {
  HeldOutOptions options = a.text;
  if (!a.folder.empty()) options.warn = {};  // refused with the same words
  HeldOut text(a.run, options);
  const std::string run = text.run();
  if (!a.folder.empty()) require_prunable(text, a.folder);  // before minutes of reading
  const RoutingRecord record = record_routing(text, RecordOutputs::kNo, RecordTokens::kNo);
  const Config& config = text.config();
  const Audit size = audit(config);
  UsedReport report{.run = run,
                    .checkpoint = text.source().folder,
                    .checkpoint_sha256 = text.checkpoint_sha256(),
                    .text_sha256 = text.text_sha256(),
                    .step = text.source().state.step,
                    .experts = config.model.moe->experts,
                    .top_k = config.model.moe->top_k,
                    .tokens = text.tokens(),
                    .sequences = text.sequences(),
                    .p_total = size.total,
                    .p_active = size.active,
                    .p_used = used_parameters(config, record.loads),
                    .loads = record.loads};
  nlohmann::ordered_json json = used_json(report);
  if (!a.json) std::fputs(used_text(report).c_str(), stdout);
  record_dissection(run, kUsedFile, json);
  if (!a.folder.empty()) {
    RunMeta meta;
    meta.command = a.command;
    meta.build = build_info();
    const Pruned pruned = write_pruned(text, record.loads, a.folder, a.text.device, meta);
    if (!a.json) std::fputs(pruned_text(pruned, config).c_str(), stdout);
    json["pruned"] = {
        {"checkpoint", pruned.checkpoint}, {"experts", pruned.experts},
        {"parameters", pruned.parameters}, {"targets", pruned.targets},
        {"different", pruned.different},   {"largest_difference_nats", pruned.largest},
        {"loss_nats", pruned.loss},        {"original_loss_nats", pruned.original_loss}};
  }
  if (a.json) print_json(json);
  return kExitDone;
}

}  // namespace

void add_dissect_used(Commands& commands, CLI::App* dissect) {
  auto a = std::make_shared<DissectUsedArguments>();
  CLI::App* sub = dissect->add_subcommand(
      "used", "the experts that held-out text reaches, P_used, and the model without the others");
  add_dissect_options(sub, *a);
  sub->add_option("--export", a->folder,
                  "write the model without unused experts as a new run, and compare its loss with "
                  "the original's, target by target");
  sub->footer(
      "The result is also written to RUN/dissect/used.json; if that is not possible, it is only "
      "printed, with a warning.\n"
      "Examples:\n"
      "  assay dissect used runs/moe\n"
      "  assay dissect used runs/moe --tokens 1000000\n"
      "  assay dissect used runs/moe --export runs/moe-used; assay eval runs/moe-used");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return dissect_used(*a);
  });
}

}  // namespace assay
