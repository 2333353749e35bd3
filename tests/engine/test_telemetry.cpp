#include <sqlite3.h>
#include <zstd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/file.h"
#include "engine/telemetry/expert_load_codec.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/telemetry.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/temp_folder.h"

namespace assay::test_telemetry {
namespace {

TelemetryLayout layout_of(int64_t experts = 4) {
  return {.scalars = {"loss_nats", "lr"},
          .spans = {"forward", "backward"},
          .layers = {1, 3},
          .experts = experts};
}

// Logs rows of ranks that identify their step and rank.
void log_ranks(Telemetry& telemetry, int64_t step, int64_t ranks) {
  StepRecord& r = telemetry.begin_step(step);
  r.scalars[0] = 1;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    r.ranks.push_back({.step_ms = double(100 * step),
                       .wait_ms = double(10 * step + rank) / 3,
                       .bytes_sent = (int64_t{1} << 40) + 100 * step + rank,
                       .peak_rss_bytes = (int64_t{1} << 33) + rank});
  }
  telemetry.commit();
}

// Logs values that identify their step and layer.
void log_step(Telemetry& telemetry, int64_t step) {
  StepRecord& r = telemetry.begin_step(step);
  const double s = static_cast<double>(step);
  r.scalars[0] = 10.0 / s;
  if (step % 2 == 0) r.scalars[1] = 1e-3;
  r.spans_ms[1] = 0.5 * s;
  for (size_t m = 0; m < r.router.size(); ++m) {
    RouterRow& row = r.router[m];
    row.step.max_load = 0.25 + 0.1 * static_cast<double>(m);
    row.step.max_load_norm = 2 * row.step.max_load;
    row.step.cv_norm = 0.125;
    row.window.entropy = s;
    row.dead_for = 3;
    const View<uint32_t, 1> counts =
        r.layer_counts(static_cast<int64_t>(m), telemetry.layout().experts);
    for (int64_t e = 0; e < counts.size(); ++e) {
      counts[e] = static_cast<uint32_t>(1000 * step + 10 * static_cast<int64_t>(m) + e);
    }
  }
  telemetry.commit();
}

// What a branch takes of a run: also of one that an earlier version wrote.
void require_copy(const std::string& path, int64_t step) {
  const std::string copy = path + ".copy";
  copy_telemetry(path, copy, step);
  REQUIRE(TelemetryReader(copy).last_step() == step);
  REQUIRE(TelemetryReader(copy).router("max_load", step).size() == 2);
  REQUIRE(TelemetryReader(copy).rank_steps().empty());
  REQUIRE(!std::filesystem::exists(copy + "-wal"));
}

}  // namespace

TEST_CASE("logged values are read back") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of());
    telemetry.set_meta("seed", "7");
    for (int64_t step = 1; step <= 40; ++step) log_step(telemetry, step);
    telemetry.evals(20, {{"val", "loss_nats", 4.5, 65536}});
    telemetry.evals(40, {{"val", "loss_nats", 4.25, 65536}});
    telemetry.event(40, "finished", "all steps done");
  }
  REQUIRE(!std::filesystem::exists(path + "-wal"));

  const TelemetryReader reader(path);
  REQUIRE(reader.last_step() == 40);
  REQUIRE(reader.meta("seed") == "7");
  REQUIRE(!reader.meta("none"));
  REQUIRE(reader.scalar_names() == std::vector<std::string>{"loss_nats", "lr"});
  REQUIRE(reader.scalar("loss_nats").size() == 40);
  REQUIRE(reader.scalar("lr").size() == 20);  // absent in odd steps
  REQUIRE(reader.last_scalar("loss_nats")->value == 0.25);
  REQUIRE(!reader.last_scalar("none"));
  REQUIRE(reader.last_eval("val", "loss_nats")->value == 4.25);
  REQUIRE(reader.eval("val", "loss_nats")[0].step == 20);

  const std::vector<LayerValue> loads = reader.router("max_load", 40);
  REQUIRE(loads.size() == 2);
  REQUIRE(loads[0].layer == 1);
  REQUIRE(loads[1].layer == 3);
  REQUIRE(loads[1].value == 0.35);
  REQUIRE(reader.router("cv_norm", 40)[0].value == 0.125);
  REQUIRE(reader.router("entropy_norm", 40).empty());
  REQUIRE(reader.router("overlap", 40).empty());
  REQUIRE(reader.router_over_time("window_entropy", 3).size() == 40);
  REQUIRE(reader.router_over_time("window_entropy", 3)[11].value == 12.0);
  REQUIRE(reader.worst_max_load_norm()->layer == 3);
  REQUIRE(reader.worst_max_load_norm()->value == 0.7);
  REQUIRE(reader.expert_load(7, 3) == std::vector<uint32_t>{7010, 7011, 7012, 7013});
  REQUIRE(reader.expert_load(7, 2).empty());
}

