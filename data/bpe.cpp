#include "data/bpe.h"

#include <string.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/check.h"

namespace assay {

namespace {

constexpr size_t kCacheSlots = size_t{1} << 15;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  return x;
}

uint64_t hash_piece(std::string_view piece) {
  uint64_t words[3] = {};
  memcpy(words, piece.data(), piece.size());
  return mix(mix(mix(words[0] + piece.size()) + words[1]) + words[2]);
}

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

int32_t gpt2_byte_id(uint8_t byte) {
  if (byte >= 0x21 && byte <= 0x7E) return byte - 0x21;
  if (byte >= 0xA1 && byte <= 0xAC) return byte - 0xA1 + 94;
  if (byte >= 0xAE) return byte - 0xAE + 106;
  if (byte <= 0x20) return byte + 188;
  if (byte <= 0xA0) return byte - 0x7F + 221;
  return 255;  // 0xAD
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  const char* const kHint =
      "the file is damaged or of another kind; only byte-level BPE is supported";
  const auto quoted = [&](int32_t id) {
    return strprintf("token %d (%s)", id, vocabulary_.bytes[static_cast<size_t>(id)].c_str());
  };
  std::sort(vocabulary_.special.begin(), vocabulary_.special.end());
  std::unordered_map<std::string_view, int32_t> id_of;
  for (size_t i = 0; i < vocabulary_.bytes.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    const std::string& bytes = vocabulary_.bytes[i];
    if (is_special(id)) {
      if (bytes == kEndOfText) eot_ = id;
      continue;
    }
    if (bytes.empty()) continue;
    const auto [at, added] = id_of.try_emplace(bytes, id);
    if (!added)
      throw UserError(strprintf("%s equals token %d", quoted(id).c_str(), at->second), kHint);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto at = id_of.find(std::string_view(&c, 1));
    if (at == id_of.end())
      throw UserError(strprintf("the tokenizer has no token for byte 0x%02X", byte), kHint);
    byte_id_[byte] = at->second;
  }
  size_t slots = 16;
  while (slots < 2 * vocabulary_.merges.size() + 1) slots *= 2;
  merge_table_.resize(slots);
  int32_t rank = 0;
  for (const auto& [left, right] : vocabulary_.merges) {
    const std::string joined = vocabulary_.bytes[static_cast<size_t>(left)] +
                               vocabulary_.bytes[static_cast<size_t>(right)];
    const auto at = id_of.find(joined);
    if (at == id_of.end())
      throw UserError(strprintf("merge %d joins %s and %s, but the result is not a token", rank,
                                quoted(left).c_str(), quoted(right).c_str()),
                      kHint);
    add_merge(pair_key(left, right), rank++, at->second);
  }
}

void Tokenizer::add_merge(uint64_t pair, int32_t rank, int32_t id) {
  const size_t mask = merge_table_.size() - 1;
  size_t slot = mix(pair) & mask;
  // A pair listed twice gets its last rank, as in the implementations that write such files.
  while (merge_table_[slot].pair != kNoPair && merge_table_[slot].pair != pair)
    slot = (slot + 1) & mask;
  merge_table_[slot] = {.pair = pair, .rank = rank, .id = id};
}

const Tokenizer::Merge* Tokenizer::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = merge_table_.size() - 1;
  for (size_t slot = mix(pair) & mask;; slot = (slot + 1) & mask) {
    if (merge_table_[slot].pair == pair) return &merge_table_[slot];
    if (merge_table_[slot].pair == kNoPair) return nullptr;
  }
}

bool Tokenizer::is_special(int32_t id) const {
  return std::binary_search(vocabulary_.special.begin(), vocabulary_.special.end(), id);
}

std::vector<int32_t> Tokenizer::unused_ids() const {
  std::vector<int32_t> unused;
  for (size_t id = 0; id < vocabulary_.bytes.size(); ++id) {
    if (!vocabulary_.bytes[id].empty() || is_special(int32_t(id))) continue;
    unused.push_back(int32_t(id));
  }
  return unused;
}

int32_t Tokenizer::eot() const {
  if (eot_ < 0)
    throw UserError(
        "the tokenizer has no special token <|endoftext|>, which separates documents",
        "add it to added_tokens of tokenizer.json, or train one: assay tokenizer train");
  return eot_;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  Encoder(*this).encode(text, tokens);
  return tokens;
}

