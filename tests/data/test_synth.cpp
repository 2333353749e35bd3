#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/ngram.h"
#include "data/synth.h"
#include "data/synth_grammar.h"
#include "tests/catch.h"

namespace assay::test_synth {
namespace {

std::vector<std::string> stories(uint64_t seed, int count) {
  StoryGenerator generator(seed);
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back(generator.next());
  return list;
}

// Numbers words, punctuation marks and newlines in order of first appearance.
struct WordCodes {
  std::map<std::string, int32_t> code;
  std::vector<int32_t> operator()(const std::string& text) {
    std::vector<int32_t> codes;
    const auto put = [&](const std::string& w) {
      codes.push_back(code.emplace(w, static_cast<int32_t>(code.size())).first->second);
    };
    std::string word;
    for (const char c : text + "\n") {
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word += c;
        continue;
      }
      if (!word.empty()) put(word);
      word.clear();
      if (c != ' ') put(std::string(1, c));
    }
    return codes;
  }
};

}  // namespace

TEST_CASE("a story is a function of seed and number, the same on every machine") {
  const auto first = stories(1, 50);
  REQUIRE(first == stories(1, 50));
  REQUIRE(first[0] != stories(2, 1)[0]);
  REQUIRE(StoryGenerator(1, 7).next() == first[7]);
  REQUIRE(StoryGenerator(1, StoryGenerator::kFirstValidation).next() != first[0]);
  std::string all;
  for (const std::string& s : first) all += s;
  // The hash changes only if the grammar changes.
  REQUIRE(stream_id(all) == 9267564331914869925u);
}

TEST_CASE("stories are clean text: no markup, single spaces, capitals after full stops") {
  for (const std::string& s : stories(3, 4000)) {
    INFO(s);
    REQUIRE(s.size() > 200);
    REQUIRE(s.find_first_of("{}[]|#@~*^\x01") == std::string::npos);
    REQUIRE(s.find("  ") == std::string::npos);
    REQUIRE(
        std::all_of(s.begin(), s.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 127); }));
    REQUIRE(std::count(s.begin(), s.end(), '"') % 2 == 0);
    for (size_t i = 0; i + 2 < s.size(); ++i) {
      const bool ended = s[i] == '.' && (s[i + 1] == ' ' || s[i + 1] == '\n');
      if (ended) REQUIRE_FALSE(std::islower(static_cast<unsigned char>(s[i + 2])));
    }
    for (const char* wrong :
         {" a apple", " a old", " a owl", " a orange", " an red", " i ", " one foxes"}) {
      REQUIRE(s.find(wrong) == std::string::npos);
    }
  }
}

TEST_CASE("later sentences of a story depend on earlier ones") {
  const std::regex sum(
      R"(\w+ had (\w+) \w+(?: pen)?s\w*, and \w+ had (\w+)\. Together they had (\w+)\.)");
  const char* names[] = {"no",     "one",      "two",      "three",   "four",    "five",
                         "six",    "seven",    "eight",    "nine",    "ten",     "eleven",
                         "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"};
  std::map<std::string, int> value;
  for (int i = 0; i < 18; ++i) value[names[i]] = i;
  int sums = 0, songs = 0;
  for (const std::string& s : stories(4, 3000)) {
    std::smatch m;
    // std::regex is slow: it looks at the stories that have such a sentence.
    if (s.find("Together they had ") != s.npos && std::regex_search(s, m, sum)) {
      INFO(m.str());
      REQUIRE(value.at(m[1]) + value.at(m[2]) == value.at(m[3]));
      ++sums;
    }
    const size_t sung = s.find("\"Oh ");
    if (sung != s.npos) {
      const std::string verse = s.substr(sung, s.find_first_of(",", sung) - sung);
      REQUIRE(s.find(verse, sung + 1) != s.npos);
      ++songs;
    }
  }
  REQUIRE(sums > 10);
  REQUIRE(songs > 30);
}

TEST_CASE("towns and animals are the same in every seed") {
  std::map<std::string, std::set<std::string>> landmark;
  const std::regex known(R"(\b(\w+), the town with the ([a-z ]+)\b[.,])");
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const std::string& s : stories(seed, 2000)) {
      // std::regex is slow: it looks at each place where such a phrase may be.
      constexpr const char* kPhrase = ", the town with the ";
      for (size_t at = s.find(kPhrase); at != s.npos; at = s.find(kPhrase, at + 1)) {
        const size_t from = s.rfind(' ', at);
        const std::string place = s.substr(from == s.npos ? 0 : from, 150);
        std::smatch m;
        if (std::regex_search(place, m, known)) landmark[m[1]].insert(m[2]);
      }
    }
  }
  REQUIRE(landmark.size() > 50);
  for (const auto& [town, marks] : landmark) {
    INFO(town);
    REQUIRE(marks.size() == 1);
  }
}

TEST_CASE("three megabytes: many words, no story twice, few sentences twice") {
  std::set<std::string> seen, words, sentences;
  int64_t bytes = 0, sentence_count = 0;
  StoryGenerator generator(5);
  while (bytes < 3'000'000) {
    const std::string s = generator.next();
    bytes += static_cast<int64_t>(s.size()) + 1;
    REQUIRE(seen.insert(s).second);
    std::string word, sentence;
    for (const char c : s + "\n") {
      sentence += c;
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        words.insert(word);
        word.clear();
      }
      if (c == '.' || c == '!' || c == '?' || c == '\n') {
        if (sentence.size() > 4) {
          sentences.insert(sentence);
          ++sentence_count;
        }
        sentence.clear();
      }
    }
  }
  REQUIRE(words.size() > 1200);
  REQUIRE(words.size() < 2500);
  REQUIRE(static_cast<double>(sentences.size()) > 0.7 * static_cast<double>(sentence_count));
}

TEST_CASE("context lowers the loss: five words of history are worth much more than two") {
  WordCodes codes;
  std::string train, val;
  for (const std::string& s : stories(6, 6000)) train += s + "\n";
  StoryGenerator unseen(6, StoryGenerator::kFirstValidation);
  for (int i = 0; i < 300; ++i) val += unseen.next() + "\n";
  const std::vector<int32_t> t = codes(train), v = codes(val);
  const NgramModel model(5, static_cast<int64_t>(codes.code.size()),
                         {t.data(), {int64_t(t.size())}});
  const auto nats = model.losses({v.data(), {int64_t(v.size())}});
  REQUIRE(nats[0] > 5.0);
  REQUIRE(nats[1] < nats[0] - 1.0);
  REQUIRE(nats[4] < nats[1] - 0.3);
}

}  // namespace assay::test_synth