TEST_CASE("a resumed run drops the rows after its checkpoint") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of());
    for (int64_t step = 1; step <= 10; ++step) log_step(telemetry, step);
    telemetry.evals(9, {{"val", "loss_nats", 1.0, 1}});
    telemetry.event(10, "interrupt", "");
    telemetry.truncate_after(6, "from step-00000006");
    log_step(telemetry, 7);
  }
  const TelemetryReader reader(path);
  REQUIRE(reader.last_step() == 7);
  REQUIRE(reader.scalar("loss_nats").size() == 7);
  REQUIRE(reader.eval("val", "loss_nats").empty());
  REQUIRE(reader.expert_load(8, 1).empty());
  const Database database(path, Database::Mode::kReadOnly);
  Statement events(database, "SELECT step, kind, detail FROM event");
  REQUIRE(events.step());
  REQUIRE(events.integer(0) == 6);
  REQUIRE(events.text(1) == "resume");
  REQUIRE(events.text(2) == "from step-00000006");
  REQUIRE(!events.step());
  Statement spans(database, "SELECT count(*), max(milliseconds) FROM span");
  REQUIRE(spans.step());
  REQUIRE(spans.integer(0) == 7);
  REQUIRE(spans.number(1) == 3.5);
}

TEST_CASE("validations before the first step are forgotten, and nothing else") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  Telemetry telemetry(path, layout_of());
  for (const char* task : {"val", "val/web", "core", "value"})
    telemetry.evals(0, {{task, "loss_nats", 6.0, 1}});
  telemetry.evals(5, {{"val", "loss_nats", 5.0, 1}});
  telemetry.forget_first_validation();
  const TelemetryReader reader(path);
  REQUIRE((!reader.has_eval(0, "val") && !reader.has_eval(0, "val/web")));
  REQUIRE((reader.has_eval(0, "core") && reader.has_eval(0, "value") && reader.has_eval(5, "val")));
}

TEST_CASE("a run that was resumed after its end has not ended") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  Telemetry telemetry(path, layout_of());
  REQUIRE(TelemetryReader(path).end().empty());
  for (int64_t step = 1; step <= 6; ++step) log_step(telemetry, step);
  telemetry.event(6, "end", "collapse_stop");
  REQUIRE(TelemetryReader(path).end() == "collapse_stop");
  telemetry.truncate_after(6, "from step-00000006");
  REQUIRE(TelemetryReader(path).end().empty());
  log_step(telemetry, 7);
  telemetry.event(7, "end", "steps");
  REQUIRE(TelemetryReader(path).end() == "steps");
  telemetry.evals(7, {{"val", "loss_nats", 2.5, 1}});
  REQUIRE(TelemetryReader(path).end() == "steps");
  telemetry.evals(7,
                  {{"val", "loss_nats", std::nan(""), 1}});  // as earlier versions ended such a run
  REQUIRE(TelemetryReader(path).end() == "non_finite");
  log_step(telemetry, 8);
  telemetry.event(8, "end", "steps");  // without a validation of its last step
  REQUIRE(TelemetryReader(path).end() == "steps");
}

TEST_CASE("another process reads whole steps during the run") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  Telemetry telemetry(path, layout_of(64));
  log_step(telemetry, 1);
  telemetry.flush();
  std::thread writer([&] {
    for (int64_t step = 2; step <= 300; ++step) log_step(telemetry, step);
  });
  const TelemetryReader reader(path);
  int64_t seen = 0;
  while (seen < 200) {
    const int64_t last = *reader.last_step();
    REQUIRE(last >= seen);
    REQUIRE(reader.expert_load(last, 3).size() == 64);
    REQUIRE(reader.router("max_load", last).size() == 2);
    seen = last;
  }
  writer.join();
  telemetry.flush();
  REQUIRE(reader.last_step() == 300);
}

TEST_CASE("a reader at the end of a run does not leave a WAL file behind") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  auto telemetry = std::make_unique<Telemetry>(path, layout_of());
  log_step(*telemetry, 1);
  telemetry->flush();
  auto reader = std::make_unique<TelemetryReader>(path);
  REQUIRE(reader->last_step() == 1);
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    reader.reset();
  });
  telemetry.reset();
  leaves.join();
  REQUIRE(!std::filesystem::exists(path + "-wal"));
}

TEST_CASE("a step that cannot be written ends the run with an error") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of(4096));
    for (int64_t step = 1; step <= 3; ++step) log_step(telemetry, step);
    telemetry.flush();
    const FileSizeLimit disk(std::filesystem::file_size(path));
    expect_error(
        [&] {
          for (int64_t step = 4; step <= 500; ++step) log_step(telemetry, step);
          telemetry.flush();
        },
        "telemetry.db");
  }
  REQUIRE(*TelemetryReader(path).last_step() >= 3);
}

