#include "data/prepare.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "base/cores.h"
#include "cuda/exec.h"
#include "data/bpe_train.h"
#include "data/document_shuffle.h"
#include "data/held_out.h"
#include "data/progress.h"
#include "data/sha256.h"
#include "data/utf8.h"

namespace assay {

namespace {

// Documents are read, processed by all cores and written in groups of this size, which keeps many
// cores busy.
constexpr size_t kGroupBytes = size_t{16} << 20;

int resolved_threads(int threads) {
  return threads > 0 ? threads : usable_cores();
}

// Calls work(worker, document) -> Result for every document on `threads` workers, and
// done(document, result) in the order of the documents, on this thread. An error in a document is
// thrown when its turn comes; for a line to be skipped, skip(document, error) is called instead.
template <typename Result, typename Work, typename Done, typename Skip>
void for_each_document(DocumentReader& reader, int threads, Work&& work, Done&& done, Skip&& skip) {
  std::vector<RawDocument> group;
  std::vector<Result> results;
  std::vector<std::exception_ptr> failed;
  for (bool more = true; more;) {
    group.clear();
    for (size_t bytes = 0; bytes < kGroupBytes; bytes += group.back().bytes.size() + 1) {
      RawDocument document;
      more = reader.next(document);
      if (!more) break;
      group.push_back(std::move(document));
    }
    results.resize(std::max(results.size(), group.size()));
    failed.assign(group.size(), nullptr);
    std::atomic<size_t> next = 0;
    parallel_for({.threads = threads}, threads, [&](int64_t worker) {
      for (size_t i = next++; i < group.size(); i = next++) try {
          results[i] = work(static_cast<size_t>(worker), group[i]);
        } catch (...) {
          failed[i] = std::current_exception();
        }
    });
    for (size_t i = 0; i < group.size(); ++i) {
      try {
        if (failed[i]) std::rethrow_exception(failed[i]);
      } catch (const BadLine& bad) {
        if (reader.options().bad_lines == BadLines::kRefuse) throw;
        skip(group[i], bad);
        continue;
      }
      done(group[i], results[i]);
    }
  }
}

void add_skipped(SkippedLines& skipped, const BadLine& bad) {
  if (skipped.lines++ == 0) skipped.first = bad.what();
}

// UserError that says what was skipped, if anything was.
[[noreturn]] void throw_no_text(const std::string& error, const SkippedLines& skipped) {
  if (skipped.lines == 0) throw UserError(error, "give text that is not empty");
  throw UserError(
      error +
          strprintf("; %ld bad %s skipped, the first: ", static_cast<long>(skipped.lines),
                    skipped.lines == 1 ? "line was" : "lines were") +
          skipped.first,
      "give lines that have a text; --field NAME names the field that holds it");
}

// UserError for a text of which all documents, so many, were dropped.
[[noreturn]] void throw_all_copies(int64_t documents, const DocumentReader& reader) {
  std::string files = reader.files().front();
  if (reader.files().size() > 1) files += strprintf(" and %zu more", reader.files().size() - 1);
  const char* const hint = "give other validation text, or leave --drop-duplicates out";
  if (documents == 1) {
    throw UserError("the only document of " + files + " is a copy of a training document", hint);
  }
  throw UserError(strprintf("all %ld documents of %s are copies of training documents",
                            long(documents), files.c_str()),
                  hint);
}

void add_files(InputNotes& notes, const DocumentReader& reader) {
  const LeftOut& more = reader.left_out();
  notes.files += static_cast<int64_t>(reader.files().size());
  if (notes.left_out.unreadable == 0) notes.left_out.first = more.first;
  notes.left_out.unreadable += more.unreadable;
  notes.left_out.other_files += more.other_files;
  notes.left_out.kinds.insert(more.kinds.begin(), more.kinds.end());
  if (notes.repeated.files == 0) notes.repeated.first = reader.repeated().first;
  notes.repeated.files += reader.repeated().files;
  if (notes.packed_twins.files == 0) notes.packed_twins.first = reader.packed_twins().first;
  notes.packed_twins.files += reader.packed_twins().files;
}

// Call when all is read.
void add_like_jsonl(InputNotes& notes, const DocumentReader& reader) {
  const LikeJsonl& more = reader.like_jsonl();
  if (notes.like_jsonl.files == 0) notes.like_jsonl.first = more.first;
  notes.like_jsonl.files += more.files;
  notes.splits += reader.splits();
}

// Bytes of a document or part that text hardly has: the position of the first one, npos if there is
// none.
struct OddBytes {
  size_t not_utf8 = std::string::npos;
  size_t nul = std::string::npos;  // UTF-16 without its mark may be UTF-8, with many of them
};

// JSON is UTF-8, or it is not JSON.
OddBytes odd_bytes(const RawDocument& raw, const std::string& text) {
  if (raw.line > 0) return {};
  const size_t wrong = first_not_utf8(text);
  return {.not_utf8 = wrong == text.size() ? std::string::npos : wrong, .nul = text.find('\0')};
}

// Counts the documents of each file, and those with odd bytes. In the order of the documents.
class OddCount {
 public:
  OddCount(InputNotes& notes, size_t files) : notes_(notes), of_file_(files, 0) {}

