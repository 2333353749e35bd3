#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_slices.h"
#include "engine/telemetry/telemetry.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/temp_folder.h"

namespace assay::test_checkpoint {
namespace {

namespace fs = std::filesystem;

// A model whose values identify its step.
struct Model {
  std::vector<float> weight = std::vector<float>(1000);
  std::vector<float> moment = std::vector<float>(500);

  void fill(int64_t step) {
    std::fill(weight.begin(), weight.end(), static_cast<float>(step));
    std::fill(moment.begin(), moment.end(), static_cast<float>(-step));
  }
  bool is_of(int64_t step) const {
    return std::all_of(weight.begin(), weight.end(),
                       [&](float w) { return w == static_cast<float>(step); }) &&
           std::all_of(moment.begin(), moment.end(),
                       [&](float m) { return m == static_cast<float>(-step); });
  }
  std::vector<TensorRef> model() {
    return {{.name = "weight", .dtype = DType::kF32, .shape = {10, 100}, .data = weight.data()}};
  }
  std::vector<TensorRef> optimizer() {
    return {{.name = "weight.m", .dtype = DType::kF32, .shape = {500}, .data = moment.data()}};
  }
};

TrainingState state_of(int64_t step) {
  return {.step = step,
          .tokens = step * 8192,
          .cursor = {.shard = 1, .batch = step, .epoch = 2},
          .seed = 7,
          .schedule_share = 0.5,
          .config_yaml = "run:\n  seed: 7\n",
          .config_hashes = {{"run", "ab"}},
          .versions = {{"sqlite", "3.40.1"}},
          .extra = {{"window", {1, 2, 3}}}};
}

struct Run {
  TempFolder folder;
  Model model;
  std::vector<std::string> warnings;
  Checkpoints checkpoints;

  explicit Run(int64_t keep = 2) : checkpoints(of_launch(keep)) {}

  Checkpoints of_launch(int64_t keep) {
    return {folder.path(), keep, [this](const std::string& w) { warnings.push_back(w); }};
  }
  void launch_again(int64_t keep) { checkpoints = of_launch(keep); }

