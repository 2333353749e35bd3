// JSON of any depth is read or refused, never followed to the end of the stack.
#include "base/file.h"
#include "data/documents.h"
#include "data/json_text.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_json_text {
namespace {

std::string nested(int depth, const char* open, const char* close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

}  // namespace

TEST_CASE("text is as deep as its brackets outside of strings") {
  REQUIRE_FALSE(json_is_too_deep(nested(kDeepestJson, "[", "]")));
  REQUIRE(json_is_too_deep(nested(kDeepestJson + 1, "[", "]")));
  REQUIRE(json_is_too_deep(nested(kDeepestJson + 1, "{\"a\": ", "}")));
  REQUIRE_FALSE(json_is_too_deep("\"" + std::string(1000, '[') + "\""));
  REQUIRE_FALSE(json_is_too_deep(R"("\\\"[" )" + std::string()));
  REQUIRE(json_is_too_deep(R"("\\" )" + std::string(1000, '{')));
  std::string flat = "[";
  for (int i = 0; i < 1000; ++i) flat += "[],";
  REQUIRE_FALSE(json_is_too_deep(flat + "[]]"));
}

TEST_CASE("a value that is too deep is as one that is not JSON") {
  const std::string deep = nested(30000, "[", "]");
  REQUIRE(json_of(deep).is_discarded());
  REQUIRE(json_of("[1, 2").is_discarded());
  REQUIRE(json_of("[1, 2]")[1] == 2);
  REQUIRE_THROWS_AS(json_or_throw(deep), nlohmann::json::exception);
  try {
    json_or_throw("{");
    FAIL("was read");
  } catch (const nlohmann::json::exception& error) {
    REQUIRE(json_problem(error).starts_with("parse error at line 1"));
  }
  REQUIRE_THROWS_WITH(json_or_throw<nlohmann::ordered_json>(deep),
                      Catch::Matchers::ContainsSubstring("nested more than 100 deep"));
  const TempFolder folder;
  write_file_atomic(folder / "deep.json", deep);
  REQUIRE(json_in_file(folder / "deep.json").is_discarded());
  REQUIRE(json_in_file(folder / "none.json").is_discarded());
  write_file_atomic(folder / "flat.json", "{\"a\": [1]}");
  REQUIRE(json_in_file(folder / "flat.json")["a"][0] == 1);
}

TEST_CASE("a value's text is UTF-8, on one line or with a line for each member") {
  nlohmann::ordered_json value;
  value["run"] = "mo\xFF";
  value["steps"] = {3, 4};
  REQUIRE(json_text(value) == "{\"run\":\"mo\xEF\xBF\xBD\",\"steps\":[3,4]}");
  REQUIRE(json_text(value["steps"], 2) == "[\n  3,\n  4\n]");
}

TEST_CASE("a text that a value does not have is empty") {
  const auto object = json_of(R"({"name": "moe", "steps": 3, "none": null})");
  REQUIRE(text_or_empty(object, "name") == "moe");
  for (const char* key : {"steps", "none", "absent"}) REQUIRE(text_or_empty(object, key).empty());
  for (const char* other : {"[]", "\"name\"", "7", "null", "{"}) {
    REQUIRE(text_or_empty(json_of<nlohmann::ordered_json>(other), "name").empty());
  }
}

TEST_CASE("a key that an object has twice is found at any depth") {
  REQUIRE(first_repeated_key(R"({"a": 1, "b": {"a": 2}, "a": 3, "b": 4})") == "a");
  REQUIRE(first_repeated_key(R"([{"x": 1}, {"x": [{"y": null, "z": "y", "y": true}]}])") == "y");
  REQUIRE(first_repeated_key("{\"a\": 1, \"\\u0061\": 2}") == "a");
  REQUIRE(first_repeated_key(R"({"": 1, "": 2})") == "");
  for (const std::string other :
       {R"({"a": {"a": 1}, "b": {"a": -1.5e3}})", R"(["a", "a", 7, -7])", R"("a")", "{}", "",
        R"({"a": 1, "a": 2)", R"({"a": 1, "a": 1e999})"}) {
    INFO(other);
    REQUIRE(!first_repeated_key(other));
  }
  const std::string deep = nested(kDeepestJson + 1, "{\"a\": 1, \"a\": ", "}");
  REQUIRE(!first_repeated_key(deep));
}

TEST_CASE("readers of files from elsewhere refuse deep ones") {
  const TempFolder folder;
  const std::string vocab = R"({"model": {"type": "BPE", "vocab": {"ly": )" +
                            nested(30000, "[", "]") + R"(}, "merges": []}})";
  write_file_atomic(folder / "tokenizer.json", vocab);
  expect_error([&] { read_tokenizer(folder / "tokenizer.json"); }, "nested more than 100 deep");
  write_file_atomic(folder / "lines.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"b\": " +
                                                nested(30000, "[", "]") + "}\n");
  expect_error(
      [&] {
        DocumentReader reader({folder / "lines.jsonl"}, {});
        for (RawDocument document; reader.next(document);) document_text(document, {});
      },
      "line 2 is nested more than 100 deep");
}

TEST_CASE("what has to be read as a whole is bounded") {
  const TempFolder folder;
  DocumentOptions options;
  options.part_bytes = 1 << 20;
  options.most_bytes = 4 << 20;
  for (const char* name : {"long.jsonl", "long.txt"}) {
    write_file_atomic(folder / name, std::string(9 << 20, 'x'));
    expect_error(
        [&] {
          DocumentReader reader({folder / name}, options);
          for (RawDocument document; reader.next(document);) {
          }
        },
        "has more than 4 MiB");
  }
  // Text that can be cut may be of any length.
  std::string words;
  while (words.size() < (9 << 20)) words += "word and word ";
  write_file_atomic(folder / "words.txt", words);
  DocumentReader reader({folder / "words.txt"}, options);
  size_t bytes = 0;
  for (RawDocument document; reader.next(document);) bytes += document.bytes.size();
  REQUIRE(bytes == words.size());
}

}  // namespace assay::test_json_text
