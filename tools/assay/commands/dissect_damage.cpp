// assay dissect damage: what experts, the shared expert and the routers are worth in held-out loss.
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/progress.h"
#include "engine/run/interrupt.h"
#include "session/dissect.h"
#include "tools/assay/commands/dissect.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct DissectDamageArguments : DissectOptions {
  std::vector<std::string> removals = {"zero", "next", "mean"};
  std::string experts = "busiest:4";
  DamagePlan plan;
};

int64_t integer(const std::string& text) {
  int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_one = error == std::errc{} && stop == end;
  if (is_one && value >= 0 && value <= std::numeric_limits<int32_t>::max()) return value;
  throw UserError("--experts: '" + text + "' is not a number of an expert",
                  "give all, none, busiest:N or ids: --experts 3,17");
}

// all, none, busiest:N or a list of ids.
void read_experts(const std::string& text, DamagePlan& plan) {
  plan.busiest = 0;
  if (text == "none") return;
  if (text == "all") {
    plan.busiest = -1;
  } else if (text.rfind("busiest:", 0) == 0) {
    plan.busiest = integer(text.substr(8));
  } else {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      plan.experts.push_back(int32_t(integer(text.substr(begin, end - begin))));
      begin = end + 1;
    }
  }
}

int dissect_damage(DissectDamageArguments a) {
  a.plan.removals.clear();
  for (const std::string& name : a.removals) a.plan.removals.push_back(*removal_of(name));
  read_experts(a.experts, a.plan);
  a.text.bias = HeldOutOptions::Bias::kAlways;
  HeldOut text(a.run, a.text);
  const Interrupt interrupt(Interrupt::Say::kNothing);
  std::unique_ptr<Progress> progress;
  bool stopped = false, kept = true;
  const auto watch = [&](size_t done, size_t of) {
    if (!progress) {
      progress = std::make_unique<Progress>("dissect", int64_t(of), ProgressUnit{"changes", 1});
    }
    progress->update(int64_t(done));
    stopped = interrupt.requested() && done < of;
    return !stopped;
  };
  const auto not_kept = [&](const UserError& error) {
    kept = false;
    warn_not_kept(error);
  };
  const DamageReport report =
      measure_damage(text, a.plan, text.run() + "/dissect", watch, not_kept);
  progress.reset();
  if (stopped) {
    std::fprintf(stderr, "stopped after %zu changes%s\n", report.done.size(),
                 kept ? ", which are kept; the same command measures the rest"
                      : ", which could not all be kept");
    return kExitInterrupted;
  }
  if (a.json) {
    print_json(damage_json(report));
  } else {
    std::fputs(damage_text(report).c_str(), stdout);
  }
  if (kept) record_dissection(text.run(), kDamageFile, damage_json(report));
  return kExitDone;
}

}  // namespace

void add_dissect_damage(Commands& commands, CLI::App* dissect) {
  auto a = std::make_shared<DissectDamageArguments>();
  CLI::App* sub = dissect->add_subcommand(
      "damage", "the held-out loss without experts, the shared expert or a trained router");
  add_dissect_options(sub, *a);
  sub->add_option(
         "--removals", a->removals,
         "how experts are removed, comma-separated: zero (chosen, contributes nothing), "
         "next (the next best takes its place), mean (its mean output) (default: all three)")
      ->delimiter(',')
      ->check(CLI::IsMember({"zero", "next", "mean"}));
  sub->add_option(
      "--experts", a->experts,
      "single experts to remove, beside the groups: all, none, busiest:N of each layer, "
      "or ids: 3,17 (default: busiest:4)");
  sub->add_option(
         "--groups", a->plan.groups,
         "groups of equally many experts, at least two, sorted by load; 0 = none (default: "
         "10)")
      ->check(zero_or_more());
  sub->add_option("--layers", a->plan.layers, "blocks to change, comma-separated (default: all)")
      ->delimiter(',');
  sub->footer(
      "Every change is a pass over the held-out text. Results are kept in RUN/dissect as they "
      "come: after Ctrl-C or a kill the same command goes on. If they cannot be written there, "
      "they "
      "are only printed, with a warning.\n"
      "Examples:\n"
      "  assay dissect damage runs/moe\n"
      "  assay dissect damage runs/moe --layers 2 --experts all --groups 0 --removals zero\n"
      "  assay dissect damage runs/moe --shards other.bin        on text of another kind");
  commands.on_chosen(sub, [a] { return dissect_damage(*a); });
}

}  // namespace assay
