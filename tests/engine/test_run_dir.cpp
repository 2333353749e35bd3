#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/interrupt.h"
#include "engine/run/log.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/telemetry.h"
#include "ops/instruction_path.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_run_dir {
namespace {

namespace fs = std::filesystem;
using Start = RunDir::Start;

Config config_of(int64_t seed) {
  Config c;
  c.run.seed = seed;
  c.data.train = {"/data/t.bin"};
  return c;
}

// Runs f() in a child process and returns its exit status, or -signal if a signal ended it.
int in_child(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a run continues with its configuration") {
  const TempFolder folder;
  const std::string path = folder / "runs/a";
  {
    const RunDir run(path, Start::kContinue);
    REQUIRE(!run.previous());
    run.write_config(config_of(3));
  }
  REQUIRE(require_run(path) == path);
  const RunDir run(path, Start::kContinue);
  REQUIRE(run.previous());
  Config expected = config_of(3);
  expected.data.cache = fs::absolute(path).string() + "/data-cache";
  REQUIRE(to_yaml(*run.previous()) == to_yaml(expected));
  require_same_run(run, config_of(3), 10);
  expect_error([&] { require_same_run(run, config_of(4), 10); }, "run.seed: 3 -> 4");
}

TEST_CASE("a branch is proposed for another end, where there is a checkpoint to leave from") {
  const TempFolder folder;
  const std::string path = folder / "a";
  Config begun = config_of(3);
  begun.run.steps = 60;
  begun.schedule.warmup = 10;
  begun.schedule.warmdown = 20;
  RunDir(path, Start::kContinue).write_config(begun);
  const RunDir run(path, Start::kContinue);
  const auto hint_for = [&](const Config& now) {
    try {
      require_same_run(run, now, 60);
    } catch (const UserError& error) {
      return error.hint();
    }
    return std::string("accepted");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  Config longer = begun, other = begun;
  longer.run.steps = 90;
  other.run.steps = 90;
  other.run.seed = 4;
  fs::create_directories(path + "/checkpoints/step-00000005");  // in the warm-up
  fs::create_directories(path + "/checkpoints/step-00000060");  // after the warm-down
  REQUIRE(has(hint_for(longer), "would need a checkpoint from before its warm-down"));
  fs::create_directories(path + "/checkpoints/step-00000030");
  fs::create_directories(path + "/checkpoints/step-00000040");
  REQUIRE(has(hint_for(longer), "`assay branch` goes on from its checkpoint of step 40"));
  REQUIRE(has(hint_for(other), "--fresh"));
  REQUIRE(!has(hint_for(other), "branch"));
}

TEST_CASE("two processes cannot train the same run") {
  const TempFolder folder;
  const RunDir run(folder / "a", Start::kContinue);
  const int status = in_child([&] {
    try {
      const RunDir second(folder / "a", Start::kContinue);
    } catch (const UserError& error) {
      return std::string(error.what()).find("pid " + std::to_string(getppid())) != std::string::npos
                 ? 7
                 : 8;
    }
    return 9;
  });
  REQUIRE(status == 7);
}

TEST_CASE("a run starts over only on request, and only files that a run wrote are removed") {
  const TempFolder folder;
  const std::string path = folder / "a";
  {
    const RunDir run(path, Start::kContinue);
    run.write_config(config_of(3));
    fs::create_directories(run.file("checkpoints/step-00000001"));
    write_file_atomic(run.file("telemetry.db"), "x");
    make_folders(run.file("dissect"));
    for (const char* name : {"tokenizer.json", "branch.json", "dissect/used.json"})
      write_file_atomic(run.file(name), "x");
    write_file_atomic(run.file("notes.txt"), "mine");
  }
  const RunDir run(path, Start::kFresh);
  REQUIRE(fs::exists(run.file("telemetry.db")));  // until it is asked for
  run.remove_run();
  REQUIRE(!run.previous());
  REQUIRE(!fs::exists(run.file("checkpoints")));
  REQUIRE(!fs::exists(run.file("telemetry.db")));
  for (const char* name : {"config.yaml", "branch.json", "dissect"})
    REQUIRE(!fs::exists(run.file(name)));
  REQUIRE(fs::exists(run.file("tokenizer.json")));  // data.tokenizer may name it
  REQUIRE(read_file(run.file("notes.txt")) == "mine");
}

TEST_CASE("the tokenizer of an imported run, which was renamed twice") {
  const TempFolder folder;
  const std::string now = folder / "c";
  // Where it was imported, where it was trained, and where other runs have come since.
  for (const char* name : {"a", "b", "c", "elsewhere"}) {
    make_folders(folder / name);
    write_file_atomic(folder / (std::string(name) + "/tokenizer.json"), "x");
  }
  write_file_atomic(folder / "elsewhere/words.json", "x");
  const auto present = [&](const std::string& configured, bool checks) {
    DataConfig data;
    data.tokenizer = configured;
    data.check_tokenizer = checks;
    return present_tokenizer(now, data);
  };
  const std::string own = now + "/tokenizer.json", at_import = folder / "a/tokenizer.json",
                    trained = folder / "b/tokenizer.json", gone = folder / "gone/tokenizer.json",
                    words = folder / "elsewhere/words.json";
  REQUIRE(present(trained, true) == trained);  // not an imported run
  write_file_atomic(now + "/imported.json", "{\"tokenizer\": \"" + at_import + "\"}");
  for (const std::string& its : {own, at_import, trained, gone}) REQUIRE(present(its, true) == own);
  for (const std::string& its : {own, at_import, gone}) REQUIRE(present(its, false) == own);
  // What was not compared with its own may be another on purpose, and so may one of another name.
  REQUIRE(present(trained, false) == trained);
  REQUIRE(present(words, true) == words);
  REQUIRE(present("", true).empty());
  // Imported with a configuration that names another file, or by an earlier version.
  write_file_atomic(now + "/imported.json", "{}");
  REQUIRE(present(trained, true) == trained);
  REQUIRE(present(gone, true) == own);
}

TEST_CASE("imported.json says why a tokenizer was left behind, if it was") {
  const TempFolder folder;
  const std::string run = folder / "run";
  make_folders(run);
  REQUIRE(left_tokenizer("").empty());
  REQUIRE(left_tokenizer(run).empty());  // not an imported run
  for (const char* none : {"{}", "not JSON", R"({"left_tokenizer": 1})"}) {
    write_file_atomic(run + "/imported.json", none);
    REQUIRE(left_tokenizer(run).empty());
  }
  write_file_atomic(run + "/imported.json", R"({"left_tokenizer": "of another kind"})");
  REQUIRE(left_tokenizer(run) == "of another kind");
}

TEST_CASE("a run is deleted while the ranks of the launch write their last words there") {
  const TempFolder folder;
  const std::string path = folder / "a";
  std::atomic<bool> ends{false};
  std::thread words([&] {
    fs::create_directories(path + "/ranks");
    while (!ends) std::ofstream(path + "/ranks/last.txt") << "word";
  });
  for (int i = 0; i < 200; ++i) {
    const RunDir run(path, Start::kFresh);
    run.remove_run();
    run.write_config(config_of(3));
    write_file_atomic(run.rank_log(1), "a warning");
  }
  {
    const RunDir run(path, Start::kFresh);
    run.remove_run();
    REQUIRE(!fs::exists(run.file("config.yaml")));
    REQUIRE(!fs::exists(run.file("ranks/rank-00001.log")));
  }
  ends = true;
  words.join();
}

TEST_CASE("folders that are not runs are left alone") {
  const TempFolder folder;
  fs::create_directory(folder / "thesis");
  write_file_atomic(folder / "thesis/chapter.txt", "words");
  for (const Start start : {Start::kContinue, Start::kFresh}) {
    expect_error([&] { RunDir run(folder / "thesis", start); }, "has files but no run");
    expect_error([&] { RunDir run(folder / "thesis/chapter.txt", start); }, "is a file");
    expect_error([&] { RunDir run("", start); }, "empty");
    expect_error([&] { RunDir run("/proc/none", start); }, "/proc/none");
    expect_error([&] { RunDir run("/proc/sys", start); }, "has files but no run");
  }
  REQUIRE(read_file(folder / "thesis/chapter.txt") == "words");
  REQUIRE_FALSE(fs::exists(folder / "thesis/.lock"));
  expect_error([&] { require_run(folder / "thesis"); }, "has no config.yaml");
  expect_error([&] { require_run(folder / "none"); }, "no run at");
}

TEST_CASE("a configuration of the user's is not replaced") {
  const TempFolder folder;
  const std::string file = folder / "config.yaml";
  write_file_atomic(file, to_yaml(config_of(3)));
  const std::string resolved = to_yaml(load_config(file));  // as a run writes it
  const std::string mine = "# my notes\n" + resolved;
  write_file_atomic(file, mine);
  for (const Start start : {Start::kContinue, Start::kFresh}) {
    expect_error([&] { RunDir run(folder.path(), start); }, "a config.yaml that no run wrote");
  }
  REQUIRE(read_file(file) == mine);
  REQUIRE_FALSE(fs::exists(folder / ".lock"));
  write_file_atomic(file, "data:\n  cache: mine");  // without an end of line
  expect_error([&] { RunDir run(folder.path(), Start::kContinue); }, "that no run wrote");
  // What a process left that was killed behind write_config.
  write_file_atomic(file, resolved);
  REQUIRE(RunDir(folder.path(), Start::kContinue).previous());
  REQUIRE_FALSE(names_field(file, "run.seed"));  // it names every field, given or not
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(names_field(pipe, "run.seed"));  // it was read, and is not waited for again
  fs::remove(pipe);
  // A path that is not whole is the user's, except the default cache.
  Config own = load_config(file);
  own.data.cache = "data-cache";
  write_file_atomic(file, to_yaml(own));
  REQUIRE(is_run(folder.path()));
  own.data.train = {"t.bin"};
  write_file_atomic(file, to_yaml(own));
  REQUIRE_FALSE(is_run(folder.path()));
  // A run whose configuration was edited stays a run.
  write_file_atomic(file, mine);
  write_file_atomic(folder / "meta.json", R"({"config_sha256": "0"})");
  REQUIRE(RunDir(folder.path(), Start::kContinue).previous());
}

TEST_CASE("a configuration beside files of a run's names is a run's if a run wrote them") {
  struct Case {
    const char *file, *text;
    bool is_run;
  };
  const Case cases[] = {{"checkpoints/x.pt", "x", false},
                        {"checkpoints/step-00000010/lit_model.pth", "x", false},
                        {"checkpoints/step-00000010/MANIFEST.json", "{}", true},
                        {"checkpoints/.tmp-step-00000010/model.safetensors", "", true},
                        {"meta.json", R"({"author": "me"})", false},
                        {"meta.json", "[]", false},
                        {"meta.json", "no JSON", false},
                        {"meta.json", R"({"config_sha256": "0"})", true},
                        {"telemetry.db", "x", false},
                        {"telemetry.db", "", true}};
  for (const Case& c : cases) {
    CAPTURE(c.file, c.text);
    const TempFolder folder;
    make_folders(fs::path(folder / c.file).parent_path().string());
    write_file_atomic(folder / c.file, c.text);
    write_file_atomic(folder / "config.yaml", "run: {seed: 3}  # mine\n");
    REQUIRE(is_run(folder.path()) == c.is_run);
    if (c.is_run) continue;
    for (const Start start : {Start::kContinue, Start::kFresh}) {
      expect_error([&] { RunDir run(folder.path(), start); }, "a config.yaml that no run wrote");
    }
    REQUIRE(read_file(folder / c.file) == c.text);
    REQUIRE(read_file(folder / "config.yaml") == "run: {seed: 3}  # mine\n");
  }
  const TempFolder folder;
  write_file_atomic(folder / "config.yaml", "run: {seed: 3}\n");
  const Telemetry telemetry(folder / "telemetry.db", {.scalars = {}, .spans = {}, .layers = {}});
  REQUIRE(is_run(folder.path()));
}

TEST_CASE("the remains of a killed start do not block a new one, other files do") {
  const TempFolder folder;
  const std::string path = folder / "a";
  const std::string yaml = to_yaml(config_of(3));
  fs::create_directories(path + "/checkpoints");
  for (const char* name : {".lock", "log.txt", "telemetry.db", "telemetry.db-wal"}) {
    write_file_atomic(path + "/" + name, "");
  }
  for (const std::string& part : {yaml, yaml.substr(0, 100), std::string()}) {
    write_file_atomic(path + "/config.yaml.part", part);
    for (const Start start : {Start::kContinue, Start::kFresh}) {
      REQUIRE(!RunDir(path, start).previous());
    }
  }
  const std::vector<std::pair<std::string, std::string>> unknown = {
      {"config.yaml.part", "mine"},
      {"telemetry.db", "x"},
      {"log.txt", "x"},
      {"notes.txt", ""},
      {"checkpoints/keep.this.txt", ""}};
  for (const auto& [name, text] : unknown) {
    const TempFolder other;
    fs::copy(path, other / "b", fs::copy_options::recursive);
    fs::remove(other / ("b/" + name));
    write_file_atomic(other / ("b/" + name), text);
    INFO(name);
    expect_error([&] { RunDir run(other / "b", Start::kContinue); }, "has files but no run");
    expect_error([&] { RunDir run(other / "b", Start::kFresh); }, "has files but no run");
    REQUIRE(read_file(other / ("b/" + name)) == text);
  }
}

TEST_CASE("meta.json records the program of this launch and of earlier ones") {
  const TempFolder folder;
  const RunDir run(folder / "a", Start::kContinue);
  RunMeta meta;
  meta.command = {"assay", "train", "x.yaml"};
  meta.build.commit = "abc";
  meta.build.dirty = true;
  meta.precision = "mxfp8 with experts.wgrad=bf16";
  meta.data_sha256["t.bin"] = "00";
  write_meta(run, meta);
  meta.first_step = 50;
  meta.epoch_tokens = 12'800;
  meta.tokenizer_sha256 = "11";
  write_meta(run, meta);
  auto j = nlohmann::json::parse(read_file(run.file("meta.json")));
  REQUIRE(j["command"] == nlohmann::json{"assay", "train", "x.yaml"});
  REQUIRE(j["dirty"] == true);
  REQUIRE(j["first_step"] == 50);
  REQUIRE(j["precision"] == "mxfp8 with experts.wgrad=bf16");
  REQUIRE(j["program_sha256"].get<std::string>().size() == 64);
  REQUIRE(j["data_sha256"]["t.bin"] == "00");
  REQUIRE(j["epoch_tokens"] == 12'800);
  REQUIRE(j["tokenizer_sha256"] == "11");
  REQUIRE(!j["before"][0].contains("tokenizer_sha256"));  // without a tokenizer
  REQUIRE(j["before"].size() == 1);
  REQUIRE(!j["before"][0].contains("epoch_tokens"));  // of a mixture
  REQUIRE(j["before"][0]["first_step"] == 0);
  REQUIRE(!j["before"][0].contains("before"));
  REQUIRE(j["instructions"] == instruction_path());
  meta.device = "cuda: NVIDIA H200";  // which decides the bits alone
  write_meta(run, meta);
  j = nlohmann::json::parse(read_file(run.file("meta.json")));
  REQUIRE(!j.contains("instructions"));
  for (const char* of_several : {"ranks", "nodes", "expert_ranks"}) {
    REQUIRE(!j.contains(of_several));
  }
  meta.ranks = 4;
  meta.nodes = 2;
  meta.expert_ranks = 2;
  write_meta(run, meta);
  j = nlohmann::json::parse(read_file(run.file("meta.json")));
  REQUIRE(j["ranks"] == 4);
  REQUIRE(j["nodes"] == 2);
  REQUIRE(j["expert_ranks"] == 2);
}

// As a shell in a terminal starts a program; a script's `&` and nohup do not.
void stop_ignoring() {
  for (const int number : kStopSignals) {
    if (stays_ignored(number)) signal(number, SIG_DFL);
  }
}

TEST_CASE("the first signal requests a stop, one a second later kills") {
  stop_ignoring();
  for (const int number : kStopSignals) {
    const Interrupt interrupt;
    REQUIRE(!interrupt.requested());
    raise(number);
    REQUIRE(interrupt.signal() == number);
  }
  for (const int number : {SIGINT, SIGTERM}) {
    const auto again = [number] {
      const Interrupt interrupt;
      raise(number);
      if (!interrupt.requested()) return 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1050));
      raise(number);
      return 2;
    };
    REQUIRE(in_child(again) == -number);
  }
  const Interrupt anew;
  REQUIRE(!anew.requested());
}

TEST_CASE("a signal that comes twice at once is one request, also when the run has ended since") {
  const auto twice = [] {
    stop_ignoring();
    {
      const Interrupt interrupt;
      raise(SIGINT);
      raise(SIGINT);
      raise(SIGTERM);
      if (interrupt.signal() != SIGINT) return 1;
    }
    raise(SIGINT);
    return 2;
  };
  REQUIRE(in_child(twice) == 2);
}

TEST_CASE("a signal of the terminal that is ignored stays so; SIGTERM requests a stop") {
  for (const int number : {SIGINT, SIGQUIT, SIGHUP}) {
    const auto ignoring = [number] {
      stop_ignoring();
      signal(number, SIG_IGN);
      const Interrupt interrupt;
      raise(number);
      if (interrupt.requested()) return 1;
      raise(SIGTERM);
      return interrupt.signal() == SIGTERM ? 2 : 3;
    };
    REQUIRE(in_child(ignoring) == 2);
  }
}

TEST_CASE("a folder that is a link to the files of another run is refused until it is marked") {
  const TempFolder folder;
  const std::string path = folder / "a", other = folder / "other";
  make_folders(other + "/step-00000010");
  { RunDir(path, Start::kContinue).write_config(config_of(1)); }
  for (const char* name : {"checkpoints", "evals", "dissect"}) {
    CAPTURE(name);
    const std::string link = path + "/" + name;
    fs::create_directory_symlink("../other", link);
    expect_error([&] { RunDir(path, Start::kContinue); }, link + " is a link to ");
    REQUIRE(names_in(other) == std::vector<std::string>{"step-00000010"});
    write_file_atomic(other + "/.run", "/elsewhere/a\n" + fs::canonical(path).string() + "\n");
    REQUIRE_NOTHROW(RunDir(path, Start::kContinue));
    // A copy of the run, with its link.
    fs::copy(path, folder / "b", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    expect_error([&] { RunDir(folder / "b", Start::kContinue); }, "b/" + std::string(name));
    fs::remove_all(folder / "b");
    fs::remove(other + "/.run");
    fs::remove(link);
  }
  fs::create_directory_symlink("nowhere", path + "/checkpoints");
  expect_error([&] { RunDir(path, Start::kContinue); }, "leads to no folder");
  RunDir(path, Start::kFresh).remove_run();
  REQUIRE_FALSE(fs::is_symlink(path + "/checkpoints"));
  fs::create_directory_symlink("../other", path + "/ranks");
  expect_error([&] { RunDir(path, Start::kContinue); }, path + "/ranks is a link");
}

TEST_CASE("a new run takes an empty folder on another disk") {
  const TempFolder folder;
  const std::string path = folder / "a", disk = folder / "disk";
  make_folders(path);
  make_folders(disk);
  fs::create_directory_symlink("../disk", path + "/checkpoints");
  { const RunDir killed(path, Start::kContinue); }  // before it wrote its configuration
  REQUIRE(read_file(disk + "/.run") == fs::canonical(path).string() + "\n");
  { RunDir(path, Start::kContinue).write_config(config_of(1)); }
  make_folders(disk + "/step-00000010");
  REQUIRE_NOTHROW(RunDir(path, Start::kContinue));
  RunDir(path, Start::kFresh).remove_run();
  REQUIRE(fs::exists(disk + "/step-00000010"));
}

TEST_CASE("a log that is a link is not written") {
  const TempFolder folder;
  write_file_atomic(folder / "victim", "precious");
  const std::string log = folder / "log.txt";
  fs::create_symlink("victim", log);
  expect_error([&] { Log written(log, Log::Shown::kFileOnly); }, log + " is a link");
  REQUIRE(read_file(folder / "victim") == "precious");
}

}  // namespace assay::test_run_dir
