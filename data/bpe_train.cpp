#include "data/bpe_train.h"

#include <algorithm>
#include <queue>
#include <unordered_set>

#include "base/check.h"

namespace assay {

namespace {

// Longer pieces (a blob in base64) are counted in parts of this many bytes, because every merge
// walks the whole of each piece that it changes.
constexpr size_t kLongestPiece = 256;

struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

struct Pair {
  int64_t count = 0;
  std::vector<int32_t> words;  // words where it occurs or once did
  bool touched = false;        // its count changed in the current merge
};

struct Candidate {
  int64_t count;
  uint64_t key;
  // Puts the most frequent pair at the top of the queue, among equals the smallest.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

class Trainer {
 public:
  explicit Trainer(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        change(words_[w].ids[i], words_[w].ids[i + 1], static_cast<int32_t>(w), words_[w].count);
    requeue();
  }

  // Finds the most frequent pair; false if none occurs twice.
  bool best(int32_t& left, int32_t& right) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const auto at = pairs_.find(top.key);
      if (at != pairs_.end() && at->second.count == top.count) {
        left = static_cast<int32_t>(top.key >> 32);
        right = static_cast<int32_t>(top.key & 0xFFFFFFFFu);
        return top.count >= 2;
      }
      queue_.pop();  // the pair has been queued again with its new count
    }
    return false;
  }

  void join(int32_t left, int32_t right, int32_t id) {
    const std::vector<int32_t> where = std::move(pairs_[key_of(left, right)].words);
    for (const int32_t w : where) join_word(w, left, right, id);
    pairs_.erase(key_of(left, right));
    requeue();
  }

 private:
  // Joins the pair in the word and updates the counts of the pairs beside it; does nothing to a
  // word that no longer has the pair.
  void join_word(int32_t w, int32_t left, int32_t right, int32_t id) {
    Word& word = words_[static_cast<size_t>(w)];
    std::vector<int32_t>& ids = word.ids;
    size_t kept = 0;
    for (size_t i = 0; i < ids.size();) {
      const bool found = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
      if (!found) {
        ids[kept++] = ids[i++];
        continue;
      }
      // The left neighbour has been rewritten already, the right one has not.
      if (kept > 0) {
        change(ids[kept - 1], left, w, -word.count);
        change(ids[kept - 1], id, w, word.count);
      }
      if (i + 2 < ids.size()) {
        change(right, ids[i + 2], w, -word.count);
        change(id, ids[i + 2], w, word.count);
      }
      ids[kept++] = id;
      i += 2;
    }
    ids.resize(kept);
  }

  void change(int32_t left, int32_t right, int32_t word, int64_t count) {
    const uint64_t key = key_of(left, right);
    Pair& pair = pairs_[key];
    pair.count += count;
    if (count > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
    if (!pair.touched) touched_.push_back(key);
    pair.touched = true;
  }

  void requeue() {
    for (const uint64_t key : touched_) {
      const auto at = pairs_.find(key);
      if (at == pairs_.end()) continue;
      at->second.touched = false;
      if (at->second.count > 0) queue_.push({.count = at->second.count, .key = key});
    }
    touched_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::vector<uint64_t> touched_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void PieceCounter::add(std::string_view text) {
  bytes_ += static_cast<int64_t>(text.size());
  split_.start(text);
  for (std::string_view piece; split_.next(piece);) {
    for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), kLongestPiece))) {
      const std::string_view part = piece.substr(0, kLongestPiece);
      const auto at = count_.find(part);
      if (at != count_.end()) {
        ++at->second;
      } else {
        count_.emplace(part, 1);
      }
    }
  }
}

void PieceCounter::merge(const PieceCounter& other) {
  bytes_ += other.bytes_;
  for (const auto& [piece, count] : other.count_) count_[piece] += count;
}

Tokenizer train_bpe(const PieceCounter& pieces, int64_t vocab_size) {
  if (vocab_size < 257 || vocab_size > 1 << 24)
    throw UserError(
        strprintf("a vocabulary of %ld tokens is not possible", static_cast<long>(vocab_size)),
        "choose 257 (the bytes and <|endoftext|>) to 16777216 tokens");
  if (pieces.count_.empty())
    throw UserError("there is no text to train a tokenizer on", "give files that are not empty");
  std::vector<Word> words;
  for (const auto& [piece, count] : pieces.count_) {
    Word word;
    word.count = count;
    for (const char c : piece) word.ids.push_back(gpt2_byte_id(static_cast<uint8_t>(c)));
    words.push_back(std::move(word));
  }
  Trainer trainer(std::move(words));
  Vocabulary vocabulary;
  vocabulary.bytes.resize(256);
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.bytes[static_cast<size_t>(gpt2_byte_id(static_cast<uint8_t>(byte)))] =
        static_cast<char>(byte);
  std::unordered_map<std::string, int32_t> id_of;
  for (size_t id = 0; id < 256; ++id) id_of.emplace(vocabulary.bytes[id], static_cast<int32_t>(id));
  std::unordered_set<uint64_t> merged;
  for (int32_t left, right; static_cast<int64_t>(vocabulary.bytes.size()) < vocab_size - 1 &&
                            trainer.best(left, right);) {
    // Two pairs can spell the same bytes: the second pair then makes the first one's token.
    const std::string joined =
        vocabulary.bytes[static_cast<size_t>(left)] + vocabulary.bytes[static_cast<size_t>(right)];
    const auto [at, added] = id_of.emplace(joined, static_cast<int32_t>(vocabulary.bytes.size()));
    if (added) vocabulary.bytes.push_back(joined);
    // A pair occurs again when such a second pair made one of its two tokens.
    if (merged.insert(key_of(left, right)).second) vocabulary.merges.emplace_back(left, right);
    trainer.join(left, right, at->second);
  }
  vocabulary.special.push_back(static_cast<int32_t>(vocabulary.bytes.size()));
  vocabulary.bytes.emplace_back(kEndOfText);
  return Tokenizer(std::move(vocabulary));
}

}  // namespace assay