TEST_CASE("a dense run has no router rows") {
  const TempFolder folder;
  {
    Telemetry telemetry(folder / "t.db",
                        {.scalars = {"loss_nats"}, .spans = {}, .layers = {}, .experts = 0});
    telemetry.begin_step(1).scalars[0] = 2.0;
    telemetry.commit();
  }
  const TelemetryReader reader(folder / "t.db");
  REQUIRE(!reader.worst_max_load_norm());
  REQUIRE(reader.last_step() == 1);
}

TEST_CASE("files that are not telemetry are refused") {
  const TempFolder folder;
  expect_error([&] { TelemetryReader reader(folder / "none.db"); }, "no telemetry at");
  make_folders(folder / "imported/checkpoints/step-00000000");
  const std::string lost = folder / "imported/telemetry.db";
  const auto trained = [&] {
    try {
      TelemetryReader reader(lost);
    } catch (const UserError& error) {
      return std::string(error.what()).find("though the run has trained") != std::string::npos;
    }
    return false;
  };
  REQUIRE_FALSE(trained());
  make_folders(folder / "imported/checkpoints/step-00000010");
  REQUIRE(trained());
  write_file_atomic(folder / "text.db", std::string(5000, 'x'));
  expect_error([&] { TelemetryReader reader(folder / "text.db"); }, "text.db");
  expect_error([&] { Telemetry telemetry(folder / "text.db", layout_of()); }, "text.db");
  {
    Database other(folder / "other.db", Database::Mode::kCreate);
    other.run("PRAGMA user_version=99");
  }
  expect_error([&] { TelemetryReader reader(folder / "other.db"); },
               "is telemetry of a later version (found 99, this program reads versions up to 5)");
  Database(folder / "empty.db", Database::Mode::kCreate).run("CREATE TABLE t(x)");
  expect_error([&] { TelemetryReader reader(folder / "empty.db"); }, "is not a telemetry database");
  expect_error([&] { Telemetry telemetry(folder / "other.db", layout_of()); }, "has version 99");
  expect_error([&] { Telemetry telemetry(folder / "no/such/t.db", layout_of()); }, "cannot open");
  {
    Telemetry telemetry(folder / "t.db", layout_of());
    log_step(telemetry, 1);
  }
  {
    Database damaged(folder / "t.db", Database::Mode::kCreate);
    damaged.run("UPDATE expert_load SET counts = x'00112233'");
  }
  const TelemetryReader reader(folder / "t.db");
  expect_error([&] { reader.expert_load(1, 1); }, "expert_load of step 1, layer 1");
}

TEST_CASE("what to do about telemetry that is empty or damaged") {
  const TempFolder folder;
  const auto hint_of = [](const std::string& path) {
    try {
      TelemetryReader reader(path);
    } catch (const UserError& error) {
      return error.hint();
    }
    return std::string("read");
  };
  make_folders(folder / "run");
  const std::string path = folder / "run/telemetry.db";
  write_file_atomic(path, "");
  REQUIRE(hint_of(path) == "the run logged nothing yet: train it first");
  make_folders(folder / "run/checkpoints/step-00000010");
  REQUIRE(hint_of(path).starts_with("put back a copy of the file, or train the run again"));
  // A program that only reads would refuse again without the file.
  write_file_atomic(path, std::string(5000, 'x'));
  REQUIRE(hint_of(path).starts_with("the file is damaged: put back a copy of it, or move it away"));
  REQUIRE(hint_of(path).find("same command") == std::string::npos);
  std::filesystem::remove(path);
  Database(path, Database::Mode::kCreate).run("CREATE TABLE t(x)");
  REQUIRE(hint_of(path) == "give the telemetry.db of a run");
}

TEST_CASE("telemetry of version 1 is read, and continues in the current version") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of());
    for (int64_t step = 1; step <= 3; ++step) log_step(telemetry, step);
  }
  {  // as version 1 wrote it: no gini, load vectors as plain zstd
    Database old(path, Database::Mode::kCreate);
    old.run("PRAGMA user_version=1; ALTER TABLE router_layer DROP COLUMN gini;");
    const std::vector<uint32_t> counts = {5, 0, 70000, 1};
    std::vector<char> packed(ZSTD_compressBound(16));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), counts.data(), 16, 1));
    Statement(old, "UPDATE expert_load SET counts = ?")
        .bind_blob(0, packed.data(), packed.size())
        .execute();
  }
  {
    const TelemetryReader reader(path);
    REQUIRE(reader.router("gini", 2).empty());
    REQUIRE(reader.router_over_time("gini", 1).empty());
    REQUIRE(reader.router("max_load", 2).size() == 2);
    REQUIRE(reader.expert_load(2, 1) == std::vector<uint32_t>{5, 0, 70000, 1});
  }
  require_copy(path, 2);
  {
    Telemetry telemetry(path, layout_of());
    telemetry.truncate_after(2, "");
    log_step(telemetry, 3);
  }
  const TelemetryReader reader(path);
  REQUIRE(reader.router("gini", 2).empty());
  REQUIRE(reader.router("gini", 3).size() == 2);
  REQUIRE(reader.router("max_load", 3)[1].value == 0.35);
  REQUIRE(reader.expert_load(2, 1) == std::vector<uint32_t>{5, 0, 70000, 1});
  REQUIRE(reader.expert_load(3, 1) == std::vector<uint32_t>{3000, 3001, 3002, 3003});
}

