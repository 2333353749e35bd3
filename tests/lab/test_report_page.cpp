#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "engine/telemetry/sqlite.h"
#include "lab/page/page.h"
#include "lab/page/series.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/fake_run.h"

namespace assay::test_report_page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<StepValue> waves(int64_t size) {
  std::vector<StepValue> curve;
  for (int64_t step = 1; step <= size; ++step) {
    curve.push_back({.step = step, .value = std::sin(double(step))});
  }
  return curve;
}

FakeRun fake(const std::string& name, int64_t window = 100) {
  const fs::path folder = fs::temp_directory_path() / "assay-report-page" / name;
  fs::remove_all(folder);
  FakeRun run{.path = folder / "run", .data = folder / "data", .window = window};
  run.write();
  return run;
}

TEST_CASE("a thinned curve keeps its ends and its peaks") {
  std::vector<StepValue> curve = waves(5000);
  curve[1234].value = 40;
  curve[4321].value = -40;
  curve[777].value = std::numeric_limits<double>::quiet_NaN();
  const std::vector<StepValue> kept = thinned(curve, 200);
  REQUIRE(kept.size() <= 200);
  REQUIRE(kept.size() > 150);
  REQUIRE(kept.front().step == 1);
  REQUIRE(kept.back().step == 5000);
  bool high = false, low = false;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) REQUIRE(kept[i].step > kept[i - 1].step);
    REQUIRE(!std::isnan(kept[i].value));
    high = high || kept[i].value == 40;
    low = low || kept[i].value == -40;
  }
  REQUIRE(high);
  REQUIRE(low);
  REQUIRE(thinned(curve, 5000).size() == 5000);
  REQUIRE(thinned({}, 100).empty());
}

TEST_CASE("a thinned curve has the means of its stretches beside its extremes") {
  std::vector<StepValue> curve;  // 3, and every hundredth value 23: 3.2 on average
  for (int64_t step = 1; step <= 5000; ++step) curve.push_back({step, step % 100 == 50 ? 23. : 3.});
  const std::vector<StepValue> means = stretch_means(curve, 50);
  REQUIRE(means.size() == 50);
  REQUIRE(means[0].step == 50);
  REQUIRE(means[49].step == 4950);
  for (const StepValue& mean : means) REQUIRE(mean.value == Approx(3.2).epsilon(1e-12));
  curve[10].value = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(stretch_means(curve, 50)[0].value == Approx((98 * 3 + 23) / 99.).epsilon(1e-12));
  REQUIRE(stretch_means(curve, 5000).size() == 5000);

  const auto json = series_json(curve, 100);
  REQUIRE(json["means"]["step"].size() == 50);
  REQUIRE(json["means"]["value"][1] == 3.2);
  REQUIRE(json["of"] == 5000);
  REQUIRE(json["median"] == 3);
  REQUIRE_FALSE(series_json(curve, 5000).contains("means"));
  REQUIRE_FALSE(series_json(curve, 5000).contains("median"));
}

TEST_CASE("chosen steps include both ends, and can be denser early") {
  std::vector<int64_t> steps;
  for (int64_t step = 10; step <= 10000; step += 10) steps.push_back(step);
  const std::vector<int64_t> even = evenly_chosen(steps, 60), early = early_chosen(steps, 60);
  REQUIRE(even.size() == 60);
  REQUIRE(early.size() <= 60);
  REQUIRE(early.size() > 40);
  for (const auto& chosen : {even, early}) {
    REQUIRE(chosen.front() == 10);
    REQUIRE(chosen.back() == 10000);
    REQUIRE(std::is_sorted(chosen.begin(), chosen.end()));
  }
  REQUIRE(early[5] < even[5] / 5);
  REQUIRE(early_chosen({5}, 60) == std::vector<int64_t>{5});
}

