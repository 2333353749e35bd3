#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "engine/run/checkpoint_merge.h"
#include "engine/run/checkpoint_slices.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/engine/sliced_run.h"

namespace assay::test_checkpoint_slices {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const Names kWholeFiles = {"MANIFEST.json", "model.safetensors", "optimizer.safetensors",
                           "state.json"};

Names none_failed(int ranks) {
  return Names(size_t(ranks));
}

// Replaces a rank's file by one with these slices, in the manifest too.
void rewrite(const std::string& checkpoint, const std::string& file,
             const std::vector<Slice>& slices) {
  CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
  manifest.files[file] = write_slices(checkpoint + "/" + file, slices);
  write_file_atomic(checkpoint + "/MANIFEST.json", manifest.text());
}

void edit_manifest(const std::string& checkpoint,
                   const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json manifest = nlohmann::json::parse(read_file(checkpoint + "/MANIFEST.json"));
  edit(manifest);
  write_file_atomic(checkpoint + "/MANIFEST.json", manifest.dump());
}

std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, 'x');
}

}  // namespace

TEST_CASE("what any number of ranks wrote, any other number reads") {
  for (const int wrote : {1, 2, 3, 4}) {
    SlicedRun run;
    REQUIRE(run.save(wrote, 10) == none_failed(wrote));
    const std::string checkpoint = run.path(10);
    REQUIRE(checkpoint_problem(checkpoint).empty());
    REQUIRE(read_checkpoint_manifest(checkpoint).ranks == wrote);
    for (const int reads : {1, 2, 3, 4}) {
      INFO(wrote << " ranks wrote, " << reads << " read");
      REQUIRE(is_read_by(checkpoint, reads));
    }
    const DrawnTensors model = SlicedRun::model(10);
    DrawnTensors whole(model_shapes(), 99);
    load_model(checkpoint, whole.refs);
    REQUIRE(whole.bytes == model.bytes);
    // Single elements, across the borders of slices.
    const CheckpointSlices slices(checkpoint, TensorKind::kModel);
    for (int64_t first = 0; first < 1000; first += 3) {
      std::vector<char> bytes(4 * 3, 0);
      const int64_t count = std::min<int64_t>(3, 1000 - first);
      slices.read("weight", first, count, bytes.data());
      REQUIRE(
          std::equal(bytes.begin(), bytes.begin() + 4 * count, model.bytes[0].begin() + 4 * first));
    }
    const bool listed =
        std::equal(model.refs.begin(), model.refs.end(), slices.tensors().begin(),
                   slices.tensors().end(), [](const TensorRef& a, const TensorRef& b) {
                     return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
                   });
    REQUIRE((listed || wrote == 1));  // format 1 sorts a tensor without bytes by its name
  }
}

TEST_CASE("one rank writes format 1, several a file each") {
  SlicedRun run, whole;
  REQUIRE(run.save(1, 10) == none_failed(1));
  const DrawnTensors model = SlicedRun::model(10), optimizer = SlicedRun::optimizer(10);
  whole.checkpoints(nullptr).save(state_of_step(10), model.refs, optimizer.refs);
  REQUIRE(same_files(run.path(10), whole.path(10)));
  REQUIRE(SlicedRun::names(run.path(10)) == kWholeFiles);
  REQUIRE(run.save(2, 20) == none_failed(2));
  REQUIRE(SlicedRun::names(run.path(20)) ==
          Names{"MANIFEST.json", "model.00000.safetensors", "model.00001.safetensors",
                "optimizer.00000.safetensors", "optimizer.00001.safetensors", "state.json"});
  // A rank that owns nothing has files too.
  const Names failed = run_ranks(3, [&](Group& group) {
    const std::vector<Slice> nothing;
    run.checkpoints(&group).save_slices(state_of_step(30),
                                        group.rank() == 1 ? whole_slices(model.refs) : nothing,
                                        group.rank() == 1 ? whole_slices(optimizer.refs) : nothing);
  });
  REQUIRE(failed == none_failed(3));
  REQUIRE(fs::exists(run.path(30) + "/model.00002.safetensors"));
  REQUIRE(checkpoint_problem(run.path(30)).empty());
}

