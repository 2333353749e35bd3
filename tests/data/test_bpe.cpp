#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "base/random.h"
#include "data/bpe.h"
#include "data/bpe_train.h"
#include "data/tokenizer_files.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_data.h"

namespace assay::test_bpe {
namespace {

using nlohmann::json;

Tokenizer trained(const std::string& text, int64_t vocab_size) {
  PieceCounter pieces;
  pieces.add(text);
  return train_bpe(pieces, vocab_size);
}

std::string story_text() {
  RandomSequence random({.seed = 3});
  const char* words[] = {"the ",
                         "cat ",
                         "sat ",
                         "on ",
                         "a ",
                         "mat",
                         ". ",
                         "\n",
                         "42",
                         "don't ",
                         "\xC3\xA9t\xC3\xA9 ",
                         "\xE6\x97\xA5\xE6\x9C\xAC",
                         "  ",
                         "cats ",
                         "sitting "};
  std::string text;
  for (int i = 0; i < 20000; ++i) text += words[random.below(std::size(words))];
  return text;
}

std::vector<std::string> pieces_of(std::string_view text) {
  PreSplit split;
  split.start(text);
  std::vector<std::string> pieces;
  for (std::string_view piece; split.next(piece);) pieces.emplace_back(piece);
  return pieces;
}

TEST_CASE("the pre-split") {
  // The expected pieces are separated by bars.
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"Hello world", "Hello| world"},
      {"we're I'LL he'd've", "we|'re| I|'|LL| he|'d|'ve"},
      {"a  b\n\n c", "a| | b|\n\n| c"},
      {"a \n", "a| \n"},
      {"x\ty", "x|\t|y"},
      {" 123abc!?", " 123|abc|!?"},
      {"\xC2\xA0x", "\xC2\xA0|x"},          // a no-break space is space, but not " ?"
      {"a\x1C", "a|\x1C"},                  // 0x1C is not a space ...
      {"!\x1C", "!\x1C"},                   // ... it joins other characters
      {"!\xE2\x80\x8B", "!\xE2\x80\x8B"},   // so does U+200B
      {"e\xCC\x81", "e|\xCC\x81"},          // a combining mark is not a letter
      {"ab\xFF\xFEyz", "ab|\xFF|\xFE|yz"},  // bytes that are not UTF-8
      {"\xE6\x97", "\xE6|\x97"},            // a truncated character
      {"\xED\xA0\x80", "\xED|\xA0|\x80"},   // a surrogate
      {"\xC0\xAF \xF4\x90\x80\x80", "\xC0|\xAF| |\xF4|\x90|\x80|\x80"},
  };
  for (const auto& [text, want] : cases) {
    INFO(text);
    std::string got;
    for (const std::string& piece : pieces_of(text)) got += (got.empty() ? "" : "|") + piece;
    REQUIRE(got == want);
  }
  REQUIRE(pieces_of(std::string_view("\0a", 2)).size() == 2);
}

TEST_CASE("UTF-8 validation agrees with a decoder by ranges") {
  // Every 1- to 3-byte sequence, and 4-byte ones at the borders: decode and encode again.
  const auto encode = [](uint32_t c) {
    std::string s;
    if (c < 0x80) {
      s += static_cast<char>(c);
    } else if (c < 0x800) {
      s += static_cast<char>(0xC0 | c >> 6);
    } else if (c < 0x10000) {
      s += static_cast<char>(0xE0 | c >> 12);
      s += static_cast<char>(0x80 | (c >> 6 & 63));
    } else {
      s += static_cast<char>(0xF0 | c >> 18);
      s += static_cast<char>(0x80 | (c >> 12 & 63));
      s += static_cast<char>(0x80 | (c >> 6 & 63));
    }
    if (c >= 0x80) s += static_cast<char>(0x80 | (c & 63));
    return s;
  };
  std::set<std::string> valid;
  for (uint32_t c = 0; c < 0x10000; ++c)
    if (c < 0xD800 || c > 0xDFFF) valid.insert(encode(c));
  int64_t wrong = 0;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string two = {static_cast<char>(a), static_cast<char>(b)};
      const bool prefix_two = valid.count(two) || (a < 0x80 && b < 0x80);
      wrong += (valid_utf8_prefix(two) == 2) != prefix_two;
      if (a < 0xE0 || a > 0xEF) continue;
      for (int c = 0; c < 256; ++c) {
        const std::string three = two + static_cast<char>(c);
        wrong += valid_utf8_prefix(three) != (valid.count(three) ? 3u : 0u);
      }
    }
  for (const uint32_t c : {0x10000u, 0x3FFFFu, 0x40000u, 0xFFFFFu, 0x100000u, 0x10FFFFu})
    wrong += valid_utf8_prefix(encode(c)) != 4;
  for (const uint32_t c : {0x110000u, 0x13FFFFu}) wrong += valid_utf8_prefix(encode(c)) != 0;
  wrong += valid_utf8_prefix("\xF0\x8F\xBF\xBF") != 0;  // overlong
  REQUIRE(wrong == 0);
}