  void add(const RawDocument& raw, const OddBytes& odd) {
    if (raw.file_idx != file_ || raw.begins) counted_utf8_ = counted_nul_ = false;
    if (raw.file_idx != file_) document_ = 0;
    file_ = raw.file_idx;
    document_ += raw.begins;
    const auto count = [&](size_t at, bool& counted, int64_t& documents, std::string& first) {
      if (at == std::string::npos || counted) return false;
      counted = true;
      if (documents++ == 0)
        first = strprintf("%s, document %ld, byte %zu", raw.file.c_str(),
                          static_cast<long>(document_), at);
      return true;
    };
    of_file_[file_] +=
        count(odd.not_utf8, counted_utf8_, notes_.not_utf8, notes_.first_not_utf8) ? 1 : 0;
    count(odd.nul, counted_nul_, notes_.nul, notes_.first_nul);
  }
  int64_t not_utf8_of(size_t file) const { return of_file_[file]; }

 private:
  InputNotes& notes_;
  std::vector<int64_t> of_file_;
  size_t file_ = SIZE_MAX;
  int64_t document_ = 0;                             // in its file, from 1
  bool counted_utf8_ = false, counted_nul_ = false;  // in an earlier part of the document
};

// Texts that are trained on, by the first 64 bits of their SHA-256: 8 bytes of memory each.
class TrainedTexts {
 public:
  void add(const std::string& hash) {
    keys_.push_back(key(hash));
    sorted_ = false;
  }
  bool has(const std::string& hash) {
    if (!sorted_) std::sort(keys_.begin(), keys_.end());
    sorted_ = true;
    return std::binary_search(keys_.begin(), keys_.end(), key(hash));
  }

 private:
  static uint64_t key(const std::string& hash) {
    return std::stoull(hash.substr(0, 16), nullptr, 16);
  }
  std::vector<uint64_t> keys_;
  bool sorted_ = true;
};

struct Encoded {
  std::vector<int32_t> tokens;
  int64_t bytes = 0;  // of the text
  std::string hash;   // SHA-256 of the text, if it is compared with others
  double number = 0;  // document_number(), if it decides the split
  OddBytes odd;
};

// Encodes input files into the writer.
class Preparation {
 public:
  Preparation(const Tokenizer& tokenizer, const PrepareConfig& config, CorpusWriter& writer)
      : config_(config), writer_(writer), threads_(resolved_threads(config.threads)) {
    if (config.shuffle_seed) shuffle_.emplace(config.corpus.folder, *config.shuffle_seed);
    for (int i = 0; i < threads_; ++i) encoders_.push_back(std::make_unique<Encoder>(tokenizer));
  }

