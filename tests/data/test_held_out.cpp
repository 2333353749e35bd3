#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/documents.h"
#include "data/held_out.h"
#include "data/prepare.h"
#include "tests/catch.h"
#include "tests/data/cat_corpus.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed.h"
#include "tests/data/shard_files.h"
#include "tests/data/small_corpus.h"
#include "tests/data/temp_folder.h"

namespace assay::test_held_out {
namespace {

using nlohmann::json;
using Corpus = CatCorpus;
using Texts = std::vector<std::string>;

TEST_CASE("separate validation text, and duplicates") {
  Corpus corpus;
  write_file_plain(corpus.folder / "val.txt", "on the mat");
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b<|endoftext|> a<|endoftext|>c");
  corpus.config.val_inputs = {corpus.folder / "val.txt"};
  corpus.config.duplicates = Duplicates::kDrop;
  const PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.duplicate_documents == 1);
  const std::string out = corpus.config.corpus.folder;
  REQUIRE(decoded(out + "/cats_val_000000.bin", small_tokenizer()) == Texts{"on the mat"});
  REQUIRE(decoded(out + "/cats_train_000001.bin", small_tokenizer()) == Texts{"a", "b", "c"});
}

TEST_CASE("a validation file that is trained on too is named") {
  Corpus corpus;
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b");
  write_file_plain(corpus.folder / "copy.txt", "a<|endoftext|>b");
  write_file_plain(corpus.folder / "val.txt", "on the mat");
  corpus.config.val_inputs = {corpus.folder / "val.txt"};
  corpus.config.corpus.existing = Existing::kReplace;
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_files == 0);
  corpus.config.val_inputs.push_back(corpus.folder / "copy.txt");
  const InputNotes notes = prepare(small_tokenizer(), corpus.config).notes;
  REQUIRE(notes.trained_val_files == 1);
  REQUIRE(notes.first_trained_val ==
          (corpus.folder / "copy.txt") + ", as " + (corpus.folder / "in.txt"));
  corpus.config.duplicates = Duplicates::kDrop;  // then the copies are not validated on
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_files == 0);
}

TEST_CASE("validation documents that are trained on too are counted") {
  Corpus corpus;
  corpus.config.corpus.existing = Existing::kReplace;
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b<|endoftext|>c");
  write_file_plain(corpus.folder / "val.jsonl", "{\"text\": \" b\"}\n{\"text\": \"d\"}\n");
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.val_documents == 0);
  corpus.config.val_inputs = {corpus.folder / "val.jsonl"};
  const PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.notes.trained_val_files == 0);
  REQUIRE(result.notes.trained_val_documents == 1);
  REQUIRE(result.notes.val_documents == 2);
  const std::string val = corpus.config.corpus.folder + "/cats_val_000000.bin";
  REQUIRE(decoded(val, small_tokenizer()) == Texts{"b", "d"});
  corpus.config.duplicates = Duplicates::kDrop;  // then the copies are not validated on
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_documents == 0);
  REQUIRE(decoded(val, small_tokenizer()) == Texts{"d"});
}

TEST_CASE("documents in parts are not compared, and are counted where duplicates are dropped") {
  Corpus corpus;
  corpus.config.corpus.existing = Existing::kReplace;
  std::string text;
  while (text.size() < (3 << 20)) text += " the cat";
  write_file_plain(corpus.folder / "in.txt", text + "<|endoftext|>a<|endoftext|>" + text);
  write_file_plain(corpus.folder / "val.txt", text + "<|endoftext|>on the mat");
  corpus.config.val_inputs = {corpus.folder / "val.txt"};
  REQUIRE(prepare(small_tokenizer(), corpus.config).notes.trained_val_documents == 1);
  corpus.config.documents.part_bytes = 1 << 20;
  PrepareResult result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.notes.trained_val_documents == 0);
  REQUIRE(result.notes.too_long == 0);
  corpus.config.duplicates = Duplicates::kDrop;
  result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.duplicate_documents == 0);
  REQUIRE(result.notes.too_long == 3);
  REQUIRE(result.notes.first_too_long == corpus.folder / "in.txt");
  corpus.config.documents.part_bytes = 64 << 20;
  result = prepare(small_tokenizer(), corpus.config);
  REQUIRE(result.duplicate_documents == 2);
  REQUIRE(result.notes.too_long == 0);
}