TEST_CASE("merging gives the bytes of format 1") {
  SlicedRun whole;
  whole.save(1, 10, Checkpoints::Keep::kMilestone);
  const std::string hash = merged_model_sha256(whole.path(10));
  for (const int ranks : {2, 3, 4}) {
    SlicedRun run;
    REQUIRE(run.save(ranks, 10, Checkpoints::Keep::kMilestone) == none_failed(ranks));
    REQUIRE(merged_model_sha256(run.path(10)) == hash);
    const std::string shard = run.path(10) + "/optimizer.00001.safetensors";
    const std::string bytes = read_file(shard);
    REQUIRE(merge_checkpoint(run.path(10)));
    REQUIRE(same_files(run.path(10), whole.path(10)));
    REQUIRE_FALSE(merge_checkpoint(run.path(10)));
    // As if the merge had been interrupted before it removed the ranks' files.
    write_file_atomic(shard, bytes);
    REQUIRE(checkpoint_problem(run.path(10)).empty());
    REQUIRE_FALSE(merge_checkpoint(run.path(10)));
    REQUIRE(same_files(run.path(10), whole.path(10)));
  }
}

TEST_CASE("a merge that fails leaves the slices") {
  SlicedRun run;
  REQUIRE(run.save(3, 10) == none_failed(3));
  const Names before = SlicedRun::names(run.path(10));
  {
    const FileSizeLimit disk(3000);  // the ranks' files are smaller than that
    expect_error([&] { merge_checkpoint(run.path(10)); }, "cannot write");
  }
  REQUIRE(SlicedRun::names(run.path(10)) == before);
  REQUIRE(checkpoint_problem(run.path(10)).empty());
  // As if the merge had been interrupted before the manifest.
  write_file_atomic(run.path(10) + "/model.safetensors", "half");
  REQUIRE(checkpoint_problem(run.path(10)).empty());
  REQUIRE(is_read_by(run.path(10), 2));
  REQUIRE(merge_checkpoint(run.path(10)));
  REQUIRE(SlicedRun::names(run.path(10)) == kWholeFiles);
}

