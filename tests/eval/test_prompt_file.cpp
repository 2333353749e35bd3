#include "base/check.h"
#include "eval/prompt_file.h"
#include "tests/catch.h"

namespace assay::test_prompt_file {

namespace {

using Tokens = std::vector<int32_t>;

// Id = byte below 256, then special tokens; one is the beginning of another.
constexpr int32_t kEot = 256, kPad = 257, kPadLong = 258;
Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.bytes.emplace_back(1, char(byte));
  for (const char* name : {"<|endoftext|>", "<|pad|>", "<|pad|>>"}) {
    vocabulary.special.push_back(int32_t(vocabulary.bytes.size()));
    vocabulary.bytes.emplace_back(name);
  }
  return Tokenizer(vocabulary);
}

Tokens encoded(const std::string& prompt, SpecialTokens special) {
  return encode_prompts({prompt}, byte_tokenizer(), special).front();
}

void require_refused(const std::string& text, PromptLines lines, const std::string& message) {
  try {
    parse_prompts(text, lines, "file");
    FAIL("not refused: " << text);
  } catch (const UserError& error) {
    REQUIRE(std::string(error.what()) == message);
  }
}

}  // namespace

TEST_CASE("an empty prompt is <|endoftext|> alone") {
  REQUIRE(encoded("", SpecialTokens::kAsText) == Tokens{kEot});
  REQUIRE(encoded("", SpecialTokens::kAsTokens) == Tokens{kEot});
}

TEST_CASE("a special token in a prompt is text unless it is asked for") {
  REQUIRE(encoded("a<|pad|>", SpecialTokens::kAsText).size() == 9);
  REQUIRE(encoded("a<|pad|>b", SpecialTokens::kAsTokens) == Tokens{kEot, 'a', kPad, 'b'});
  REQUIRE(encoded("<|pad|>><|pad|>", SpecialTokens::kAsTokens) == Tokens{kEot, kPadLong, kPad});
  REQUIRE(encoded("no <|token|>", SpecialTokens::kAsTokens) ==
          encoded("no <|token|>", SpecialTokens::kAsText));
}

TEST_CASE("a prompt that begins with the token <|endoftext|> gets no second one") {
  REQUIRE(encoded("<|endoftext|>", SpecialTokens::kAsTokens) == Tokens{kEot});
  REQUIRE(encoded("<|endoftext|>a<|endoftext|>", SpecialTokens::kAsTokens) ==
          Tokens{kEot, 'a', kEot});
  REQUIRE(encoded("<|endoftext|>", SpecialTokens::kAsText).size() == 14);
}

TEST_CASE("the first special token that is written in a text is found") {
  const Tokenizer tokenizer = byte_tokenizer();
  REQUIRE(special_token_in("a <|pad|>> b <|endoftext|>", tokenizer) == "<|pad|>>");
  REQUIRE(special_token_in("a <|pad> b", tokenizer).empty());
}

TEST_CASE("piped prompts are lines of text, or of JSON if the first line is an object") {
  const std::vector<std::string> prompts{"Once", "The end"};
  REQUIRE(parse_piped_prompts("Once\nThe end\r\n", "input") == prompts);
  REQUIRE(parse_piped_prompts("{\"prompt\": \"Once\"}\n{\"prompt\": \"The end\"}", "input") ==
          prompts);
  REQUIRE(parse_piped_prompts("{Once", "input").front() == "{Once");
  REQUIRE(parse_piped_prompts("{\"prompt\": \"\"}\n", "input") == std::vector<std::string>{""});
}

TEST_CASE("empty lines and a byte order mark are no prompts") {
  const std::vector<std::string> prompts{"Once", " The end"};
  REQUIRE(parse_prompts("\xef\xbb\xbfOnce\r\n\r\n\n The end\n\n", PromptLines::kText, "file") ==
          prompts);
  REQUIRE(parse_piped_prompts("\xef\xbb\xbf{\"prompt\": \"Once\"}\n\n{\"prompt\": \" The end\"}",
                              "input") == prompts);
  REQUIRE(parse_prompts("a\xef\xbb\xbf", PromptLines::kText, "file").front().size() == 4);
}

TEST_CASE("lines that are not prompts are refused with file and line") {
  require_refused("", PromptLines::kText, "file has no prompts");
  require_refused("\xef\xbb\xbf\r\n\n", PromptLines::kText, "file has no prompts");
  require_refused("{\"prompt\": \"a\"}\n{\"text\": \"b\"}", PromptLines::kJson,
                  "file:2: not a JSON object with a string \"prompt\"");
}

}  // namespace assay::test_prompt_file