// BPE by its definition: repeatedly join the adjacent pair with the lowest rank, leftmost first.
std::vector<int32_t> encode_by_definition(const Tokenizer& tokenizer, const std::string& text) {
  const Vocabulary& v = tokenizer.vocabulary();
  std::map<std::pair<int32_t, int32_t>, size_t> rank;
  for (size_t r = 0; r < v.merges.size(); ++r) rank[v.merges[r]] = r;
  std::map<std::string, int32_t> id_of;
  for (size_t i = 0; i + v.special.size() < v.bytes.size(); ++i)
    id_of[v.bytes[i]] = static_cast<int32_t>(i);
  std::vector<int32_t> all;
  for (const std::string& piece : pieces_of(text)) {
    std::vector<int32_t> ids;
    for (const char c : piece) ids.push_back(id_of.at(std::string(1, c)));
    for (;;) {
      size_t best = v.merges.size(), at = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = rank.find({ids[i], ids[i + 1]});
        if (found != rank.end() && found->second < best) best = found->second, at = i;
      }
      if (best == v.merges.size()) break;
      ids[at] = id_of.at(v.bytes[static_cast<size_t>(ids[at])] +
                         v.bytes[static_cast<size_t>(ids[at + 1])]);
      ids.erase(ids.begin() + static_cast<long>(at) + 1);
    }
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

TEST_CASE("every byte string decodes to itself, and encodes by the definition") {
  const std::string stories = story_text();
  const Tokenizer tokenizer = trained(stories, 400);
  Encoder encoder(tokenizer);
  RandomSequence random({.seed = 7});
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const uint32_t length = random.below(round % 100 == 0 ? 3000 : 60);
    while (text.size() < length) {
      const uint32_t kind = random.below(3);
      if (kind == 0) text += static_cast<char>(random.next());
      if (kind == 1) text += static_cast<char>('a' + random.below(4));
      if (kind == 2) text += stories.substr(random.below(70000), random.below(12));
    }
    std::vector<int32_t> tokens;
    encoder.encode(text, tokens);
    REQUIRE(tokenizer.decode(tokens) == text);
    REQUIRE(tokens == encode_by_definition(tokenizer, text));
    REQUIRE(tokens == tokenizer.encode(text));  // without a warm cache
  }
}

TEST_CASE("a megabyte without a space is encoded in reasonable time") {
  const Tokenizer tokenizer = trained(story_text(), 400);
  const std::string text(1 << 20, 'a');
  REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
  REQUIRE(tokenizer.decode(tokenizer.encode(std::string(1 << 20, ' '))).size() == 1 << 20);
}

TEST_CASE("text never encodes to special tokens") {
  const Tokenizer tokenizer = trained(story_text(), 400);
  REQUIRE(tokenizer.eot() == tokenizer.vocab_size() - 1);
  const std::vector<int32_t> tokens = tokenizer.encode("a<|endoftext|>b");
  REQUIRE(tokens.size() > 3);
  REQUIRE(std::count(tokens.begin(), tokens.end(), tokenizer.eot()) == 0);
  REQUIRE(tokenizer.decode({tokenizer.eot()}) == "<|endoftext|>");
  const std::vector<int32_t> lengths = tokenizer.token_lengths();
  REQUIRE(lengths.size() == static_cast<size_t>(tokenizer.vocab_size()));
  REQUIRE(lengths[static_cast<size_t>(tokenizer.eot())] == 0);
  int64_t bytes = 0;
  for (const int32_t id : tokens) bytes += lengths[static_cast<size_t>(id)];
  REQUIRE(bytes == 15);
}