TEST_CASE("damaged files of ranks: the previous checkpoint is used") {
  struct Row {
    const char* what;
    std::function<void(const std::string&)> damage;
    const char* says;
  };
  const DrawnTensors model = SlicedRun::model(20);
  const auto own = [&](int rank) { return model.of_rank(rank, 3); };
  const Row rows[] = {
      {"a missing file", [](const std::string& c) { fs::remove(c + "/model.00001.safetensors"); },
       "model.00001.safetensors is missing"},
      {"a cut file",
       [](const std::string& c) { fs::resize_file(c + "/optimizer.00002.safetensors", 100); },
       "optimizer.00002.safetensors has 100 bytes instead of"},
      {"swapped files",
       [](const std::string& c) {
         fs::rename(c + "/model.00000.safetensors", c + "/x");
         fs::rename(c + "/model.00001.safetensors", c + "/model.00000.safetensors");
         fs::rename(c + "/x", c + "/model.00001.safetensors");
       },
       "model.00000.safetensors has"},
      {"a missing slice",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         std::erase_if(slices, [](const Slice& s) { return s.whole.name == "half"; });
         rewrite(c, "model.00001.safetensors", slices);
       },
       "step-00000020: model.*.safetensors: no file has elements 37 to 73 of tensor half"},
      {"a missing end",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         for (Slice& s : slices) s.count -= s.first + s.count == 1000 && s.whole.name == "weight";
         rewrite(c, "model.00001.safetensors", slices);
         slices = own(0);
         for (Slice& s : slices) s.count -= s.first + s.count == 1000 && s.whole.name == "weight";
         rewrite(c, "model.00000.safetensors", slices);
         slices = own(2);
         for (Slice& s : slices) s.count -= s.first + s.count == 1000 && s.whole.name == "weight";
         rewrite(c, "model.00002.safetensors", slices);
       },
       "no file has element 999 of tensor weight"},
      {"a slice twice",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         slices.push_back(DrawnTensors::slice(model.refs[3], 2, 3));
         rewrite(c, "model.00001.safetensors", slices);
       },
       "both have elements 2 to 4 of tensor a.bias"},
      {"a whole tensor twice",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         slices.push_back(DrawnTensors::slice(model.refs[2], 0, 1));
         rewrite(c, "model.00001.safetensors", slices);
       },
       "both have element 0 of tensor count"},
      {"another shape",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         for (Slice& s : slices) {
           if (s.whole.name == "weight") s.whole.shape = {100, 10};
         }
         rewrite(c, "model.00001.safetensors", slices);
       },
       "weight is F32 (100, 10), in "},
      {"another type",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         for (Slice& s : slices) {
           if (s.whole.name == "weight") s.whole.dtype = DType::kBF16;
         }
         rewrite(c, "model.00001.safetensors", slices);
       },
       "weight is BF16 (10, 100), in "},
      {"one more tensor",
       [&](const std::string& c) {
         std::vector<Slice> slices = own(1);
         slices.push_back(DrawnTensors::slice(model.refs[3], 0, 5));
         slices.back().whole.name = "another";
         rewrite(c, "model.00001.safetensors", slices);
       },
       "the manifest does not list tensor another"},
      {"a tensor of the manifest",
       [](const std::string& c) {
         edit_manifest(c, [](auto& m) { m["tensors"]["model"].push_back("gone"); });
       },
       "no file has tensor gone"},
      {"a tensor twice in the manifest",
       [](const std::string& c) {
         edit_manifest(c, [](auto& m) { m["tensors"]["optimizer"].push_back("weight.v"); });
       },
       "the manifest lists a tensor twice"},
      {"no list of tensors",
       [](const std::string& c) { edit_manifest(c, [](auto& m) { m.erase("tensors"); }); },
       "lists no tensors of the model"},
      {"another list of tensors",
       [](const std::string& c) { edit_manifest(c, [](auto& m) { m["tensors"]["model"] = {1}; }); },
       "is not the manifest of a checkpoint"},
      {"fewer ranks",
       [](const std::string& c) { edit_manifest(c, [](auto& m) { m["ranks"] = 2; }); },
       "no file has"},
      {"more ranks",
       [](const std::string& c) { edit_manifest(c, [](auto& m) { m["ranks"] = 4; }); },
       "does not list model.00003.safetensors"},
      {"no ranks", [](const std::string& c) { edit_manifest(c, [](auto& m) { m["ranks"] = 1; }); },
       "lists 7 files of 1 ranks"},
      {"a world of ranks",
       [](const std::string& c) {
         edit_manifest(c, [](auto& m) { m["ranks"] = int64_t{1} << 60; });
       },
       "lists 7 files of"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    SlicedRun run;
    REQUIRE(run.save(2, 10) == none_failed(2));
    REQUIRE(run.save(3, 20) == none_failed(3));
    row.damage(run.path(20));
    std::vector<std::optional<std::string>> newest(4);
    REQUIRE(run_ranks(4, [&](Group& group) {
              newest[size_t(group.rank())] = run.checkpoints(&group).newest();
            }) == none_failed(4));
    for (const auto& found : newest) REQUIRE(found == run.path(10));
    REQUIRE(run.warnings.size() == 1);
    REQUIRE_THAT(run.warnings[0], Catch::Matchers::ContainsSubstring("step-00000020") &&
                                      Catch::Matchers::ContainsSubstring(row.says) &&
                                      !Catch::Matchers::ContainsSubstring("not from rank 0"));
  }
}

