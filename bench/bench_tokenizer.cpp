// bench_tokenizer: megabytes per second on one core for the pre-split, encoding and decoding, and
// seconds to train an 8,192-token vocabulary, once. The text is a file or generated stories; the
// tokenizer is given or just trained. A text that does not decode to itself is not timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "base/check.h"
#include "base/file.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/json.h"
#include "bench/options.h"
#include "data/bpe_train.h"
#include "data/synth.h"
#include "data/tokenizer_files.h"

namespace assay {
namespace {

constexpr int64_t kVocab = 8192;

struct Options {
  std::string text, tokenizer;
  double megabytes = 10;
  int iters = 5;
  bool json = false;
};

// Repeats the given file as often as needed, or generates stories.
std::string make_text(const Options& o) {
  const size_t bytes = static_cast<size_t>(o.megabytes * 1e6);
  const std::string file = o.text.empty() ? "" : read_file(o.text);
  if (!o.text.empty() && file.empty())
    throw UserError(o.text + " is empty", "give a file with text");
  std::string text;
  StoryGenerator stories(1);
  while (text.size() < bytes) text += o.text.empty() ? stories.next() + "\n" : file;
  text.resize(bytes);
  return text;
}

struct Timing {
  double p50 = 0, min = 0;
  int runs = 0;
};

Timing seconds(int iters, const std::function<void()>& f) {
  std::vector<double> all;
  for (int i = 0; i < iters; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    all.push_back(seconds_since(begin));
  }
  std::sort(all.begin(), all.end());
  return {.p50 = median(all), .min = all[0], .runs = iters};
}

void report(const Options& o, const char* what, const Timing& t, double megabytes) {
  if (o.json) {
    std::printf(
        "{\"bench\": \"%s\", \"mb\": %.3f, \"runs\": %d, \"seconds_p50\": %.6f, \"seconds_min\": "
        "%.6f, \"mb_per_s\": %.3f}\n",
        what, megabytes, t.runs, t.p50, t.min, megabytes / t.p50);
    return;
  }
  const std::string least = t.runs == 1 ? "one run" : strprintf("min %8.3f", t.min);
  std::printf("%-12s %5.1f MB | %8.3f s (%-12s) | %7.1f MB/s of one core\n", what, megabytes, t.p50,
              least.c_str(), megabytes / t.p50);
}

int run(const Options& o) {
  const std::string text = make_text(o);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::unique_ptr<Tokenizer> trained;
  const Timing train = seconds(1, [&] {
    PieceCounter pieces;
    pieces.add(text);
    trained = std::make_unique<Tokenizer>(train_bpe(pieces, kVocab));
  });
  const Tokenizer tokenizer = o.tokenizer.empty() ? *trained : read_tokenizer(o.tokenizer);
  std::vector<int32_t> tokens = tokenizer.encode(text);
  if (tokenizer.decode(tokens) != text) {
    throw UserError("the text does not decode to itself",
                    "give the --tokenizer that fits --text, or leave both out");
  }
  if (o.json) std::printf("{%s}\n", json_fields(BenchHeader{"bench_tokenizer"}).c_str());
  report(o, "train 8192", train, megabytes);
  size_t pieces = 0;
  report(o, "pre-split",
         seconds(o.iters,
                 [&] {
                   PreSplit split;
                   split.start(text);
                   for (std::string_view piece; split.next(piece);) ++pieces;
                 }),
         megabytes);
  report(o, "encode",
         seconds(o.iters,
                 [&] {
                   tokens.clear();
                   Encoder(tokenizer).encode(text, tokens);
                 }),
         megabytes);
  report(o, "decode", seconds(o.iters, [&] { tokenizer.decode(tokens); }), megabytes);
  if (!o.json)
    std::printf("%zu tokens, %.2f bytes per token, %.2f bytes per piece\n", tokens.size(),
                static_cast<double>(text.size()) / static_cast<double>(tokens.size()),
                static_cast<double>(text.size()) * o.iters / static_cast<double>(pieces));
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::Options o;
  assay::BenchOptions options(
      "bench_tokenizer",
      "MB/s of the tokenizer on one core: pre-split, encoding, decoding, and the time to "
      "train a vocabulary of 8192. A text that does not decode to itself is not timed. "
      "Needs no GPU.");
  options.add("--text", "FILE", o.text, "a text file (default: generated stories)");
  options.add("--tokenizer", "FILE", o.tokenizer, "tokenizer.json (default: the one just trained)");
  options.add("--mb", o.megabytes, "megabytes of text; a shorter file is repeated (default: 10)");
  options.add("--iters", o.iters, "timed runs of each part (default: 5)");
  options.add("--json", o.json, "print JSON: a line of the machine, then one for each part");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