TEST_CASE("chosen steps hold the peaks of their stretches, and are even where there are none") {
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> peaks(2);
  for (int64_t step = 1; step <= 700; ++step) {
    steps.push_back(step);
    peaks[0].push_back(step % 2 == 0 ? 0.5 : 0.4);  // what an even stride of 2 would not show
    peaks[1].push_back(std::numeric_limits<double>::quiet_NaN());
  }
  peaks[0][300] = 0.9;
  peaks[1][432] = -3;
  const auto has = [](const std::vector<int64_t>& chosen, int64_t step) {
    return std::find(chosen.begin(), chosen.end(), step) != chosen.end();
  };
  for (const int64_t count : {200, 9, 8}) {
    CAPTURE(count);
    const std::vector<int64_t> chosen = peaks_chosen(steps, peaks, count);
    REQUIRE(int64_t(chosen.size()) <= count);
    REQUIRE(chosen.front() == 1);
    REQUIRE(chosen.back() == 700);
    REQUIRE(std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) ==
            chosen.end());
    REQUIRE(has(chosen, 301));
    REQUIRE(has(chosen, 433));
  }
  const std::vector<std::vector<double>> flat(3, std::vector<double>(700, 0.25));
  REQUIRE(peaks_chosen(steps, flat, 200).size() == 200);
  REQUIRE(peaks_chosen(steps, {}, 200) == evenly_chosen(steps, 200));
  REQUIRE(peaks_chosen(steps, flat, 3) == evenly_chosen(steps, 3));
  REQUIRE(peaks_chosen(steps, flat, 700) == steps);
}

TEST_CASE("numbers are short, and NaN and infinity become null") {
  REQUIRE(short_number(0.1234567891, 5).dump() == "0.12346");
  REQUIRE(short_number(4096.0, 3).dump() == "4096");
  REQUIRE(short_number(1.2e-5, 7).dump() == "1.2e-05");
  REQUIRE(short_number(std::nan(""), 5).is_null());
  REQUIRE(short_number(std::numeric_limits<double>::infinity(), 5).is_null());
}

TEST_CASE("a name cannot turn the order of the text around it") {
  REQUIRE(escaped_html("moe\u202enib.\u2066é\u061c\u200f\u2013") ==
          "moe\\u202enib.\\u2066é\\u061c\\u200f\u2013");
  const Json data = {{"run", "moe\u202enib"}};
  REQUIRE(Json::parse(script_json(data))["run"] == "moe\\u202enib");
}

TEST_CASE("run names and configurations cannot break out of their place in the page") {
  Json data;
  data["runs"] = {"</script><script>alert(1)</script>", "<!-- a", "{{script}}"};
  const std::string json = script_json(data);
  REQUIRE(json.find('<') == std::string::npos);
  REQUIRE(Json::parse(json) == data);
  const std::string html = page_html(data, "a <b> & \"c\"", "/* plotly {{title}} */");
  REQUIRE(html.find("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>") != std::string::npos);
  REQUIRE(html.find("/* plotly {{title}} */") != std::string::npos);
  REQUIRE(html.find("alert(1)</script>") == std::string::npos);
  REQUIRE(html.find("cdn.plot.ly") == std::string::npos);
}

TEST_CASE("a page without inlined Plotly.js states its source") {
  const std::string html = page_html(Json::object(), "x", "");
  REQUIRE(html.find("<script src=\"https://cdn.plot.ly/plotly-") != std::string::npos);
  REQUIRE(html.find("need a network: they load Plotly.js ") != std::string::npos);
  const ReportFiles files = report_files();
  if (files.plotly.empty()) return;
  // The linked version equals the one that is inlined.
  REQUIRE(files.plotly.substr(0, 200).find(std::string("plotly.js v") + kPlotlyVersion) !=
          std::string_view::npos);
}

TEST_CASE("a report has the run's curves, loads and audit") {
  const FakeRun run = fake("whole");
  const Json data = report_data({run.path}, {});
  const Json& r = data["runs"][0];
  REQUIRE(r["label"] == "run");
  REQUIRE(r["problem"].is_null());
  REQUIRE(r["scalars"]["train_loss_nats"]["step"].size() == 40);
  REQUIRE(!r["scalars"].contains("hash"));
  REQUIRE(r["evals"][0]["value"] == Json({4.0, 4.25}));
  REQUIRE(r["spans"]["step"]["value"][0] == 500);
  const Json& router = r["router"];
  REQUIRE(router["layers"] == Json({1, 2}));
  REQUIRE(router["measures"]["values"]["max_load_norm"][1][39] == 0.95);
  REQUIRE(router["loads"]["by_id"][0][0] == Json({1, 2, 3, 4}));  // step 1: 1 + e
  REQUIRE(router["loads"]["sorted"].is_null());  // absent: the page sorts single experts itself
  REQUIRE(router["ccdf"].back()["layer"].is_null());
  REQUIRE(router["analysis"]["verdict"]["state"].is_string());
  REQUIRE(report_warnings(data).empty());
}