TEST_CASE("hostile slices are refused") {
  const TempFolder folder;
  const auto refused = [&](const std::string& entry, const std::string& metadata,
                           const std::string& says) {
    write_file_atomic(folder / "f",
                      file_of("{\"__metadata__\":{" + metadata + "}," + entry + "}", 8));
    expect_error([&] { CheckpointSlices slices(folder.path(), {"f"}, {}); }, says);
  };
  const auto entry = [](const std::string& name, const std::string& shape = "[2]",
                        const std::string& type = "F32") {
    return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape +
           R"(,"data_offsets":[0,8]})";
  };
  const auto shape = [](const std::string& name, const std::string& text) {
    return "\"slice:" + name + "\":\"" + text + "\"";
  };
  refused(entry("x#0"), "", "no full shape of the slice x#0");
  refused(entry("x#0"), shape("x#0", "[4]"), "no file has elements 2 to 3 of tensor x");
  refused(entry("x#0"), shape("x#0", "[1]"), "has 2 elements, the whole (1) 1");
  refused(entry("x#3"), shape("x#3", "[4]"), "has 2 elements, the whole (4) 4");
  refused(entry("x"), shape("x", "[2]"), "is not NAME#FIRST");
  for (const char* name : {"x#", "x#-1", "x#01", "x#1a", "x#0x1", "x# 1", "x#99999999999999999"})
    refused(entry(name), shape(name, "[9]"), "is not NAME#FIRST");
  refused(entry("x#9999999999999999"), shape("x#9999999999999999", "[9]"), "has 2 elements");
  refused(entry("x#0", "[1,2]"), shape("x#0", "[2]"), "on one axis");
  for (const char* text : {"", "2", "{}", "[2", "null", "(2)"})
    refused(entry("x#0"), shape("x#0", text), "is not a list");
  for (const char* text : {"[-2]", "[2.0]", "[[2]]", "[null]", "[18446744073709551615]"})
    refused(entry("x#0"), shape("x#0", text), "not a count");
  refused(entry("x#0"), shape("x#0", "[4294967296,4294967296]"), "too large");
  refused(entry("x#0"), shape("x#0", "[9007199254740992,9007199254740992,9007199254740992]"),
          "too large");
  refused(entry("x#0"), shape("x#0", "[0,9007199254740992,9007199254740992]"), "has 2 elements");
  refused(entry("x#0"), shape("x#0", std::string(100000, '[')), "is not a list");
  refused(entry("x"), shape("y#0", "[2]"), "slice:y#0 is of no entry");
  refused(entry("x", "[1]", "F64"), "", "has type F64");
  // A slice without elements, which a tensor without bytes at the start of the file allows.
  write_file_atomic(
      folder / "f",
      file_of(R"({"__metadata__":{"slice:x#0":"[0]"},"x#0":{"dtype":"F32","shape":[0],)"
              R"("data_offsets":[0,0]}})",
              0));
  expect_error([&] { CheckpointSlices slices(folder.path(), {"f"}, {}); }, "with elements");
}

TEST_CASE("random damage of a rank's file is read or refused without a crash") {
  SlicedRun run;
  REQUIRE(run.save(3, 10) == none_failed(3));
  const std::string path = run.path(10) + "/model.00001.safetensors", good = read_file(path);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    const size_t header = 8 + size_t(good.find('}', good.rfind('}')));
    for (int i = 0; i < 2; ++i) bytes[random() % header] = static_cast<char>(random() % 256);
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    std::ofstream(path, std::ios::binary) << bytes;  // without fsync, which would take seconds
    try {
      is_read_by(run.path(10), 2);
    } catch (const UserError&) {
      ++refused;
    }
  }
  REQUIRE(refused > 300);
}

TEST_CASE("slices that do not fit the run are named") {
  SlicedRun run;
  REQUIRE(run.save(2, 10) == none_failed(2));
  const auto load = [&](TensorKind kind, const TensorRef& whole) {
    const std::vector<Slice> slices = {{.whole = whole, .first = 0, .count = 0, .data = nullptr}};
    load_slices(run.path(10), kind, slices);
  };
  TensorRef weight = model_shapes()[0];
  weight.shape = {100, 10};
  expect_error([&] { load(TensorKind::kModel, weight); },
               "model.*.safetensors: weight is F32 (10, 100), expected F32 (100, 10)");
  weight.name = "weight.momentum";
  expect_error([&] { load(TensorKind::kOptimizer, weight); }, "has no tensor weight.momentum");
  DrawnTensors fewer(model_shapes(), 1);
  fewer.refs.pop_back();
  expect_error([&] { load_model(run.path(10), fewer.refs); },
               "has a tensor none that this model does not have");
}

