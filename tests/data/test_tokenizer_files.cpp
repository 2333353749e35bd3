#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/random.h"
#include "data/bpe_train.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/temp_folder.h"
#include "tests/data/test_data.h"

namespace assay::test_tokenizer_files {
namespace {

using nlohmann::json;

Tokenizer small_tokenizer() {
  PieceCounter pieces;
  pieces.add(
      "the cat and the hat # # ## ## sat on the mat \xC3\xA9\xC3\xA9 \xC3\xA9\xC3\xA9 1122 1122");
  return train_bpe(pieces, 290);
}

TEST_CASE("tokenizer.json and the GPT-2 files round-trip") {
  const TempFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  write_tokenizer_json(tokenizer, folder / "tokenizer.json");
  write_gpt2_files(tokenizer, folder / "gpt2");
  for (const std::string& path :
       {folder / "tokenizer.json", folder.path(), folder / "gpt2", folder / "gpt2/vocab.json"}) {
    INFO(path);
    const Tokenizer again = read_tokenizer(path);
    REQUIRE(again.vocabulary().bytes == tokenizer.vocabulary().bytes);
    REQUIRE(again.vocabulary().merges == tokenizer.vocabulary().merges);
    REQUIRE(again.vocabulary().special == tokenizer.vocabulary().special);
    REQUIRE(tokenizer_hash(again) == tokenizer_hash(tokenizer));
  }
  REQUIRE(read_file(folder / "tokenizer.json") == tokenizer_json(tokenizer));
}

TEST_CASE("the form that begins texts with <|endoftext|> is the same tokenizer") {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = tokenizer_json_with_begin(tokenizer);
  json file = json::parse(text);
  const json post = file["post_processor"];
  REQUIRE(post["type"] == "TemplateProcessing");
  REQUIRE(post["single"][0]["SpecialToken"]["id"] == std::string(kEndOfText));
  REQUIRE(post["single"][1]["Sequence"]["id"] == "A");
  REQUIRE(post["special_tokens"][std::string(kEndOfText)]["ids"] == json::array({tokenizer.eot()}));
  REQUIRE(tokenizer_hash(parse_tokenizer_json(text, "again")) == tokenizer_hash(tokenizer));
  // The form that is hashed has no post-processor, as before.
  const json plain = json::parse(tokenizer_json(tokenizer));
  REQUIRE(plain["post_processor"].is_null());
  file["post_processor"] = nullptr;
  REQUIRE(file == plain);
}

TEST_CASE("GPT-2's own files round-trip through tokenizer.json") {
  const std::string folder = test_data("gpt2");
  if (folder.empty()) return;
  const TempFolder made;
  const Tokenizer tokenizer = read_tokenizer(folder);
  const Tokenizer again = parse_tokenizer_json(tokenizer_json(tokenizer), "again");
  REQUIRE(again.vocabulary().bytes == tokenizer.vocabulary().bytes);
  write_gpt2_files(again, made.path());
  REQUIRE(read_file(made / "merges.txt") == read_file(folder + "/merges.txt"));
  REQUIRE(json::parse(read_file(made / "vocab.json")) ==
          json::parse(read_file(folder + "/vocab.json")));
}

TEST_CASE("other valid forms of tokenizer.json are read") {
  const Tokenizer tokenizer = small_tokenizer();
  json file = json::parse(tokenizer_json(tokenizer));
  json pairs = json::array();
  for (const json& merge : file["model"]["merges"]) {
    const std::string text = merge;
    pairs.push_back({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
  }
  file["model"]["merges"] = pairs;
  file["model"].erase("type");
  file["model"]["vocab"].erase("<|endoftext|>");  // only in added_tokens
  const Tokenizer again = parse_tokenizer_json(file.dump(), "pairs");
  REQUIRE(tokenizer_json(again) == tokenizer_json(tokenizer));
}

TEST_CASE("a token with two ids in the text is refused") {
  std::string text = tokenizer_json(small_tokenizer());
  const std::string vocab = "\"vocab\": {";
  REQUIRE(text.find(vocab) != std::string::npos);
  text.insert(text.find(vocab) + vocab.size(), "\"a\": 3, ");
  expect_error([&] { parse_tokenizer_json(text, "t.json"); },
               "t.json: the key \"a\" is there twice");
}

TEST_CASE("tokenizers that are damaged or of another kind are refused") {
  const json good = json::parse(tokenizer_json(small_tokenizer()));
  struct Row {
    const char* name;
    std::function<void(json&)> damage;
    const char* says;
  };
  const Row rows[] = {
      {"no model", [](json& f) { f.erase("model"); }, "model.type is null, with merges absent"},
      {"WordPiece", [](json& f) { f["model"]["type"] = "WordPiece"; }, "\"WordPiece\""},
      {"a list", [](json& f) { f = json::array(); }, "merges absent"},
      {"normalizer", [](json& f) { f["normalizer"]["type"] = "NFC"; }, "file.normalizer"},
      {"other split", [](json& f) { f["pre_tokenizer"]["type"] = "Split"; }, "pre_tokenizer"},
      {"no split", [](json& f) { f["pre_tokenizer"] = nullptr; }, "pre_tokenizer"},
      {"no regex", [](json& f) { f["pre_tokenizer"]["use_regex"] = false; }, "pre_tokenizer"},
      {"prefix space", [](json& f) { f["pre_tokenizer"]["add_prefix_space"] = true; },
       "prefix_space"},
      {"dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout is 0.1"},
      {"byte fallback", [](json& f) { f["model"]["byte_fallback"] = true; }, "byte_fallback"},
      {"vocab a list", [](json& f) { f["model"]["vocab"] = 12; }, "is not an object"},
      {"id a string", [](json& f) { f["model"]["vocab"]["!"] = "0"; }, "the id of ! is \"0\""},
      {"id negative", [](json& f) { f["model"]["vocab"]["!"] = -1; }, "is -1"},
      {"id huge", [](json& f) { f["model"]["vocab"]["!"] = 1e12; }, "the id of !"},
      {"id enormous", [](json& f) { f["model"]["vocab"]["!"] = 1000000000000; },
       "is 1000000000000"},
      {"id beyond what is listed", [](json& f) { f["model"]["vocab"]["!"] = 16777214; },
       "is 16777214, expected a whole number from 0 to"},
      {"id twice", [](json& f) { f["model"]["vocab"]["!"] = 1; }, "id 1 is"},
      {"empty token", [](json& f) { f["model"]["vocab"][""] = 4000; }, "is empty"},
      {"a space", [](json& f) { f["model"]["vocab"]["a b"] = 4000; }, "represents no byte"},
      {"byte missing", [](json& f) { f["model"]["vocab"].erase("!"); }, "no token for byte 0x21"},
      {"merge of unknown", [](json& f) { f["model"]["merges"][0] = "qq z"; }, "merge 0 (qq z)"},
      {"merge to unknown", [](json& f) { f["model"]["merges"][0] = "q z"; }, "is not a token"},
      {"merge of one", [](json& f) { f["model"]["merges"][0] = "qz"; }, "not \"qz\""},
      {"merge a number", [](json& f) { f["model"]["merges"][0] = 3; }, "neither"},
      {"added without content", [](json& f) { f["added_tokens"][0].erase("content"); },
       "no content"},
      {"added, and found in text", [](json& f) { f["added_tokens"][0]["special"] = false; },
       "special: false"},
      {"added with an id that is not the vocabulary's",
       [](json& f) { f["added_tokens"][0]["id"] = 528; }, "<|endoftext|> has two ids, "},
      {"added, and takes blanks", [](json& f) { f["added_tokens"][0]["lstrip"] = true; },
       "\"<|endoftext|>\" with lstrip: true"},
      {"added, and found as a word", [](json& f) { f["added_tokens"][0]["single_word"] = true; },
       "single_word: true"},
      {"added without id", [](json& f) { f["added_tokens"][0].erase("id"); }, "is null"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    json file = good;
    row.damage(file);
    expect_error([&] { parse_tokenizer_json(file.dump(), "t.json"); }, row.says);
  }
  json silent = good;
  silent["added_tokens"][0].erase("special");
  REQUIRE(parse_tokenizer_json(silent.dump(), "t.json").eot() == small_tokenizer().eot());
  expect_error([] { parse_tokenizer_json("", "t.json"); }, "t.json: not JSON");
  expect_error([] { parse_tokenizer_json("{\"model\"", "t.json"); }, "t.json: not JSON");
  expect_error([] { parse_tokenizer_json(std::string(100000, '['), "t.json"); }, "not JSON");

  json without_eot = good;
  without_eot["added_tokens"] = json::array();
  without_eot["model"]["vocab"].erase("<|endoftext|>");
  expect_error([&] { parse_tokenizer_json(without_eot.dump(), "t").eot(); }, "no special token");
}

TEST_CASE("settings beside a tokenizer that change its ids are refused") {
  const Tokenizer tokenizer = small_tokenizer();
  const int32_t eot = tokenizer.eot();
  const json added = {{"content", "<|endoftext|>"}, {"special", true}, {"normalized", true}};
  const auto with = [&](const char* key, const json& value) {
    json one = added;
    one[key] = value;
    return json{{"added_tokens_decoder", {{std::to_string(eot), one}}}};
  };
  struct Row {
    const char* file;
    json content;
    const char* says;  // "": accepted
  };
  const Row both[] = {
      {"tokenizer_config.json", {{"add_prefix_space", false}, {"model_max_length", 1024}}, ""},
      {"tokenizer_config.json", with("special", true), ""},
      {"tokenizer_config.json", {{"add_prefix_space", true}}, "add_prefix_space is true"},
      {"tokenizer_config.json", with("special", false), "special: false"},
      {"tokenizer_config.json", with("rstrip", true), "\"<|endoftext|>\" has rstrip: true"},
      {"tokenizer_config.json", with("content", "<pad>"),
       "it adds the token \"<pad>\" with the id"},
      {"tokenizer_config.json", {{"added_tokens_decoder", {{"x", added}}}}, "the id \"x\""},
      {"tokenizer_config.json", {{"added_tokens_decoder", 3}}, "is not an object"},
      {"tokenizer_config.json", json::array(), "is not a JSON object"},
      {"added_tokens.json", {{"<|endoftext|>", eot}}, ""},
      {"added_tokens.json", {{"<|endoftext|>", eot + 1}}, "which is not a special token of"},
      {"added_tokens.json", {{"<tool>", tokenizer.vocab_size()}}, "it adds the token \"<tool>\""},
      {"added_tokens.json", {{"!", 0}}, "it adds the token \"!\" with the id 0"},
  };
  const Row pair[] = {
      {"tokenizer_config.json", {{"tokenizer_class", "GPT2TokenizerFast"}}, ""},
      {"tokenizer_config.json", {{"tokenizer_class", "Qwen2Tokenizer"}}, "is Qwen2Tokenizer"},
  };
  const auto check = [&](const Row& row, bool is_pair) {
    INFO(row.file << ": " << row.content.dump() << (is_pair ? ", beside vocab.json" : ""));
    const TempFolder folder;
    is_pair ? write_gpt2_files(tokenizer, folder.path())
            : write_tokenizer_json(tokenizer, folder / "tokenizer.json");
    write_file_atomic(folder / row.file, row.content.dump());
    if (std::string(row.says).empty()) {
      REQUIRE(tokenizer_hash(read_tokenizer(folder.path())) == tokenizer_hash(tokenizer));
    } else {
      expect_error([&] { read_tokenizer(folder.path()); }, row.says);
    }
  };
  for (const Row& row : both) {
    check(row, false);
    check(row, true);
  }
  for (const Row& row : pair) check(row, true);
  check({"tokenizer_config.json", {{"tokenizer_class", "Qwen2Tokenizer"}}, ""}, false);
}

TEST_CASE("paths without a tokenizer are refused") {
  const TempFolder folder;
  expect_error([&] { read_tokenizer(folder / "missing"); }, "No such file");
  expect_error([&] { read_tokenizer(folder.path()); }, "holds neither");
  write_file_atomic(folder / "vocab.json", "{}");
  expect_error([&] { read_tokenizer(folder.path()); }, "merges.txt");
  write_file_atomic(folder / "merges.txt", "#version: 0.2\na b\n");
  expect_error([&] { read_tokenizer(folder.path()); }, "names an unknown token");
  const FileSizeLimit full(512);
  expect_error([&] { write_tokenizer_json(small_tokenizer(), folder / "t.json"); },
               "File too large");
  REQUIRE(!std::filesystem::exists(folder / "t.json"));
}

TEST_CASE("damaged bytes are read or refused without a crash") {
  const std::string good = tokenizer_json(small_tokenizer());
  RandomSequence random({.seed = 11});
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    const uint32_t changes = 1 + random.below(3);
    for (uint32_t i = 0; i < changes; ++i) {
      const size_t at = random.below(static_cast<uint32_t>(text.size()));
      const uint32_t kind = random.below(4);
      if (kind == 0) text[at] = static_cast<char>(random.next());
      if (kind == 1) text.erase(at, 1 + random.below(20));
      if (kind == 2) text.insert(at, text.substr(random.below(static_cast<uint32_t>(at) + 1), 30));
      if (kind == 3) text[at] = "{}[]\",:0 "[random.below(9)];
    }
    try {
      const Tokenizer tokenizer = parse_tokenizer_json(text, "fuzz");
      const std::string bytes = "the cat \xFF # 1122";
      REQUIRE(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
    } catch (const UserError&) {
      ++refused;
    }
  }
  REQUIRE(refused > 300);
  REQUIRE(refused < 3000);
}

}  // namespace
}  // namespace assay::test_tokenizer_files
