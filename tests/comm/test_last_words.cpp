// The file of last words: its lines, and what is left of a damaged one.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "comm/last_words.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_last_words {
namespace {

LastWord word(int rank, const std::string& what) {
  LastWord w;
  w.rank = rank;
  w.me = "node0" + std::to_string(rank) + ", pid 4242";
  w.what = what;
  w.step = 412;
  w.call = 1234567890123;
  w.age_s = 1.5;
  return w;
}

TEST_CASE("last words: there and back") {
  std::vector<LastWord> words = {word(0, "forward"), word(1, "saving"), word(2, "exchange")};
  words[1].slow = true;
  words[2].leaving = true;
  words.emplace_back().rank = 3;  // never heard
  const std::vector<LastWord> back = parse_last_words(format_last_words(words));
  REQUIRE(back.size() == 4);
  for (size_t r = 0; r < 4; ++r) {
    REQUIRE(back[r].rank == int(r));
    REQUIRE(back[r].me == words[r].me);
    REQUIRE(back[r].what == words[r].what);
    REQUIRE(back[r].step == words[r].step);
    REQUIRE(back[r].call == words[r].call);
    REQUIRE(back[r].slow == words[r].slow);
    REQUIRE(back[r].leaving == words[r].leaving);
    REQUIRE(back[r].age_s == words[r].age_s);
  }
  REQUIRE(said(back[0]) == "step 412, forward");
  REQUIRE(said(back[2]) == "the end of its run");
  REQUIRE(said(back[3]) == "nothing yet");
  REQUIRE(rank_name(back[3]) == "rank 3");
}

TEST_CASE("last words: texts cannot break a line") {
  const auto back = parse_last_words(format_last_words({word(0, "a\tb\nc\rd"), word(1, "e")}));
  REQUIRE(back.size() == 2);
  REQUIRE(back[0].what == "a b c d");
  REQUIRE(one_line("abc\xC3\xA4", 4) == "abc");
  REQUIRE(one_line("abc\xC3\xA4", 5) == "abc\xC3\xA4");
  REQUIRE(one_line("\x80\x80\x80", 2).empty());
}

TEST_CASE("last words: incomplete lines are left out") {
  const std::string text = format_last_words({word(0, "forward"), word(1, "saving")});
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::vector<char> cut(text.begin(), text.begin() + ptrdiff_t(size));
    const auto words = parse_last_words({cut.data(), cut.size()});
    const auto lines = size_t(std::count(cut.begin(), cut.end(), '\n'));
    REQUIRE(words.size() == (lines > 0 ? lines - 1 : 0));
  }
  for (const char* bad :
       {"x\t1\t2\t3\tworking\tme\tforward\n", "-1\t1\t2\t3\tworking\tme\tforward\n",
        "1\t1\t2\t-3\tworking\tme\tforward\n", "1\t1\t2\t3\tidle\tme\tforward\n",
        "1\t1\t99999999999999999999\t3\tworking\tme\tforward\n",
        "1\t1\t2\t3\tworking\tme\tforward\tmore\n"}) {
    REQUIRE(parse_last_words(bad).empty());
  }
}

TEST_CASE("last words: the file has the newest ones") {
  const TempFolder folder;
  REQUIRE(read_last_words(folder / "run").empty());
  {
    LastWordsFile file(folder / "run");
    for (int i = 0; i < 100; ++i) file.put({word(0, i == 99 ? "the last" : "earlier")});
  }
  const std::vector<LastWord> words = read_last_words(folder / "run");
  REQUIRE(words.size() == 1);
  REQUIRE(words[0].what == "the last");
  REQUIRE_FALSE(std::filesystem::exists(last_words_path(folder / "run") + ".part"));
}

TEST_CASE("last words: a folder that cannot be made costs only them") {
  const TempFolder folder;
  std::ofstream(folder / "file") << "not a folder";
  {
    LastWordsFile file(folder / "file");
    file.put({word(0, "forward")});
  }
  REQUIRE(read_last_words(folder / "file").empty());
}

TEST_CASE("last words: a link is neither followed nor waited at") {
  const TempFolder folder;
  const std::string last = last_words_path(folder / "run"), victim = folder / "victim";
  std::filesystem::create_directories(folder / "run/ranks");
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, last + ".part");
  const auto leave = [&](const std::string& run) {
    LastWordsFile file(run);
    file.put({word(0, "forward")});
  };
  leave(folder / "run");
  REQUIRE(std::filesystem::file_size(victim) == 8);
  REQUIRE(read_last_words(folder / "run").size() == 1);
  std::filesystem::remove(last);
  REQUIRE(mkfifo(last.c_str(), 0644) == 0);
  REQUIRE(read_last_words(folder / "run").empty());

  std::filesystem::create_directories(folder / "other");
  std::filesystem::create_directories(folder / "elsewhere");
  std::filesystem::create_directory_symlink("../elsewhere", folder / "other/ranks");
  leave(folder / "other");
  REQUIRE(std::filesystem::is_empty(folder / "elsewhere"));
}

}  // namespace
}  // namespace assay::test_last_words