TEST_CASE("few steps of a router's measures keep its highest load and its dead experts") {
  const FakeRun run = fake("peaks", 5);
  Database(run.path + "/telemetry.db", Database::Mode::kCreate)
      .run(
          "UPDATE router_layer SET max_load_norm = 0.99 WHERE step = 16 AND layer = 1;"
          "UPDATE router_layer SET max_load_norm = 0.26 WHERE step = 6 AND layer = 2;"
          "UPDATE router_layer SET dead_for_norm = 0.75 WHERE step = 23 AND layer = 2;");
  const Json data = report_data({run.path}, {.measure_steps = 10});
  const Json& measures = data["runs"][0]["router"]["measures"];
  REQUIRE(measures["of"] == 40);
  REQUIRE(measures["steps"].size() <= 10);
  REQUIRE(measures["steps"].front() == 1);
  REQUIRE(measures["steps"].back() == 40);
  const auto range = [&](const char* name) {
    std::vector<double> values;
    for (const Json& layer : measures["values"][name]) {
      for (const Json& value : layer) {
        if (!value.is_null()) values.push_back(value);
      }
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return std::pair(*low, *high);
  };
  REQUIRE(range("max_load_norm") == std::pair(0.26, 0.99));
  REQUIRE(range("dead_for_norm").second == 0.75);
}

TEST_CASE("dead experts of the page begin with the first whole window, also of older runs") {
  const FakeRun run = fake("dead", 30);
  Database(run.path + "/telemetry.db", Database::Mode::kCreate)
      .run("UPDATE router_layer SET dead_for = 0, dead_for_norm = 0, bias_range = 0");
  const Json data = report_data({run.path}, {});
  const Json& values = data["runs"][0]["router"]["measures"]["values"];
  for (const char* name : {"dead_for", "dead_for_norm"}) {
    INFO(name);
    REQUIRE(values[name][0][28].is_null());  // step 29
    REQUIRE(values[name][0][29] == 0);
  }
  REQUIRE(values["bias_range"][0][0] == 0);
  const FakeRun few = fake("dead-few", 41);
  Database(few.path + "/telemetry.db", Database::Mode::kCreate)
      .run("UPDATE router_layer SET dead_for = 0");
  const Json early = report_data({few.path}, {});
  REQUIRE(!early["runs"][0]["router"]["measures"]["values"].contains("dead_for"));
}

TEST_CASE("ranks are told apart by how much they wait, over the steps of the last ones") {
  const FakeRun run = fake("ranks");
  REQUIRE(report_data({run.path}, {})["runs"][0]["ranks"].is_null());
  Database telemetry(run.path + "/telemetry.db", Database::Mode::kCreate);
  const auto insert = [&](int64_t step, const std::vector<double>& waits_ms) {
    for (size_t rank = 0; rank < waits_ms.size(); ++rank) {
      telemetry.run(strprintf("INSERT INTO rank_step VALUES(%ld, %zu, 200, %f, %ld, %ld)",
                              long(step), rank, waits_ms[rank], long(100 + step), long(step)));
    }
  };
  // Two ranks, of which the first one is slow; then three, of which the last one is slow but for a
  // step.
  for (int64_t step = 1; step <= 20; ++step) insert(step, {1, 150});
  for (int64_t step = 21; step <= 25; ++step) insert(step, {80, 90, step == 23 ? 120.0 : 20});
  const Json data = report_data({run.path}, {});
  const Json& ranks = data["runs"][0]["ranks"];
  REQUIRE(ranks["first_step"] == 21);
  REQUIRE(ranks["last_step"] == 25);
  REQUIRE(ranks["steps"] == 5);
  REQUIRE(ranks["slow"] == 2);
  REQUIRE(ranks["says"] ==
          "Rank 2 holds the others up: it waits least, and they wait for it 30% "
          "of a step.");
  REQUIRE(ranks["ranks"].size() == 3);
  REQUIRE(ranks["ranks"][1].dump() ==
          R"({"rank":1,"step_ms":200,"wait_ms":90,"wait_share":0.45,"bytes_sent":123,)"
          R"("peak_rss_bytes":25})");

  // Only the last steps, up to a limit.
  for (int64_t step = 26; step <= 40; ++step) insert(step, {80, 90, 70});
  const Json later = report_data({run.path}, {.measure_steps = 10});
  REQUIRE(later["runs"][0]["ranks"]["first_step"] == 31);
  REQUIRE(later["runs"][0]["ranks"]["slow"].is_null());
  REQUIRE(later["runs"][0]["ranks"]["says"] ==
          "No rank holds the others up by more than 10% of a step. Rank 2 waits least (35%), rank "
          "1 most (45%).");
  const Json few = report_data({run.path}, {.measure_steps = 4});
  const std::string too_few = "Too few steps are logged to say which rank is slow: 4, it takes 5.";
  REQUIRE(few["runs"][0]["ranks"]["says"] == too_few);
  // Of five steps a rank has one without a duration.
  telemetry.run("UPDATE rank_step SET step_ms = 0 WHERE step = 38 AND rank = 1");
  const Json fewer = report_data({run.path}, {.measure_steps = 5})["runs"][0]["ranks"];
  REQUIRE(fewer["says"] == too_few);
  REQUIRE(fewer["steps"] == 4);
}

TEST_CASE("the name of a column is no part of a statement") {
  const FakeRun run = fake("columns");
  const std::string endless =
      "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c)";
  Database(run.path + "/telemetry.db", Database::Mode::kCreate)
      .run("ALTER TABLE router_layer ADD COLUMN \"" + endless +
           "\" REAL; ALTER TABLE router_layer ADD COLUMN \"<b>\"\"z\" REAL;"
           "UPDATE router_layer SET \"<b>\"\"z\" = 7;");
  const Json data = report_data({run.path}, {});
  REQUIRE(data["runs"][0]["router"]["measures"]["values"]["<b>\"z"][0][0] == 7);
  REQUIRE(report_warnings(data).empty());
}

TEST_CASE("experts are summed when they outnumber the rows") {
  const FakeRun run = fake("binned");
  const Json loads =
      report_data({run.path}, {.load_steps = 5, .load_bins = 2})["runs"][0]["router"]["loads"];
  REQUIRE(loads["bin"] == 2);
  REQUIRE(loads["steps"].size() <= 5);
  REQUIRE(loads["by_id"][0][0] == Json({3, 7}));
  REQUIRE(loads["sorted"][0][0] == Json({7, 3}));
}

// Gives a run another seed, as if it had been trained with that.
void set_seed(const FakeRun& run, int64_t seed) {
  Config config = load_config(run.path + "/config.yaml", {});
  config.run.seed = seed;
  RunDir(run.path, RunDir::Start::kContinue).write_config(config);
}

TEST_CASE("a run of a seed that its model has is a model of its own, and that is said") {
  const FakeRun a = fake("one"), b = fake("two"), c = fake("three"), d = fake("four");
  set_seed(b, 2);
  const Json data = report_data({a.path, b.path, c.path}, {});  // three is one again
  REQUIRE(data["models"].size() == 2);
  REQUIRE(data["models"][0]["runs"] == Json({0, 1}));
  REQUIRE(data["models"][1]["runs"] == Json({2}));
  REQUIRE(data["models"][0]["name"] != data["models"][1]["name"]);
  REQUIRE(data["comparison"]["refused"].get<std::string>().find("with the same seed") !=
          std::string::npos);
  REQUIRE(data["comparison"]["incomparable"].empty());  // their losses are of the same text
  REQUIRE(data["differences"].size() == 1);
  REQUIRE(data["differences"][0]["field"] == "run.seed");  // 1 and 2 beside 1
  // Without telemetry the other one is the seed, whichever was given first.
  fs::remove(a.path + "/telemetry.db");
  const Json lost = report_data({a.path, b.path, c.path}, {});
  REQUIRE(lost["models"].size() == 2);
  REQUIRE(lost["models"][0]["runs"] == Json({0}));
  REQUIRE(lost["models"][1]["runs"] == Json({2, 1}));
  REQUIRE(lost["comparison"]["models"][0]["name"] == lost["models"][1]["name"]);
}

TEST_CASE("a run without telemetry does not change the names of the models that are compared") {
  const FakeRun lost = fake("names/dense-s2"), seed = fake("names/dense-s1"),
                other = fake("names/moe-s1");
  set_seed(lost, 2);
  Config config = load_config(other.path + "/config.yaml", {});
  config.optimizer.lr *= 2;
  RunDir(other.path, RunDir::Start::kContinue).write_config(config);
  std::vector<std::string> paths;
  for (const FakeRun& run : {lost, seed, other}) {
    const fs::path named = fs::path(run.path).parent_path().parent_path() /
                           ("run-" + fs::path(run.path).parent_path().filename().string());
    fs::remove_all(named);
    fs::rename(run.path, named);
    paths.push_back(named);
  }
  fs::remove(paths[0] + "/telemetry.db");
  const Json data = report_data(paths, {});
  REQUIRE(data["models"].size() == 2);
  REQUIRE(data["models"][0]["name"] == "run-dense");
  REQUIRE(data["comparison"]["models"].size() == 2);
  for (size_t i = 0; i < 2; ++i)
    REQUIRE(data["comparison"]["models"][i]["name"] == data["models"][i]["name"]);
}

TEST_CASE("runs that are validated on other texts are marked, for their charts") {
  const FakeRun a = fake("text-a"), b = fake("text-b");
  const std::string meta = read_file(b.path + "/meta.json");
  Json other = Json::parse(meta);
  other["data_sha256"][b.data + "/v.bin"] = std::string(64, 'e');
  write_file_atomic(b.path + "/meta.json", other.dump());
  const Json data = report_data({a.path, b.path}, {});
  REQUIRE(data["comparison"].contains("refused"));
  REQUIRE(data["comparison"]["incomparable"].size() == 1);
  REQUIRE(data["comparison"]["incomparable"][0].get<std::string>().starts_with("validation data"));
}

TEST_CASE("runs of one configuration are one model") {
  const FakeRun a = fake("seed-1"), b = fake("seed-2");
  set_seed(b, 2);
  const Json data = report_data({a.path, b.path}, {});
  REQUIRE(data["models"].size() == 1);
  REQUIRE(data["models"][0]["runs"] == Json({0, 1}));
  REQUIRE(data["matrix"].is_null());
  REQUIRE(page_title(data) == "Report of 2 runs");
  const Json alone = report_data({a.path}, {});
  REQUIRE(alone["comparison"].is_null());
  REQUIRE(alone["runs"][0]["summary"]["loss_nats"] == 4.25);
}

TEST_CASE("samples are read by step, without a line that is half written") {
  const FakeRun run = fake("samples");
  REQUIRE(report_data({run.path}, {})["runs"][0]["samples"].empty());
  write_file_atomic(run.path + "/samples.jsonl",
                    "{\"step\": 9, \"prompt\": \"a\", \"text\": \"b\"}\n"
                    "{\"step\": 9, \"prompt\": \"c\", \"text\": \"d\"}\n"
                    "{\"step\": 20, \"prompt\": \"a\", \"text\": \"e\"}\n{\"step\": 30, \"pr");
  const Json samples = report_data({run.path}, {})["runs"][0]["samples"];
  REQUIRE(samples.size() == 2);
  REQUIRE(samples[0]["texts"].size() == 2);
  REQUIRE(samples[1]["texts"][0]["text"] == "e");
}

TEST_CASE("only a live page may fetch, and only from its own server") {
  const Json data = Json::object();
  REQUIRE(page_html(data, "x", "").find("connect-src") == std::string::npos);
  const std::string live = page_html(data, "x", "", "poll();");
  REQUIRE(live.find("; connect-src 'self'\">") != std::string::npos);
  REQUIRE(live.find("<script>\npoll();\n</script>") > live.find("window.assayPage"));
}

TEST_CASE("limits shrink each by itself, down to the least that can be drawn") {
  const auto is_least = [](const ReportLimits& limits) {
    return limits.curve_points == 32 && limits.measure_steps == 8 && limits.load_steps == 2 &&
           limits.sample_steps == 2 && limits.sample_bytes == 400 && limits.load_bins == 256;
  };
  ReportLimits limits;
  REQUIRE(limits.shrink(0.9));  // a half at most, so that there are few rounds
  REQUIRE(limits.curve_points == 500);
  REQUIRE(limits.shrink(0.25));
  REQUIRE(limits.curve_points == 125);
  REQUIRE(limits.measure_steps == 25);
  REQUIRE(limits.load_steps == 7);
  REQUIRE(limits.shrink(0.25));
  REQUIRE(limits.load_steps == 2);
  REQUIRE(limits.measure_steps == 8);
  int rounds = 2;
  while (limits.shrink(0.5)) ++rounds;
  REQUIRE(rounds < 8);
  REQUIRE(is_least(limits));
  REQUIRE_FALSE(limits.shrink(0.5));
  ReportLimits at_once;
  REQUIRE(at_once.shrink(-3));  // a page that is too large without any data
  REQUIRE(is_least(at_once));
}

TEST_CASE("a page that would be too large is made with fewer points, or refused") {
  const FakeRun run = fake("large");
  const ReportPage whole = report_page({run.path}, "x", Plotly::kLink);
  const auto slider = [](const ReportPage& page) {
    return page.data["runs"][0]["router"]["loads"]["steps"].size();
  };
  const ReportPage smaller = report_page({run.path}, "x", Plotly::kLink, whole.html.size() - 1);
  REQUIRE(smaller.html.size() < whole.html.size());
  REQUIRE(slider(smaller) < slider(whole));
  expect_error([&] { report_page({run.path}, "x", Plotly::kLink, 1000); },
               "a page of 1 runs takes");
}

TEST_CASE("many runs, whose samples are long, fit on a page with few points of each") {
  std::vector<std::string> runs;
  std::string samples;
  for (int step = 1; step <= 12; ++step) {
    for (int prompt = 0; prompt < 5; ++prompt) {
      samples += strprintf("{\"step\": %d, \"prompt\": \"p\", \"text\": \"%s\"}\n", step,
                           std::string(5000, 'x').c_str());
    }
  }
  for (int i = 0; i < 4; ++i) {
    runs.push_back(fake("many-" + std::to_string(i)).path);
    write_file_atomic(runs.back() + "/samples.jsonl", samples);
  }
  const ReportPage whole = report_page(runs, "x", Plotly::kLink);
  REQUIRE(whole.data["runs"][3]["samples"].size() == 12);
  // A tenth of the data is left. It is shrunk to that at once, not by halves.
  const size_t data = script_json(whole.data).size();
  const size_t largest = whole.html.size() - data + data / 10;
  const ReportPage page = report_page(runs, "x", Plotly::kLink, largest);
  REQUIRE(page.html.size() <= largest);
  const Json& limits = page.data["limits"];
  REQUIRE(limits["curve_points"] <= 100);
  for (const Json& run : page.data["runs"]) {
    REQUIRE(run["samples"].size() == 2);
    REQUIRE(run["samples"][1]["step"] == 12);
    REQUIRE(run["samples"][0]["texts"][0]["text"].get<std::string>().size() ==
            size_t(limits["sample_bytes"]) + 3);
    REQUIRE(run["router"]["loads"]["steps"].size() >= 2);
  }
}

TEST_CASE("runs with the same name are distinguished, a run given twice is refused") {
  const FakeRun a = fake("first"), b = fake("second");
  const Json data = report_data({a.path, b.path}, {});
  REQUIRE(data["runs"][0]["label"] == "first/run");
  REQUIRE(data["runs"][1]["label"] == "second/run");
  REQUIRE_THROWS_AS(report_data({a.path, a.path + "/"}, {}), UserError);
}

TEST_CASE("a run without telemetry is kept among others, but an error on its own") {
  const FakeRun good = fake("good"), bad = fake("bad");
  fs::remove(bad.path + "/telemetry.db");
  const Json data = report_data({good.path, bad.path}, {});
  REQUIRE(data["runs"][0]["problem"].is_null());
  REQUIRE(data["runs"][1]["problem"].get<std::string>().find("no telemetry at") == 0);
  REQUIRE(data["runs"][1]["audit"]["total"] > 0);
  REQUIRE(report_warnings(data).size() == 1);
  REQUIRE_THROWS_AS(report_data({bad.path}, {}), UserError);
  // A server waits for the first step.
  REQUIRE(report_data({bad.path}, {}, NoTelemetry::kShow)["runs"].size() == 1);
}

}  // namespace
}  // namespace assay::test_report_page