TEST_CASE("validation text of which every document is trained on") {
  Corpus corpus;
  const auto says = [&](const std::string& error) {
    expect_error([&] { prepare(small_tokenizer(), corpus.config); }, error);
  };
  write_file_plain(corpus.folder / "in.txt", "a<|endoftext|>b<|endoftext|>c");
  write_file_plain(corpus.folder / "val.txt", "b<|endoftext|> <|endoftext|>a\n<|endoftext|>b");
  write_file_plain(corpus.folder / "more.txt", "c");
  corpus.config.duplicates = Duplicates::kDrop;
  const std::string val = corpus.folder / "val.txt", more = corpus.folder / "more.txt";
  corpus.config.val_inputs = {val};
  says("all 3 documents of " + val + " are copies of training documents");
  corpus.config.val_inputs = {val, more};
  says("all 4 documents of " + val + " and 1 more are copies of training documents");
  corpus.config.val_inputs = {more};
  says("the only document of " + more + " is a copy of a training document");
  write_file_plain(more, " ");
  says("no document in " + more);
}

// The documents held out at `share` when the files are prepared.
std::set<std::string> held_out(const std::vector<std::string>& inputs, const TempFolder& folder,
                               double share) {
  const Manifest manifest =
      prepare(small_tokenizer(),
              {.inputs = inputs,
               .corpus = {.folder = folder / "out", .name = "hash", .existing = Existing::kReplace},
               .val_share = share,
               .threads = 2})
          .manifest;
  const Texts val = decoded(folder / "out/hash_val_000000.bin", small_tokenizer());
  const Texts train = decoded(folder / "out/hash_train_000001.bin", small_tokenizer());
  const std::set<std::string> out(val.begin(), val.end());
  for (const std::string& text : train) REQUIRE(out.count(text) == 0);
  REQUIRE(manifest.documents("val") == static_cast<int64_t>(val.size()));
  REQUIRE(manifest.validation == strprintf("share %g by hash", share));
  return out;
}

TEST_CASE("documents are held out by content, not by position") {
  const TempFolder folder;
  std::string text, backwards, doubled, cut[2];
  for (int i = 0; i < 3000; ++i) {
    const std::string story = "the cat " + std::to_string(i);
    text += story + "<|endoftext|>";
    backwards = json({{"text", "\n " + story + "\t"}}).dump() + "\n" + backwards;
    doubled += story + "<|endoftext|>\n" + story + "<|endoftext|>";
    cut[i % 7 == 0] += story + "\n\n<|endoftext|>\n";
  }
  write_file_plain(folder / "a.txt", text);
  write_file_plain(folder / "b.jsonl.gz", gzip(backwards));
  write_file_plain(folder / "c.txt", doubled);
  write_file_plain(folder / "d.txt", cut[0]);
  write_file_plain(folder / "e.txt", cut[1]);
  const std::set<std::string> tenth = held_out({folder / "a.txt"}, folder, 0.1);
  REQUIRE(tenth.size() > 240);
  REQUIRE(tenth.size() < 360);
  REQUIRE(held_out({folder / "b.jsonl.gz"}, folder, 0.1) == tenth);
  REQUIRE(held_out({folder / "c.txt"}, folder, 0.1) == tenth);
  REQUIRE(held_out({folder / "e.txt", folder / "d.txt"}, folder, 0.1) == tenth);
  for (const std::string& story : held_out({folder / "a.txt"}, folder, 0.02))
    REQUIRE(tenth.count(story) == 1);
  // The rule, checked with `printf "the cat" | sha256sum`, so that other programs can compute which
  // side a document is on.
  REQUIRE(document_number("\n the cat\t") ==
          static_cast<double>(0x70a48cc5ea382e9bull >> 11) * 0x1p-53);
}

TEST_CASE("a document is on one side whatever its length and wherever its parts are cut") {
  const TempFolder folder;
  RandomSequence random({.seed = 9});
  int held = 0;
  for (int round = 0; round < 12; ++round) {
    std::string text = std::string(random.below(5000), ' ') + std::to_string(round);
    while (text.size() < (3 << 20)) text += random.below(9) ? " the cat" : "\n 12";
    // A stretch without text to cut in.
    if (round % 3 == 0) text.insert(10000, std::string(2 << 20, '\n'));
    std::set<bool> sides;
    for (const size_t before : {0u, 1000u, 700'000u}) {
      write_file_plain(folder / "a.txt", std::string(before, 'x') + "<|endoftext|>" + text);
      for (const size_t part_bytes : {size_t{1} << 20, size_t{2} << 20, size_t{64} << 20}) {
        DocumentReader reader({folder / "a.txt"}, {.part_bytes = part_bytes});
        RawDocument raw;
        REQUIRE(reader.next(raw));
        REQUIRE(reader.next(raw));
        REQUIRE(raw.begins);
        REQUIRE(raw.ends == (part_bytes > text.size()));
        sides.insert(document_number(document_text(raw, {})) < 0.5);
      }
    }
    REQUIRE(sides.size() == 1);
    held += *sides.begin();
  }
  REQUIRE(held > 0);
  REQUIRE(held < 12);
}

}  // namespace
}  // namespace assay::test_held_out