TEST_CASE("a write that fails on one rank fails on all, and costs nothing") {
  SlicedRun run;
  REQUIRE(run.save(3, 10) == none_failed(3));
  const Names before = run.names();
  const auto fails = [&](const std::function<void(Group&)>& save, const std::string& says) {
    const Names failed = run_ranks(3, save);
    REQUIRE_THAT(failed[0], Catch::Matchers::ContainsSubstring(says));
    REQUIRE(failed == Names(3, failed[0]));
    REQUIRE(run.names() == before);
    REQUIRE(checkpoint_problem(run.path(10)).empty());
  };
  const DrawnTensors optimizer = SlicedRun::optimizer(20);
  const DrawnTensors large(
      {{.name = "large", .dtype = DType::kF32, .shape = {9000}, .data = nullptr}}, 1);
  const TensorRef& ref = large.refs[0];
  // Rank r has 500, 500 and 8000 elements of `large`; `cut` of them are left out by rank 1.
  const auto save = [&](Group& group, int64_t cut, int64_t state_bytes = 0, int64_t step = 20) {
    const int r = group.rank();
    const std::vector<Slice> slices = {DrawnTensors::slice(ref, r * 500,
                                                           r == 2   ? 8000
                                                           : r == 1 ? 500 - cut
                                                                    : 500)};
    TrainingState state = state_of_step(step);
    state.extra["text"] = std::string(size_t(state_bytes), 'x');
    run.checkpoints(&group).save_slices(state, slices, optimizer.of_rank(r, 3));
  };
  {
    const FileSizeLimit disk(12000);
    fails([&](Group& group) { save(group, 0); }, "rank 2: cannot write ");
  }
  {
    const FileSizeLimit disk(50000);
    fails([&](Group& group) { save(group, 0, 60000); }, "rank 0: cannot write ");
  }
  {
    const FileSizeLimit disk(1000);
    fails([&](Group& group) { save(group, 0); }, "(3 ranks failed)");
  }
  fails([&](Group& group) { save(group, 3); }, "no file has elements 997 to 999 of tensor large");
  fails([&](Group& group) { save(group, -3); }, "both have elements 1000 to 1002 of tensor large");
  const Names failed = run_ranks(3, [&](Group& group) {
    Checkpoints("/proc/none", 1, nullptr, &group)
        .save_slices(state_of_step(1), {}, optimizer.of_rank(group.rank(), 3));
  });
  REQUIRE_THAT(failed[2], Catch::Matchers::StartsWith("rank 0: cannot make the folder"));
  REQUIRE(failed == Names(3, failed[2]));
  REQUIRE(run_ranks(3, [&](Group& group) { save(group, 0); }) == none_failed(3));
  REQUIRE(run.names() == Names{"step-00000010", "step-00000020"});
}

TEST_CASE("ranks killed at any moment of a save keep their last complete checkpoint") {
  SlicedRun run;
  REQUIRE(run.save(3, 1) == none_failed(3));
  int64_t step = 1;
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int64_t next = step + 1;; ++next) run.save(3, next);
    }
    for (int wait = 0; wait < 3000 && !fs::exists(run.path(step + 1)); ++wait) usleep(2000);
    usleep(static_cast<useconds_t>(1300 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::optional<std::string> newest = run.checkpoints(nullptr).newest();
    REQUIRE(newest);
    REQUIRE(run.warnings.empty());
    REQUIRE(is_read_by(*newest, 2));
    REQUIRE(load_state(*newest).step > step);
    step = load_state(*newest).step;
  }
}

TEST_CASE("with ranks, too, the newest, the milestones and the best are kept") {
  SlicedRun run;
  REQUIRE(run.save(2, 10, Checkpoints::Keep::kMilestone) == none_failed(2));
  REQUIRE(run.save(3, 20) == none_failed(3));
  REQUIRE(run_ranks(2, [&](Group& group) { run.checkpoints(&group).mark_best(20); }) ==
          none_failed(2));
  for (const int64_t step : {30, 40, 50}) REQUIRE(run.save(2, step) == none_failed(2));
  REQUIRE(run.save(1, 60) == none_failed(1));
  REQUIRE(run.names() ==
          Names{"best", "step-00000010", "step-00000020", "step-00000050", "step-00000060"});
  REQUIRE(run.warnings.empty());
}

}  // namespace assay::test_checkpoint_slices