std::string Tokenizer::decode(View<const int32_t, 1> tokens) const {
  std::string text;
  for (int64_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size())
      throw UserError(strprintf("id %d at position %ld, but the vocabulary has %ld", tokens[i],
                                static_cast<long>(i), static_cast<long>(vocab_size())),
                      "decode with the tokenizer that made these ids");
    text += vocabulary_.bytes[static_cast<size_t>(tokens[i])];
  }
  return text;
}

std::vector<int32_t> Tokenizer::token_lengths() const {
  std::vector<int32_t> lengths(vocabulary_.bytes.size(), 0);
  for (size_t id = 0; id < vocabulary_.bytes.size(); ++id)
    if (!is_special(static_cast<int32_t>(id)))
      lengths[id] = static_cast<int32_t>(vocabulary_.bytes[id].size());
  return lengths;
}

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), cache_(kCacheSlots) {}

void Encoder::encode(std::string_view text, std::vector<int32_t>& tokens) {
  split_.start(text);
  for (std::string_view piece; split_.next(piece);) {
    if (piece.size() > Slot::kBytes) {
      encode_piece(piece, tokens);
      continue;
    }
    Slot& slot = cache_[hash_piece(piece) % kCacheSlots];
    if (slot.bytes == piece.size() && memcmp(slot.piece, piece.data(), piece.size()) == 0) {
      tokens.insert(tokens.end(), slot.token, slot.token + slot.tokens);
      continue;
    }
    const size_t before = tokens.size();
    encode_piece(piece, tokens);
    const size_t made = tokens.size() - before;
    if (made > Slot::kTokens) continue;
    slot.bytes = static_cast<uint8_t>(piece.size());
    slot.tokens = static_cast<uint8_t>(made);
    memcpy(slot.piece, piece.data(), piece.size());
    std::copy(tokens.begin() + static_cast<long>(before), tokens.end(), slot.token);
  }
}

// Pushes the pair of symbol `left` and its right neighbour onto the heap if it can be joined.
void Encoder::consider(int32_t left) {
  const Symbol& a = symbols_[static_cast<size_t>(left)];
  if (a.next < 0) return;
  const Symbol& b = symbols_[static_cast<size_t>(a.next)];
  const Tokenizer::Merge* merge = tokenizer_.find_merge(a.id, b.id);
  if (merge == nullptr) return;
  heap_.push_back(pair_key(merge->rank, left));
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

// O(n log n) in the bytes of the piece, so that a megabyte without a space takes seconds, not
// hours.
void Encoder::encode_piece(std::string_view piece, std::vector<int32_t>& tokens) {
  CHECK(piece.size() < INT32_MAX, "a piece of %zu bytes", piece.size());
  const int32_t size = static_cast<int32_t>(piece.size());
  symbols_.clear();
  heap_.clear();
  for (int32_t i = 0; i < size; ++i)
    symbols_.push_back(
        {.id = tokenizer_.byte_id_[static_cast<uint8_t>(piece[static_cast<size_t>(i)])],
         .length = 1,
         .previous = i - 1,
         .next = i + 1 < size ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < size; ++i) consider(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const int32_t left = static_cast<int32_t>(heap_.back() & 0xFFFFFFFFu);
    const int32_t rank = static_cast<int32_t>(heap_.back() >> 32);
    heap_.pop_back();
    Symbol& a = symbols_[static_cast<size_t>(left)];
    if (a.length == 0 || a.next < 0) continue;
    Symbol& b = symbols_[static_cast<size_t>(a.next)];
    const Tokenizer::Merge* merge = tokenizer_.find_merge(a.id, b.id);
    if (merge == nullptr || merge->rank != rank) continue;  // stale: one of the two has changed
    a.id = merge->id;
    a.length += b.length;
    b.length = 0;
    a.next = b.next;
    if (a.next >= 0) symbols_[static_cast<size_t>(a.next)].previous = left;
    if (a.previous >= 0) consider(a.previous);
    consider(left);
  }
  for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].next)
    tokens.push_back(symbols_[static_cast<size_t>(i)].id);
}

}  // namespace assay