  // split_of(index, number) returns the split of the index-th kept document. The files are added to
  // the manifest.
  template <typename SplitOf>
  void read(const std::vector<std::string>& inputs, PrepareResult& result, SplitOf&& split_of) {
    DocumentReader reader(inputs, config_.documents);
    Progress progress("prepare", reader.bytes_total());
    const size_t files = reader.files().size();
    add_files(result.notes, reader);
    OddCount odd(result.notes, files);
    std::vector<int64_t> documents(files), bad_lines(files);  // kept, skipped
    const int64_t dropped_before = result.duplicate_documents;
    int64_t index = 0;
    Split split = Split::kTrain;
    const auto encode = [&](size_t worker, const RawDocument& raw) {
      const std::string text = document_text(raw, config_.documents);
      Encoded encoded;
      encoded.bytes = static_cast<int64_t>(text.size());
      encoders_[worker]->encode(text, encoded.tokens);
      const bool whole = raw.begins && raw.ends;
      if (whole && compares_documents()) encoded.hash = sha256_hex(text);
      if (config_.val_share && raw.begins) encoded.number = document_number(text);
      encoded.odd = odd_bytes(raw, text);
      return encoded;
    };
    const auto write = [&](const RawDocument& raw, const Encoded& encoded) {
      if (config_.stop != nullptr && *config_.stop) throw Interrupted();
      const View<const int32_t, 1> tokens{encoded.tokens.data(),
                                          {static_cast<int64_t>(encoded.tokens.size())}};
      odd.add(raw, encoded.odd);
      if (!raw.begins) return add(split, tokens, encoded.bytes, Part::kNext);
      if (encoded.bytes == 0) {
        ++result.empty_documents;
      } else if (is_duplicate(encoded)) {
        ++result.duplicate_documents;
      } else {
        split = split_of(index++, encoded.number);
        add(split, tokens, encoded.bytes, Part::kFirst);
        ++documents[raw.file_idx];
        note_comparison(split, raw, encoded, result.notes);
      }
    };
    for_each_document<Encoded>(
        reader, threads_, encode,
        [&](const RawDocument& raw, const Encoded& encoded) {
          write(raw, encoded);
          progress.update(reader.bytes_read());
        },
        [&](const RawDocument& raw, const BadLine& bad) {
          add_skipped(result.notes.skipped, bad);
          ++bad_lines[raw.file_idx];
        });
    add_like_jsonl(result.notes, reader);
    const int64_t dropped = result.duplicate_documents - dropped_before;
    if (index == 0 && dropped > 0) throw_all_copies(dropped, reader);
    if (index == 0)
      throw_no_text(strprintf("no document in %s: %ld bytes in %zu files", inputs.front().c_str(),
                              static_cast<long>(reader.bytes_read()), reader.files().size()),
                    result.notes.skipped);
    for (size_t i = 0; i < files; ++i)
      writer_.add_source({.file = reader.files()[i],
                          .bytes = reader.read()[i].bytes,
                          .documents = documents[i],
                          .bad_lines = bad_lines[i],
                          .not_utf8 = odd.not_utf8_of(i),
                          .sha256 = reader.read()[i].sha256});
    result.seconds += progress.seconds();
  }

  // Call after the last read().
  void finish(PrepareResult& result) {
    if (!shuffle_) return;
    Progress progress("shuffle", shuffle_->tokens(), {.name = "M tokens", .size = 1e6});
    shuffle_->write_to(writer_, [&](int64_t tokens) {
      if (config_.stop != nullptr && *config_.stop) throw Interrupted();
      progress.update(tokens);
    });
    result.seconds += progress.seconds();
  }

  int64_t documents(Split split) const { return documents_[static_cast<int>(split)]; }

 private:
  bool drops() const { return config_.duplicates == Duplicates::kDrop; }
  bool compares_documents() const { return drops() || !config_.val_inputs.empty(); }
  bool is_duplicate(const Encoded& encoded) {
    return drops() && !encoded.hash.empty() && !seen_.insert(encoded.hash).second;
  }

  // Of a document that is kept. Where duplicates are dropped, none is validated on and trained on.
  void note_comparison(Split split, const RawDocument& raw, const Encoded& encoded,
                       InputNotes& notes) {
    if (drops() && !raw.ends && notes.too_long++ == 0) notes.first_too_long = raw.file;
    if (drops() || encoded.hash.empty()) return;
    if (split == Split::kTrain) return trained_.add(encoded.hash);
    notes.trained_val_documents += trained_.has(encoded.hash) ? 1 : 0;
  }

  enum class Part { kFirst, kNext };
  void add(Split split, View<const int32_t, 1> tokens, int64_t bytes, Part part) {
    const auto add_to = [&](auto& target) {
      if (part == Part::kFirst) return target.add_document(split, tokens, bytes);
      target.continue_document(split, tokens, bytes);
    };
    documents_[static_cast<int>(split)] += part == Part::kFirst;
    if (shuffle_) return add_to(*shuffle_);
    add_to(writer_);
  }