TEST_CASE("rows of ranks are read back, and only where there were several") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of());
    log_step(telemetry, 1);  // one rank
    for (int64_t step = 2; step <= 20; ++step) log_ranks(telemetry, step, 3);
    telemetry.truncate_after(15, "");
    log_step(telemetry, 16);  // in a slot that had rows of ranks
  }
  const TelemetryReader reader(path);
  const std::vector<RankStepRow> rows = reader.rank_steps();
  REQUIRE(rows.size() == 14 * 3);
  REQUIRE(rows.front().step == 2);
  REQUIRE(rows.front().rank == 0);
  REQUIRE(rows.back().step == 15);
  REQUIRE(rows.back().rank == 2);
  REQUIRE(rows.back().of.step_ms == 1500.0);
  REQUIRE(rows.back().of.wait_ms == 152.0 / 3);
  REQUIRE(rows.back().of.bytes_sent == (int64_t{1} << 40) + 1502);
  REQUIRE(rows.back().of.peak_rss_bytes == (int64_t{1} << 33) + 2);
  REQUIRE(reader.rank_steps(14).size() == 3);
  REQUIRE(reader.rank_steps(15).empty());
  const std::vector<RankStepRow> last = reader.rank_steps(0, 2);
  REQUIRE(last.size() == 2 * 3);
  REQUIRE(last.front().step == 14);
  REQUIRE(reader.rank_steps(14, 2).size() == 3);
  REQUIRE(reader.rank_steps(0, 99).size() == rows.size());
}

TEST_CASE("telemetry of version 4, without rows of ranks, is read and continued") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  {
    Telemetry telemetry(path, layout_of());
    for (int64_t step = 1; step <= 3; ++step) log_step(telemetry, step);
  }
  Database(path, Database::Mode::kCreate).run("DROP TABLE rank_step; PRAGMA user_version=4;");
  {
    const TelemetryReader reader(path);
    REQUIRE(reader.rank_steps().empty());
    REQUIRE(reader.last_step() == 3);
  }
  require_copy(path, 2);
  {
    Telemetry telemetry(path, layout_of());
    telemetry.truncate_after(2, "");
    log_ranks(telemetry, 3, 2);
  }
  REQUIRE(TelemetryReader(path).rank_steps().size() == 2);
}

TEST_CASE("load vectors are packed losslessly; an even one takes little over a byte per expert") {
  LoadPacker packer(4096);
  std::vector<uint32_t> counts(4096), read;
  for (const uint32_t spread : {1u, 120u, 100000u, 4294967295u}) {
    for (uint32_t e = 0; e < 4096; ++e) counts[e] = 836 + e * 2654435761u % spread;
    const std::string_view blob = packer.pack({counts.data(), {4096}});
    CAPTURE(spread);
    REQUIRE(unpack_load(blob, read));
    REQUIRE(read == counts);
    if (spread == 120) REQUIRE(blob.size() < 4096 * 5 / 4);
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{2}, blob.size() / 2, blob.size() - 1}) {
      REQUIRE(!unpack_load(blob.substr(0, cut), read));
    }
  }
}

// One that is there is not measured again when a run goes on.
TEST_CASE("the values of an evaluation are written all or none") {
  const TempFolder folder;
  const std::string path = folder / "telemetry.db";
  Telemetry telemetry(path, layout_of());
  const auto tasks = [&] { return TelemetryReader(path).has_eval(0, "val"); };
  // The second value cannot be written: its name is longer than a value may be.
  const std::vector<Telemetry::EvalRow> both = {{"val", "loss_nats", 2.5, 1},
                                                {"val", std::string(70'000'000, 'x'), 1.5, 1}};
  REQUIRE_THROWS(telemetry.evals(0, both));
  REQUIRE(!tasks());
  telemetry.evals(0, {both[0]});
  REQUIRE(tasks());
}

TEST_CASE("every column has its own name") {
  std::vector<std::string> names;
  for (const RouterColumn& column : router_columns()) names.push_back(column.name);
  std::sort(names.begin(), names.end());
  REQUIRE(std::adjacent_find(names.begin(), names.end()) == names.end());
}

}  // namespace assay::test_telemetry
