// The texts that a comparison's report must contain.
#include <string>
#include <vector>

#include "lab/compare/anchor_report.h"
#include "lab/compare/compare_report.h"
#include "lab/compare/published_report.h"
#include "lab/runs/summary_text.h"
#include "lab/runs/text_table.h"
#include "tests/catch.h"
#include "tests/lab/run_records.h"

namespace assay::test_compare_report {
namespace {

std::vector<RunRecord> two_runs() {
  std::vector<RunRecord> runs;
  for (const int64_t seed : {1, 2})
    runs.push_back(
        hand_made({.name = "dense-s" + std::to_string(seed),
                   .seed = seed,
                   .val_loss_nats = {{.step = 50, .value = 4.0 + 0.1 * double(seed)},
                                     {.step = 100, .value = 3.0 + 0.1 * double(seed)}}}));
  for (RunRecord& run : runs) run.data_sha256 = {{"v.bin", "aa"}};
  return runs;
}

void require_in(const std::string& text, const std::string& part) {
  INFO("looking for: " << part << "\nin:\n" << text);
  REQUIRE(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a table aligns numbers right and texts left, and shows absent values as dashes") {
  TextTable table({"model", "loss", "note"});
  table.add({"a", "3.25", "far better"});
  table.add({"longer", "", ""});
  REQUIRE(table.text() == "model   loss  note\na       3.25  far better\nlonger     -  -\n");
  REQUIRE(table.markdown() ==
          "| model | loss | note |\n| --- | ---: | --- |\n| a | 3.25 | far better |\n"
          "| longer | - | - |\n");
}

TEST_CASE("a summary of one value is that value") {
  REQUIRE(summary_text(Summary{.n = 1, .mean = 3.28, .sd = {}, .interval95 = {}}, Digits::kLoss) ==
          "3.2800");
  REQUIRE(summary_json(Summary{.n = 1, .mean = 3.28, .sd = {}, .interval95 = {}}).dump() ==
          R"({"n":1,"mean":3.28,"sd":null,"interval95":null})");
  REQUIRE(summary_text(std::nullopt, Digits::kLoss) == "");
  REQUIRE(summary_json(std::nullopt).is_null());
}

TEST_CASE("the text of a comparison") {
  const std::vector<RunRecord> runs = two_runs();
  const std::string text = comparison_text(compare(runs, {.target_loss = 3.15}));
  require_in(text, "dense    1,2");
  require_in(text, "steps: 100 steps of 1,000 tokens");
  require_in(text, "[2.5147, 3.7853]");  // 3.15 +- 12.7062 * 0.070711 / sqrt(2)
  require_in(text, "not evaluated");
  require_in(text, "4.1500 @50");
  require_in(text, "1 of 2");
  require_in(text, "no ranking: there is only one model");
}

TEST_CASE("the runs of a model whose name is not that of its runs are listed") {
  std::vector<RunRecord> runs = two_runs();
  REQUIRE(comparison_text(compare(runs, {})).find(": the runs") == std::string::npos);
  runs[0].name = "alpha";
  runs[1].name = "beta";
  for (RunRecord& run : runs) run.path = "models/" + run.name;
  require_in(comparison_text(compare(runs, {})), "\nmodels: the runs alpha, beta\n");
}

TEST_CASE("the sentence of a comparison") {
  std::vector<RunRecord> runs = two_runs();
  require_in(comparison_sentence(compare(runs, {})),
             "dense: validation loss 3.1500 nats, the mean of 2 seeds, with the 95% interval");
  std::vector<RunRecord> stopped = two_runs();  // before the next validation
  for (RunRecord& run : stopped) run.steps_done = 120;
  require_in(comparison_sentence(compare(stopped, {})),
             "dense: validation loss 3.1500 nats (step 100), the mean of 2 seeds");
  stopped[0].val_loss_nats.pop_back();
  require_in(comparison_sentence(compare(stopped, {})), "nats (steps 50 to 100), the mean of 2");
  for (RunRecord run : two_runs()) {
    run.name = "wide-s" + std::to_string(run.config.run.seed);
    run.config.model.ffn += 8;
    // 0.2 lower with either seed, give or take 0.001: the interval excludes 0.
    run.val_loss_nats.back().value -= 0.2 + 0.001 * double(run.config.run.seed);
    runs.push_back(run);
  }
  const std::string ahead = comparison_sentence(compare(runs, {}));
  require_in(ahead, "wide is 0.2015 nats below dense in validation loss at the end. ");
  require_in(ahead,
             "Over the seeds 1, 2 the 95% interval of the difference, [-0.2079, -0.1951] "
             "nats, excludes 0. Held fixed: steps: 100 steps of 1,000 tokens.");
  runs.back().val_loss_nats.back().value += 0.1;
  require_in(comparison_sentence(compare(runs, {})),
             "but no model is ahead beyond the seeds. Over the seeds 1, 2");
  require_in(comparison_sentence(compare(runs, {})),
             "includes 0: these seeds do not tell them apart. Held fixed");
  const RunRecord of_one[] = {runs[0], runs[2]};
  require_in(comparison_sentence(compare(of_one, {})),
             "One shared seed: the seed may cause the difference.");
  runs.back().end = "";
  REQUIRE(comparison_sentence(compare(runs, {})) == "No ranking: wide-s2 is not finished.");
  runs.front().end = "";
  REQUIRE(comparison_sentence(compare(runs, {})) ==
          "No ranking: 2 runs are not finished: dense-s1, wide-s2.");
}

TEST_CASE("the sentence says in how many runs the routers collapsed, unless in all") {
  std::vector<RunRecord> runs = two_runs();
  for (RunRecord run : two_runs()) {
    run.name = "moe-s" + std::to_string(run.config.run.seed);
    run.config.model.moe.emplace();
    run.health.emplace();
    run.health->worst_max_load_norm = 0.6;
    runs.push_back(run);
  }
  REQUIRE(comparison_sentence(compare(runs, {})).find("The routers") == std::string::npos);
  runs[3].health->saturated = {1};
  require_in(comparison_sentence(compare(runs, {})),
             " The routers of moe collapsed in 1 of 2 runs. Held fixed");
  runs[2].health->saturated = {1};
  require_in(comparison_sentence(compare(runs, {})), " The routers of moe collapsed. Held fixed");
}

TEST_CASE("an anchor with runs: facts, gaps from the largest step, matching settings") {
  const std::vector<RunRecord> runs = two_runs();
  const Comparison c = compare(runs, {});
  const AnchorLog anchor = parse_anchor_log(
      "s:0 tel:10.5\ns:50 tel:4.000000\ns:75 tel:3.5\ns:100 tel:3.250000\nwhat\n", "x/some.log");
  const std::string text = anchor_text(anchor, 3.5, c.models);
  require_in(text, "final    3.250000 at step 100");
  require_in(text, "first evaluation at or below 3.5: step 75 (3.500000)");
  require_in(text, "1 line is not understood, the first is line 5: what");
  require_in(text, "NOT COMPARABLE: other tokenizer");
  require_in(text, "3.150000  -0.100000");
  REQUIRE(text.find("3.150000  -0.100000") < text.find("4.150000  +0.150000"));
  require_in(text, "this log is not the published one");
  require_in(text, "embedding and head");

  const auto json = anchor_json(anchor, 3.5, c.models);
  REQUIRE(json["models"]["dense"]["gaps"][0]["step"] == 100);
  REQUIRE(json["models"]["dense"]["gaps"][0]["gap_nats"]["mean"].get<double>() == Approx(-0.1));
  REQUIRE(json["first_at_or_below"]["step"] == 75);
  REQUIRE(anchor_json(anchor, 3.0, {})["first_at_or_below"].is_null());
}

TEST_CASE("for a model without a common step, the report says how to get one") {
  std::vector<RunRecord> runs = two_runs();
  const Comparison c = compare(runs, {});
  const AnchorLog anchor = parse_anchor_log("s:0 tel:10.5\ns:128 tel:4.1\n", "some.log");
  require_in(anchor_text(anchor, 3.28, c.models),
             "no step at which both were validated; the anchor's first after 0 is 128");
}

TEST_CASE("published figures are shown next to ours") {
  std::vector<RunRecord> runs = two_runs();
  for (RunRecord& run : runs) {
    run.config.model.vocab_size = 50304;  // that of the study, padded
    run.config.data.reference = "kjj0/fineweb10B-gpt2";
  }
  const Comparison c = compare(runs, {});
  const std::string text = published_text(published_study("0003"), c.models, 3.28);
  require_in(text, "moe-64                    5760  target          3.2769");
  require_in(text, "yours: dense");
  require_in(text, "step_time, ms");
  const auto json = published_json(published_study("0003"), c.models, 3.28);
  REQUIRE(json["tables"][0]["ours"]["dense"]["step_time"] == 500.0);
  REQUIRE(json["tables"][0]["ours"]["dense"]["val_loss"].get<double>() == Approx(3.15));
  REQUIRE(json["tables"][0]["ours"]["dense"]["core"].is_null());
  REQUIRE(json["left_out"].empty());
  for (RunRecord& run : runs) run.config.data.reference = "any";
  const Comparison on_other_text = compare(runs, {});
  require_in(published_text(published_study("0003"), on_other_text.models, 3.28),
             "dense: left empty: losses on a text that is not known to be the study's");
  REQUIRE(published_json(published_study("0003"), on_other_text.models,
                         3.28)["tables"][0]["ours"]["dense"]["val_loss"]
              .is_null());
  for (RunRecord& run : runs) run.config.model.vocab_size = 4096, run.device = "cpu";
  const Comparison other = compare(runs, {});
  const auto empty = published_json(published_study("0003"), other.models, 3.28);
  REQUIRE(empty["tables"][0]["ours"]["dense"]["val_loss"].is_null());
  REQUIRE(empty["tables"][0]["ours"]["dense"]["step_time"].is_null());
  require_in(published_text(published_study("0003"), other.models, 3.28),
             "dense: left empty: losses for a vocabulary of 4096, the study's is 50257");
}

}  // namespace assay::test_compare_report