  const PrepareConfig& config_;
  CorpusWriter& writer_;
  int threads_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::unordered_set<std::string> seen_;  // hashes, if duplicates are dropped
  TrainedTexts trained_;                  // with val_inputs, if they are not
  std::optional<DocumentShuffle> shuffle_;
  int64_t documents_[2] = {};  // by split
};

// sources: the first `train_files` of them are training text, the others validation text.
void note_trained_validation(const std::vector<SourceEntry>& sources, size_t train_files,
                             InputNotes& notes) {
  std::map<std::string, std::string> trained;  // file by SHA-256
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceEntry& source = sources[i];
    if (source.documents == 0) continue;
    if (i < train_files) {
      trained.emplace(source.sha256, source.file);
    } else if (const auto same = trained.find(source.sha256); same != trained.end()) {
      if (notes.trained_val_files++ > 0) continue;
      notes.first_trained_val = source.file + ", as " + same->second;
    }
  }
}

}  // namespace

PrepareResult prepare(const Tokenizer& tokenizer, const PrepareConfig& config) {
  if (config.val_every < 0 || config.val_every == 1)
    throw UserError(
        strprintf("--val-every %ld is not possible", static_cast<long>(config.val_every)),
        "0 makes no validation set, N >= 2 holds out every N-th document");
  if (config.val_share && !(*config.val_share > 0 && *config.val_share < 1))
    throw UserError(strprintf("--val-share %g must be > 0 and < 1", *config.val_share),
                    "give a share of the documents between 0 and 1, e.g. 0.005");
  CorpusWriter writer(tokenizer, config.corpus);
  Preparation preparation(tokenizer, config, writer);
  PrepareResult result;
  const bool by_rule = config.val_inputs.empty();
  const bool by_hash = by_rule && config.val_share;
  const int64_t every = by_rule && !by_hash ? config.val_every : 0;
  preparation.read(config.inputs, result, [&](int64_t index, double number) {
    const bool held_out = by_hash ? number < *config.val_share : every > 0 && index % every == 0;
    return held_out ? Split::kVal : Split::kTrain;
  });
  const auto train_files = static_cast<size_t>(result.notes.files);
  if (!by_rule) {
    preparation.read(config.val_inputs, result, [](int64_t, double) { return Split::kVal; });
    result.notes.val_documents = preparation.documents(Split::kVal);
  }
  if (by_hash && preparation.documents(Split::kVal) == 0)
    throw UserError(
        strprintf("no document is held out for validation: %ld documents at --val-share %g",
                  static_cast<long>(preparation.documents(Split::kTrain)), *config.val_share),
        "raise --val-share, or take every N-th document with --val-every N");
  if (preparation.documents(Split::kTrain) == 0 && result.notes.like_jsonl.files > 0)
    throw UserError("no document is left to train on: " + result.notes.like_jsonl.first +
                        " was read as text, but its first line is a JSON object",
                    "name it *.jsonl: then each line is a document");
  preparation.finish(result);
  writer.set_shuffle_seed(config.shuffle_seed);
  result.manifest = writer.commit(!by_rule    ? "own text"
                                  : by_hash   ? strprintf("share %g by hash", *config.val_share)
                                  : every > 0 ? strprintf("every %ld", static_cast<long>(every))
                                              : "none");
  if (!by_rule) note_trained_validation(result.manifest.sources, train_files, result.notes);
  return result;
}

Tokenizer train_tokenizer(const std::vector<std::string>& inputs, const DocumentOptions& options,
                          int64_t vocab_size, int threads, InputNotes& notes) {
  const int workers = resolved_threads(threads);
  std::vector<std::unique_ptr<PieceCounter>> counters;
  for (int i = 0; i < workers; ++i) counters.push_back(std::make_unique<PieceCounter>());
  DocumentReader reader(inputs, options);
  Progress progress("count", reader.bytes_total());
  add_files(notes, reader);
  OddCount odd(notes, reader.files().size());
  bool any = false;
  const auto count = [&](size_t worker, const RawDocument& raw) {
    const std::string text = document_text(raw, options);
    counters[worker]->add(text);
    return odd_bytes(raw, text);
  };
  for_each_document<OddBytes>(
      reader, workers, count,
      [&](const RawDocument& raw, const OddBytes& found) {
        any = true;
        odd.add(raw, found);
        progress.update(reader.bytes_read());
      },
      [&](const RawDocument&, const BadLine& bad) { add_skipped(notes.skipped, bad); });
  add_like_jsonl(notes, reader);
  if (!any && notes.skipped.lines > 0)
    throw_no_text("there is no text to train a tokenizer on", notes.skipped);
  for (int i = 1; i < workers; ++i) counters[0]->merge(*counters[static_cast<size_t>(i)]);
  return train_bpe(*counters[0], vocab_size);
}

}  // namespace assay
