// Evaluations that ranks share against those that every rank computes alone: equal to the bit, in
// recipes without and with scales of whole tensors. Run it under mpirun with any number of
// processes. A failure on one rank ends the job.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/random.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "data/tokenizer_files.h"
#include "eval/ranks.h"
#include "models/decoder/training_memory.h"
#include "session/run_evaluators.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kVocab = 257, kEnd = 256, kSequence = 64, kMicroBatch = 4;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);  // mpirun ends the others
}

Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary.bytes.emplace_back(1, char(b));
  vocabulary.bytes.emplace_back(kEndOfText);
  vocabulary.special = {kEnd};
  return Tokenizer(std::move(vocabulary));
}

std::vector<int32_t> random_tokens(uint32_t seed, int64_t count) {
  RandomSequence random({17, stream_id("shard"), seed});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(random.below(30) == 0 ? kEnd : int32_t(97 + random.below(26)));
  }
  return tokens;
}

std::string phrase(RandomSequence& random, int words) {
  std::string text;
  for (int w = 0; w < words; ++w) {
    if (w > 0) text += ' ';
    for (uint32_t n = 1 + random.below(5); n > 0; --n) text += char('a' + random.below(26));
  }
  return text;
}

// Three kinds of tasks with rows for several blocks, for two, and for part of one. An empty
// continuation cannot be scored.
void write_bundle(const std::string& folder) {
  RandomSequence random({17, stream_id("bundle"), 0});
  struct Task {
    const char *label, *kind, *guessing;
    int rows;
  };
  std::string yaml = "icl_tasks:\n", table = "Eval Task,Random baseline\n";
  make_folders(folder + "/eval_data");
  for (const Task& task :
       {Task{"choice", "multiple_choice", "33.3", 600}, Task{"schema", "schema", "50", 300},
        Task{"language", "language_modeling", "0", 40}}) {
    const std::string label = task.label, kind = task.kind;
    yaml += "- label: " + label + "\n  dataset_uri: " + label + ".jsonl\n  num_fewshot: [1]\n" +
            "  icl_task_type: " + kind + "\n";
    table += label + "," + task.guessing + "\n";
    std::string lines;
    for (int i = 0; i < task.rows; ++i) {
      ordered_json row;
      if (label == "choice") {
        row = {{"query", phrase(random, 3)},
               {"choices", {phrase(random, 1), phrase(random, 1), phrase(random, 1)}},
               {"gold", random.below(3)}};
      } else if (label == "schema") {
        row = {{"context_options", {phrase(random, 2), phrase(random, 2)}},
               {"continuation", i % 50 == 0 ? "" : phrase(random, 1)},
               {"gold", random.below(2)}};
      } else {
        row = {{"context", phrase(random, 3)}, {"continuation", std::string(1, 'a' + i % 26)}};
      }
      lines += row.dump() + "\n";
    }
    write_file_plain(folder + "/eval_data/" + label + ".jsonl", lines);
  }
  write_file_plain(folder + "/core.yaml", yaml);
  write_file_plain(folder + "/eval_meta_data.csv", table);
}

// The same files for every rank, each in its own folder.
struct Files {
  TempFolder folder;
  RunData data;

  Files() {
    write_tokenizer_json(byte_tokenizer(), folder / "tokenizer.json");
    write_bundle(folder / "bundle");
    write_shard(folder / "a.bin", random_tokens(1, 30 * kSequence + 1), kVocab);
    write_shard(folder / "b.bin", random_tokens(2, 2 * kSequence + 1), kVocab);
    data.val = {folder / "a.bin", folder / "b.bin"};
    data.source_val = {{"a", {data.val[0]}}, {"b", {data.val[1]}}};
    data.tokenizer = folder / "tokenizer.json";
    data.token_bytes.assign(kVocab, 1);
    data.token_bytes[kEnd] = 0;
    data.eot = data.mask_id = kEnd;
  }
};

Config config_of(const std::string& recipe, const Files& files) {
  Config c;
  c.model.hidden = 64;
  c.model.layers = 2;
  c.model.heads = 2;
  c.model.ffn = 96;
  c.model.vocab_size = kVocab;
  c.model.moe = {.experts = 6,
                 .top_k = 2,
                 .shared = 1,
                 .expert_ffn = 64,
                 .first_dense_layers = 1,
                 .router = {}};
  c.precision.recipe = recipe;
  c.precision.bf16_last_layers = 0;
  c.run.batch_tokens = kMicroBatch * kSequence;
  c.run.sequence = kSequence;
  c.run.micro_batch = kMicroBatch;
  c.eval.tokens = 30 * kSequence;         // seven micro-batches and half of one
  c.eval.source_tokens = 10 * kSequence;  // of b: half of one
  c.eval.core = CoreEvalConfig{.bundle = files.folder / "bundle", .tasks = {}};
  c.eval.samples = SamplesConfig{.prompts = {"the", "a", "on", "in", ""}, .file = "", .tokens = 12};
  return c;
}

// A model with seeded weights and its evaluators. ranks: who share them; null: each alone.
struct Place {
  TrainingMemory memory;
  std::string run;
  RunEvaluators evaluators;
  Exec on;

  Place(const Config& c, const Files& files, const std::string& run_, Group* ranks)
      : memory(c, resolve_recipe(c.precision.recipe), {.mask_id = kEnd}),
        run(run_),
        evaluators(c, files.data, run, "cpu", ranks) {
    if (run.find("/dev/null") != 0) make_folders(run);
    evaluators.plan(memory.plan, *memory.model);
    memory.allocate(c, resolve_recipe(c.precision.recipe));
    memory.bind(on);
    memory.model->initialise(on, 5);
    memory.model->refresh_weights(on);
  }
  std::optional<Evaluation> evaluate(Evaluator& evaluator, int64_t step, EvalWatch watch = {}) {
    return evaluator.evaluate(on, *memory.model, {.steps_done = step}, watch);
  }
};