  std::string save(int64_t step, Checkpoints::Keep keep = Checkpoints::Keep::kRolling) {
    model.fill(step);
    return checkpoints.save(state_of(step), model.model(), model.optimizer(), keep);
  }
  std::string path(int64_t step) const {
    return folder / strprintf("checkpoints/step-%08ld", static_cast<long>(step));
  }
  // Loads the newest checkpoint, checks that its parts are of one step and returns that step; -1 if
  // there is none.
  int64_t load() {
    const auto newest = checkpoints.newest();
    if (!newest) return -1;
    const TrainingState state = load_state(*newest);
    load_model(*newest, model.model());
    load_tensors(*newest, TensorKind::kOptimizer, model.optimizer());
    REQUIRE(model.is_of(state.step));
    return state.step;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "checkpoints")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

void flip_a_bit(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(path, bytes);
}

}  // namespace

TEST_CASE("state and tensors are read back unchanged") {
  Run run;
  REQUIRE(run.load() == -1);
  REQUIRE(run.save(10) == run.path(10));
  REQUIRE(run.load() == 10);
  const TrainingState state = load_state(run.path(10));
  REQUIRE(to_json(state) == to_json(state_of(10)));
  REQUIRE(state.cursor == Cursor{.shard = 1, .batch = 10, .epoch = 2});
  REQUIRE(run.warnings.empty());
}

TEST_CASE("the newest checkpoints and every milestone are kept") {
  Run run(2);
  run.save(10);
  run.save(20, Checkpoints::Keep::kMilestone);
  for (int64_t step = 30; step <= 60; step += 10) run.save(step);
  REQUIRE(run.names() ==
          std::vector<std::string>{"step-00000020", "step-00000050", "step-00000060"});
  REQUIRE(run.load() == 60);
}

TEST_CASE("a checkpoint by time is kept until the next one, and pushes out none") {
  using Names = std::vector<std::string>;
  Run run(2);
  run.save(100);
  run.save(200);
  run.save(230, Checkpoints::Keep::kByTime);
  run.save(260, Checkpoints::Keep::kByTime);
  REQUIRE(run.names() == Names{"step-00000100", "step-00000200", "step-00000260"});
  REQUIRE(run.load() == 260);
  run.save(300);
  REQUIRE(run.names() == Names{"step-00000200", "step-00000300"});
}

TEST_CASE("a damaged checkpoint is named and the previous one is used") {
  struct Row {
    const char* what;
    void (*damage)(const std::string&);
    const char* says;
  };
  const Row rows[] = {
      {"a flipped bit", [](const std::string& c) { flip_a_bit(c + "/model.safetensors"); },
       "model.safetensors has another SHA-256"},
      {"a short file",
       [](const std::string& c) { fs::resize_file(c + "/optimizer.safetensors", 100); },
       "optimizer.safetensors has 100 bytes instead of"},
      {"a short file, which is found before the first file is hashed",
       [](const std::string& c) {
         flip_a_bit(c + "/model.safetensors");
         fs::resize_file(c + "/optimizer.safetensors", 100);
       },
       "optimizer.safetensors has 100 bytes instead of"},
      {"a tensor of another size, which its header shows",
       [](const std::string& c) {
         std::string bytes = read_file(c + "/optimizer.safetensors");
         bytes.replace(bytes.find("[500]"), 5, "[499]");
         write_file_atomic(c + "/optimizer.safetensors", bytes);
       },
       "tensor weight.m has bytes 0 to 2000, its shape needs 1996"},
      {"a missing file", [](const std::string& c) { fs::remove(c + "/state.json"); },
       "state.json is missing"},
      {"no manifest", [](const std::string& c) { fs::remove(c + "/MANIFEST.json"); },
       "has no MANIFEST.json"},
      {"an empty manifest",
       [](const std::string& c) { write_file_atomic(c + "/MANIFEST.json", ""); },
       "MANIFEST.json is not the manifest of a checkpoint"},
      {"another manifest",
       [](const std::string& c) { write_file_atomic(c + "/MANIFEST.json", "[1]"); },
       "lists no files"},
      {"another format",
       [](const std::string& c) {
         write_file_atomic(c + "/MANIFEST.json", R"({"format":99,"files":{}})");
       },
       "format 99"},
      {"a manifest without hashes",
       [](const std::string& c) {
         write_file_atomic(c + "/MANIFEST.json",
                           R"({"format":1,"files":{"state.json":{"bytes":"x"}}})");
       },
       "no size or hash of state.json"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Run run;
    run.save(10);
    run.save(20);
    row.damage(run.path(20));
    REQUIRE(run.load() == 10);
    REQUIRE(run.warnings.size() == 1);
    REQUIRE_THAT(run.warnings[0], Catch::Matchers::ContainsSubstring("step-00000020") &&
                                      Catch::Matchers::ContainsSubstring(row.says));
    expect_error([&] { require_checkpoint(run.path(20), nullptr); }, "is damaged");
    run.save(20);  // as if step 20 was trained again
    REQUIRE(run.load() == 20);
  }
}

TEST_CASE("a checkpoint with a pipe is damaged, and nobody waits for it") {
  Run run;
  run.save(10);
  run.save(20);
  for (const char* name : {kCheckpointManifest, kCheckpointState}) {
    const std::string path = run.path(20) + "/" + name;
    fs::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0644) == 0);
  }
  expect_error([&] { load_state(run.path(20)); }, "it is a pipe or a device");
  expect_error([&] { read_checkpoint_manifest(run.path(20)); }, "it is a pipe or a device");
  REQUIRE(checkpoint_problem(run.path(20)).find("MANIFEST.json: it is a pipe") !=
          std::string::npos);
  REQUIRE(run.load() == 10);
}

TEST_CASE("a checkpoint that is a link is not marked as damaged where it leads to") {
  const TempFolder folder;
  make_folders(folder / "other");
  fs::create_directory_symlink("other", folder / "step-00000010");
  mark_damaged(folder / "step-00000010", "cut short");
  REQUIRE(names_in(folder / "other").empty());
}

TEST_CASE("checkpoints from after the one that a run went on from do not push out its new ones") {
  Run run(1);
  run.save(10, Checkpoints::Keep::kMilestone);
  run.save(30);
  flip_a_bit(run.path(30) + "/model.safetensors");
  REQUIRE(run.load() == 10);
  run.save(20);
  REQUIRE(run.names() ==
          std::vector<std::string>{"step-00000010", "step-00000020", "step-00000030"});
  REQUIRE(run.load() == 20);
  run.save(30);
  REQUIRE(run.names() == std::vector<std::string>{"step-00000010", "step-00000030"});
  REQUIRE(run.load() == 30);
}

TEST_CASE("a checkpoint that was found damaged is none of those that are kept") {
  using Names = std::vector<std::string>;
  Run run(2);
  run.save(10);
  const std::string damaged = run.save(12), file = damaged + "/optimizer.safetensors";
  const std::string whole = read_file(file);
  flip_a_bit(file);
  REQUIRE(run.checkpoints.newest_by_name() == damaged);
  REQUIRE(run.load() == 10);
  run.checkpoints.tidy(10);
  REQUIRE(run.checkpoints.newest_by_name() == run.path(10));
  SECTION("until enough newer ones are there, also in another process") {
    const Names all = {"step-00000010", "step-00000012", "step-00000015"};
    run.save(15);
    REQUIRE(run.names() == all);
    run.launch_again(2);
    REQUIRE(run.load() == 15);
    run.checkpoints.tidy(15);
    REQUIRE(run.names() == all);
    REQUIRE(run.warnings.size() == 1);  // of the first process
    run.save(20);
    REQUIRE(run.names() == Names{"step-00000015", "step-00000020"});
  }
  SECTION("until its files are put back") {
    write_file_atomic(file, whole);
    REQUIRE(run.load() == 12);
    run.checkpoints.tidy(12);
    REQUIRE(run.checkpoints.newest_by_name() == damaged);
    run.save(15);
    REQUIRE(run.names() == Names{"step-00000012", "step-00000015"});
  }
  SECTION("until its step is saved again") {
    run.save(12);
    REQUIRE(run.checkpoints.newest_by_name() == damaged);
    run.save(15);
    REQUIRE(run.names() == Names{"step-00000012", "step-00000015"});
  }
}

TEST_CASE("a launch that keeps fewer removes none before it has saved one") {
  using Names = std::vector<std::string>;
  Run run(9);
  for (int64_t step = 10; step <= 50; step += 10) run.save(step);
  run.launch_again(2);
  run.checkpoints.keep_until_saved(9);
  REQUIRE(run.checkpoints.removed_by_next_save(50) == 4);
  run.checkpoints.tidy(50);
  REQUIRE(run.names().size() == 5);
  run.checkpoints.mark_best(50);
  REQUIRE(run.names().size() == 6);
  REQUIRE(run.checkpoints.removed_by_next_save(50) == 3);
  {
    const FileSizeLimit disk(1500);
    expect_error([&] { run.save(60); }, "cannot write");
  }
  REQUIRE(run.names().size() == 6);
  run.save(60);
  REQUIRE(run.names() == Names{"best", "step-00000040", "step-00000050", "step-00000060"});
}

TEST_CASE("what a save that was killed would have removed goes when the run goes on") {
  Run run(9);
  for (int64_t step = 10; step <= 50; step += 10) run.save(step);
  run.launch_again(2);
  run.checkpoints.keep_until_saved(3);
  run.checkpoints.tidy(50);
  REQUIRE(run.names() ==
          std::vector<std::string>{"step-00000030", "step-00000040", "step-00000050"});
}

TEST_CASE("nothing is read if one tensor is missing") {
  Run run;
  run.save(10);
  Model into;
  std::vector<TensorRef> wanted = into.model();
  std::vector<float> more(7);
  wanted.push_back({.name = "weight.m", .dtype = DType::kF32, .shape = {7}, .data = more.data()});
  expect_error([&] { load_model(run.path(10), wanted); }, "weight.m");
  REQUIRE(into.is_of(0));
}

TEST_CASE("the remains of an interrupted save are ignored and removed") {
  Run run;
  run.save(10);
  fs::create_directories(run.folder / "checkpoints/.tmp-step-00000020");
  write_file_atomic(run.folder / "checkpoints/.tmp-step-00000020/model.safetensors", "half");
  fs::create_directories(run.folder / "checkpoints/step-12");
  REQUIRE(run.load() == 10);
  REQUIRE(run.warnings.empty());
  run.save(30);
  REQUIRE(run.names() == std::vector<std::string>{"step-00000010", "step-00000030", "step-12"});
}

TEST_CASE("a full disk costs the new checkpoint, not the old one") {
  Run run(1);
  run.save(10);
  {
    const FileSizeLimit disk(1500);
    expect_error([&] { run.save(20); }, "cannot write");
  }
  REQUIRE(run.names() == std::vector<std::string>{"step-00000010"});
  REQUIRE(run.load() == 10);
  run.save(20);
  REQUIRE(run.names() == std::vector<std::string>{"step-00000020"});
}

TEST_CASE("a folder that cannot be written") {
  Model model;
  Checkpoints checkpoints("/proc/none", 1, nullptr);
  expect_error([&] { checkpoints.save(state_of(1), model.model(), model.optimizer()); },
               "cannot make the folder");
}

TEST_CASE("a run killed at any moment of a save keeps its last complete checkpoint") {
  Run run(2);
  run.save(1);
  for (int round = 0; round < 20; ++round) {
    const int64_t from = run.load();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int64_t step = from + 1;; ++step) run.save(step);
    }
    for (int wait = 0; wait < 3000 && run.checkpoints.all().back() == run.path(from); ++wait) {
      usleep(2000);  // on a slow disk, waits for at least one more checkpoint before the kill
    }
    usleep(static_cast<useconds_t>(700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const int64_t now = run.load();
    REQUIRE(now > from);
    REQUIRE(run.warnings.empty());
  }
}

TEST_CASE("a copy of the best checkpoint becomes a link again") {
  const auto copied = [](Run& run) {  // as `cp -rL` and `scp -r` copy a run
    for (const int64_t step : {10, 20, 30}) {
      run.save(step);
      if (step == 10) run.checkpoints.mark_best(10);
    }
    fs::remove(run.folder / "checkpoints/best");
    fs::copy(run.path(10), run.folder / "checkpoints/best");
    REQUIRE(run.checkpoints.best_step() == 10);
  };
  const auto is_link = [](const Run& run, const char* to) {
    return fs::read_symlink(run.folder / "checkpoints/best") == to;
  };
  using Names = std::vector<std::string>;
  {
    Run run(1);
    copied(run);
    REQUIRE(require_checkpoint(run.folder / "checkpoints/best", nullptr) == run.path(10));
    run.checkpoints.tidy(30);
    REQUIRE(is_link(run, "step-00000010"));
    REQUIRE(run.names() == Names{"best", "step-00000010", "step-00000030"});
    run.save(40);
    run.checkpoints.mark_best(40);
    REQUIRE(is_link(run, "step-00000040"));
    run.save(50);
    REQUIRE(run.names() == Names{"best", "step-00000040", "step-00000050"});
    REQUIRE(run.warnings.empty());
  }
  {  // the checkpoint itself is damaged, or was left out
    Run run(1);
    copied(run);
    flip_a_bit(run.path(10) + "/model.safetensors");
    run.checkpoints.tidy(30);
    REQUIRE(is_link(run, "step-00000010"));
    load_model(run.path(10), run.model.model());
    REQUIRE(run.model.weight.front() == 10);
    REQUIRE(run.warnings.empty());
  }
  Run run(1);
  run.save(10);
  fs::create_directories(run.folder / "checkpoints/best/mine");
  run.checkpoints.mark_best(10);
  REQUIRE(fs::exists(run.folder / "checkpoints/best/mine"));
  REQUIRE(run.warnings.size() == 1);
}

TEST_CASE("the paths that a user may give for a checkpoint") {
  Run run;
  run.save(10);
  write_file_atomic(run.folder / "config.yaml", "run: {}\n");
  write_file_atomic(run.folder / "meta.json", R"({"config_sha256": "0"})");
  REQUIRE(require_checkpoint(run.path(10), nullptr) == run.path(10));
  REQUIRE(require_checkpoint(run.path(10) + "/", nullptr) == run.path(10));
  REQUIRE(require_checkpoint(run.folder.path(), nullptr) == run.path(10));
  expect_error([&] { require_checkpoint(run.folder / "none", nullptr); }, "no run at");
  fs::remove_all(run.path(10));
  expect_error([&] { require_checkpoint(run.folder.path(), nullptr); }, "has no checkpoint yet");
}

TEST_CASE("why a run has no checkpoint that can be read") {
  Run run;
  write_file_atomic(run.folder / "config.yaml", "run: {}\n");
  write_file_atomic(run.folder / "meta.json", R"({"config_sha256": "0"})");
  const auto refused = [&](const char* error, const char* hint) {
    try {
      require_checkpoint(run.folder.path(), nullptr);
      FAIL("a checkpoint was found");
    } catch (const UserError& e) {
      REQUIRE_THAT(e.what(), Catch::Matchers::ContainsSubstring(error));
      REQUIRE_THAT(e.hint(), Catch::Matchers::ContainsSubstring(hint));
    }
  };
  refused("has no checkpoint yet", "train it further");
  {
    Telemetry telemetry(run.folder / "telemetry.db", {.scalars = {}, .spans = {}, .layers = {}});
    telemetry.event(7, "end", "non_finite");
  }
  refused("has no checkpoint: step 7, or its loss, was not finite", "a smaller optimizer.lr");
  run.save(10);
  write_file_atomic(run.path(10) + "/model.safetensors", "");
  refused("none of the 1 checkpoints of ", "put back a copy");
  refused("step-00000010: model.safetensors has 0 bytes", "--fresh");
  {
    Telemetry telemetry(run.folder / "telemetry.db", {.scalars = {}, .spans = {}, .layers = {}});
    telemetry.event(10, "checkpoint", "");
  }
  fs::remove_all(run.path(10));
  refused("saved 1 checkpoints, but has none now", "put the checkpoints back");
}

TEST_CASE("a checkpoint whose folder names another step is refused") {
  Run run;
  const std::string folder = run.save(10);
  fs::rename(folder, run.path(20));
  expect_error([&] { load_state(run.path(20)); }, "has the state of step 10");
}

TEST_CASE("a state of another shape is refused") {
  nlohmann::json state = to_json(state_of(1));
  state.erase("cursor");
  expect_error([&] { training_state(state); }, "cursor");
  state = to_json(state_of(1));
  state["step"] = "one";
  expect_error([&] { training_state(state); }, "not in this version's format");
  expect_error([&] { training_state(nlohmann::json::array()); }, "not in this version's format");
  for (const char* count : {"-1", "-9223372036854775808", "18446744073709551615", "1.5", "null"}) {
    INFO(count);
    state = to_json(state_of(1));
    state["step"] = nlohmann::json::parse(count);
    expect_error([&] { training_state(state); }, "is not a count");
    state = to_json(state_of(1));
    state["cursor"]["batch"] = nlohmann::json::parse(count);
    expect_error([&] { training_state(state); }, "is not a count");
  }
  state = to_json(state_of(1));
  state["extra"] = {1, 2};
  expect_error([&] { training_state(state); }, "extra is not an object");
}

}  // namespace assay::test_checkpoint
