// Replays the seeds of every parser, whole and damaged by a fixed sequence of draws, and the inputs
// that once made one fail (tests/fuzz/found/TARGET/...).
//
//   fuzz_seeds [--rounds N] [--found FOLDER] [TARGET...]
//   fuzz_seeds --list
//   fuzz_seeds --write FOLDER       the seeds as FOLDER/TARGET/0, 1, ...: where a fuzzer begins
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/targets.h"

namespace {

namespace fs = std::filesystem;
using assay::fuzz::Target;

// Pieces that parsers of text stumble over.
constexpr const char* kPieces[] = {"[[[[[[[[[[[[[[[[",
                                   "{\"a\":",
                                   "}}}}",
                                   "\"",
                                   "\\",
                                   "\\u0000",
                                   "\xff\xfe",
                                   "\xf4\x90\x80\x80",
                                   "9223372036854775808",
                                   "-9223372036854775808",
                                   "1e999",
                                   "-0",
                                   "nan",
                                   "null",
                                   "~",
                                   "&a *a",
                                   "!!binary",
                                   "\r\n",
                                   "\t",
                                   "---\n",
                                   ": ",
                                   "- ",
                                   "<<: *a",
                                   "99999999999999999999",
                                   "0x7fffffff",
                                   "\x1b[2J"};

std::string damaged(const std::string& seed, std::mt19937_64& draw) {
  std::string bytes = seed;
  const auto below = [&](size_t n) { return n == 0 ? 0 : size_t(draw() % n); };
  const size_t changes = 1 + below(4);
  for (size_t i = 0; i < changes; ++i) {
    const size_t at = below(bytes.size() + 1);
    switch (draw() % 7) {
      case 0:
        if (at < bytes.size()) bytes[at] = char(draw());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = char(bytes[at] ^ (1 << (draw() % 8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, below(16));
        break;
      case 4:
        bytes.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(64)));
        break;
      default:  // a number of eight bytes at its edges
        if (at + 8 <= bytes.size()) {
          const unsigned long long edges[] = {0, ~0ull, 1ull << 63, (1ull << 32) - 1, 1ull << 32};
          std::memcpy(&bytes[at], &edges[below(std::size(edges))], 8);
        }
    }
  }
  return bytes;
}

void replay_found(const Target& target, const std::string& folder, long& tries) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / target.name, none)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    assay::fuzz::run(target, bytes);
    ++tries;
  }
}

void replay(const Target& target, long rounds, const std::string& found) {
  const auto start = std::chrono::steady_clock::now();
  std::mt19937_64 draw(20240520);
  long tries = 0;
  const std::vector<std::string> seeds = target.seeds();
  for (const std::string& seed : seeds) target.parse(seed);  // valid ones do not throw
  if (!found.empty()) replay_found(target, found, tries);
  for (long round = 0; round < rounds; ++round) {
    for (const std::string& seed : seeds) {
      const std::string bytes = damaged(seed, draw);
      // What a crash leaves behind.
      assay::fuzz::put("last-" + std::string(target.name), bytes);
      assay::fuzz::run(target, bytes);
      ++tries;
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%-14s %3zu seeds, %6ld damaged, %.1f s\n", target.name, seeds.size(), tries,
              seconds.count());
}

// False if a file cannot be written.
bool write(const std::string& folder) {
  for (const Target& target : assay::fuzz::targets()) {
    fs::create_directories(fs::path(folder) / target.name);
    long number = 0;
    for (const std::string& seed : target.seeds()) {
      const fs::path path = fs::path(folder) / target.name / std::to_string(number++);
      std::ofstream file(path, std::ios::binary);
      file << seed;
      file.close();
      if (file) continue;
      std::fprintf(stderr, "error: cannot write %s\nhint: is the disk full?\n", path.c_str());
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  long rounds = 100;
  std::string found;
  std::vector<const Target*> chosen;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const bool more = i + 1 < count;
    if (word == "--list") {
      for (const Target& target : assay::fuzz::targets()) std::printf("%s\n", target.name);
      return 0;
    }
    if (word == "--write" && more) return write(words[++i]) ? 0 : 1;
    if (word == "--rounds" && more) {
      rounds = std::atol(words[++i]);
    } else if (word == "--found" && more) {
      found = words[++i];
    } else if (const Target* target = assay::fuzz::find_target(word)) {
      chosen.push_back(target);
    } else {
      std::fprintf(stderr, "error: no target is called %s\nhint: fuzz_seeds --list\n",
                   word.c_str());
      return 1;
    }
  }
  if (chosen.empty()) {
    for (const Target& target : assay::fuzz::targets()) chosen.push_back(&target);
  }
  for (const Target* target : chosen) replay(*target, rounds, found);
  return 0;
}