std::string bits(const Evaluation& evaluation) {
  std::string text = evaluation.text + "\n";
  for (const EvalResult& r : evaluation.results) {
    text += r.task + " " + r.metric + strprintf(" %a of %ld\n", r.value, long(r.n));
  }
  return text;
}

// The report of CORE without names of folders and times.
std::string report(const std::string& run) {
  ordered_json j = ordered_json::parse(read_file(run + "/evals/step-00000007.json"));
  j.erase("checkpoint");
  for (const char* key : {"checkpoint", "seconds"}) j["core"].erase(key);
  for (ordered_json& task : j["core"]["tasks"]) task.erase("seconds");
  return j.dump();
}

void expect_same_on_all(Group& ranks, const std::string& mine, const std::string& what) {
  for (const std::string& theirs : gather_texts(ranks, mine)) {
    expect(theirs == mine, what + " differs between ranks");
  }
}

void check_equal(Group& ranks, Place& alone, Place& shared, const std::string& recipe) {
  const uint64_t calls = ranks.calls();
  const std::vector<Evaluator*> ours = alone.evaluators.all(), theirs = shared.evaluators.all();
  expect(ours.size() == 5 && theirs.size() == 5, "validation, two sources, samples, CORE");
  std::string all;
  for (const int64_t step : {3, 7}) {  // of samples.jsonl, the second keeps the first's lines
    for (size_t i = 0; i < ours.size(); ++i) {
      const std::string want = bits(*alone.evaluate(*ours[i], step)),
                        got = bits(*shared.evaluate(*theirs[i], step));
      expect(want == got, recipe + ", " + ours[i]->task() + ": " + got + "alone: " + want);
      all += got;
    }
  }
  expect((ranks.calls() == calls) == (ranks.size() == 1), "one rank makes no call");
  expect_same_on_all(ranks, all, recipe);
  const Batch first = shared.evaluators.validation.first();
  expect(first.token.dim[0] == kMicroBatch * kSequence, "every rank has the first micro-batch");
  if (ranks.rank() == 0) {
    expect(report(alone.run) == report(shared.run), recipe + ": the report of CORE");
    const std::string texts = read_file(alone.run + "/samples.jsonl");
    expect(std::count(texts.begin(), texts.end(), '\n') == 10, "five texts a step: " + texts);
    expect(texts == read_file(shared.run + "/samples.jsonl"), recipe + ": samples.jsonl");
  } else {
    expect(std::filesystem::is_empty(shared.run), "only rank 0 writes");
  }
}

// What one rank alone is told or meets ends an evaluation on all, and the next one is right.
void check_ends(Group& ranks, Place& shared, const std::string& want) {
  const int last = ranks.size() - 1;
  const auto asked_at = [&](int number, bool fails) {
    return EvalWatch{.progress = {},
                     .interrupted = [&ranks, last, number, fails, asked = 0]() mutable {
                       if (ranks.rank() != last || ++asked < number) return false;
                       if (fails) throw UserError("no more paper", "buy some");
                       return true;
                     }};
  };
  for (Evaluator* evaluator : {static_cast<Evaluator*>(&*shared.evaluators.core),
                               static_cast<Evaluator*>(&*shared.evaluators.samples)}) {
    const uint64_t calls = ranks.calls();
    expect(!shared.evaluate(*evaluator, 7, asked_at(1, false)), "interrupted on one rank");
    expect(ranks.size() == 1 || ranks.calls() == calls + 2, "they agree after the first part");
    std::string said;
    try {
      shared.evaluate(*evaluator, 7, asked_at(1, true));
    } catch (const UserError& error) {
      said = error.what() + std::string("; ") + error.hint();
    }
    const std::string where = ranks.size() > 1 ? strprintf("rank %d: ", last) : "";
    expect(said == where + "no more paper; buy some", "failed on one rank: " + said);
  }
  expect(bits(*shared.evaluate(*shared.evaluators.core, 7)) == want, "CORE after it failed");
  expect_same_on_all(ranks, std::to_string(ranks.calls_hash()), "the sequence of calls");
}

// Rank 0 cannot write: no rank believes that the evaluation is done.
void check_no_folder(const Config& config, const Files& files, Group& ranks) {
  Place nowhere(config, files, "/dev/null/run", &ranks);
  for (Evaluator* evaluator : {static_cast<Evaluator*>(&*nowhere.evaluators.core),
                               static_cast<Evaluator*>(&*nowhere.evaluators.samples)}) {
    bool failed = false;
    try {
      nowhere.evaluate(*evaluator, 7);
    } catch (const UserError& error) {
      failed = std::string(error.what()).find("/dev/null/run") != std::string::npos;
    }
    expect(failed, "a file that cannot be written");
  }
}

int run() {
  const std::unique_ptr<World> world = join_world();
  const std::unique_ptr<Group> ranks = world->group(0);
  const Files files;
  for (const std::string recipe : {"fp32", "bf16", "nvfp4"}) {
    const Config config = config_of(recipe, files);
    Place alone(config, files, files.folder / ("alone-" + recipe), nullptr),
        shared(config, files, files.folder / ("shared-" + recipe), ranks.get());
    check_equal(*ranks, alone, shared, recipe);
    if (recipe != "bf16") continue;
    check_ends(*ranks, shared, bits(*alone.evaluate(*alone.evaluators.core, 7)));
    check_no_folder(config, files, *ranks);
  }
  if (ranks->rank() == 0) std::printf("evaluations of %d: ok\n", ranks->size());
  return 0;
}

}  // namespace
}  // namespace assay

int main() {
  try {
    return assay::run();
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