TEST_CASE("ids without a token are known, special tokens are none of them") {
  REQUIRE(trained(story_text(), 400).unused_ids().empty());
  Vocabulary vocabulary = trained(story_text(), 300).vocabulary();
  const auto end = int32_t(vocabulary.bytes.size());
  vocabulary.bytes.insert(vocabulary.bytes.end(), {"", "<|other|>", ""});
  vocabulary.special.push_back(end + 1);
  REQUIRE(Tokenizer(vocabulary).unused_ids() == std::vector<int32_t>{end, end + 2});
}

TEST_CASE("training depends on the texts alone, and joins the most frequent pair first") {
  const std::string text = story_text();
  const Tokenizer whole = trained(text, 350);
  REQUIRE(whole.vocab_size() == 350);
  PieceCounter first, second;
  const size_t half = text.find(". the", text.size() / 2) + 1;  // between two pieces
  second.add(text.substr(half));
  first.add(text.substr(0, half));
  second.merge(first);
  REQUIRE(tokenizer_json(train_bpe(second, 350)) == tokenizer_json(whole));

  // By hand: ab 3 times, bc 2, " a" 2; then (ab, c) and (space, ab) tie at 2 and the smaller left
  // id wins.
  const Tokenizer small = trained("abc abc ab", 300);
  const Vocabulary& v = small.vocabulary();
  REQUIRE(v.bytes[256] == "ab");
  REQUIRE(v.bytes[257] == " ab");
  REQUIRE(small.vocab_size() == 259);  // no further pair occurs twice
  REQUIRE(v.bytes[258] == "<|endoftext|>");
}

TEST_CASE("training refuses impossible vocabularies and empty text") {
  expect_error([] { trained("a", 256); }, "a vocabulary of 256");
  expect_error([] { trained("", 300); }, "no text");
}

TEST_CASE("GPT-2 encodes every golden row") {
  const std::string folder = test_data("gpt2");
  if (folder.empty()) return;
  const Tokenizer tokenizer = read_tokenizer(folder);
  REQUIRE(tokenizer.vocab_size() == 50257);
  REQUIRE(tokenizer.eot() == 50256);
  Encoder encoder(tokenizer);
  std::istringstream rows(read_file(folder + "/golden_tokenization.jsonl"));
  int count = 0;
  for (std::string line; std::getline(rows, line); ++count) {
    const json row = json::parse(line);
    INFO(line.substr(0, 200));
    const std::string text = row["text"];
    std::vector<int32_t> tokens;
    encoder.encode(text, tokens);
    REQUIRE(tokens == row["ids"].get<std::vector<int32_t>>());
    REQUIRE(tokenizer.decode(tokens) == text);
  }
  REQUIRE(count >= 142);
}

TEST_CASE("the pre-split's classes are Unicode's, for characters PCRE2 knows") {
  const std::string path = test_data("gpt2/unicode_ranges.json");
  if (path.empty()) return;
  const json ranges = json::parse(read_file(path))["ranges"];
  std::vector<char> kind(0x110000, 'o');
  for (const char* name : {"L", "N", "s"})
    for (const json& range : ranges[name])
      for (int c = range[0]; c <= range[1]; ++c) kind[static_cast<size_t>(c)] = name[0];
  // Placed after "a", "1" and "!", a character joins at most one of the three pieces.
  const auto joins = [](const char* left, const std::string& c) {
    return pieces_of(left + c).size() == 1;
  };
  int64_t newer = 0;
  for (uint32_t c = 0x80; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string s;
    if (c < 0x800) {
      s += static_cast<char>(0xC0 | c >> 6);
    } else if (c < 0x10000) {
      s += static_cast<char>(0xE0 | c >> 12);
      s += static_cast<char>(0x80 | (c >> 6 & 63));
    } else {
      s += static_cast<char>(0xF0 | c >> 18);
      s += static_cast<char>(0x80 | (c >> 12 & 63));
      s += static_cast<char>(0x80 | (c >> 6 & 63));
    }
    s += static_cast<char>(0x80 | (c & 63));
    const char got = joins("a", s) ? 'L' : joins("1", s) ? 'N' : joins("!", s) ? 'o' : 's';
    if (got == kind[c]) continue;
    REQUIRE(got == 'o');  // only characters assigned by a later Unicode version
    ++newer;
  }
  // Letters and numbers new in Unicode 15 to 17; 0 if PCRE2 knows them.
  REQUIRE(newer < 20000);
  std::printf("pre-split: %ld letters and numbers newer than this PCRE2\n",
              static_cast<long>(newer));
}

}  // namespace
}  // namespace assay::test_bpe
