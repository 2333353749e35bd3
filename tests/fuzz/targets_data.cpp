// Data: tokenizers, shards, manifests, documents.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "data/documents.h"
#include "data/manifest.h"
#include "data/shard.h"
#include "data/tokenizer_files.h"
#include "tests/fuzz/targets.h"

namespace assay::fuzz {
namespace {

// All bytes, two merges and the end of a text.
Tokenizer small_tokenizer() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.bytes.emplace_back(1, char(byte));
  for (const char* word : {"ab", " a", "<|endoftext|>"}) vocabulary.bytes.emplace_back(word);
  vocabulary.merges = {{'a', 'b'}, {' ', 'a'}};
  vocabulary.special = {258};
  return Tokenizer(std::move(vocabulary));
}

void use(const Tokenizer& tokenizer) {
  const std::string text = "ab a\xc3\xa9 <|endoftext|>\n";
  try {
    tokenizer.decode(tokenizer.encode(text));
  } catch (const UserError&) {  // bytes without a token
  }
  // What is written is the same tokenizer.
  const std::string json = tokenizer_json(tokenizer);
  CHECK(tokenizer_json(parse_tokenizer_json(json, "written")) == json,
        "a tokenizer changes when it is written and read: %s", json.c_str());
}

void parse_tokenizer(std::string_view bytes) {
  use(parse_tokenizer_json(std::string(bytes), "tokenizer.json"));
}
std::vector<std::string> tokenizers() {
  return {tokenizer_json(small_tokenizer())};
}

// vocab.json, a zero byte, merges.txt.
void parse_merges(std::string_view bytes) {
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  use(parse_gpt2_files(std::string(bytes.substr(0, cut)),
                       std::string(bytes.substr(std::min(cut + 1, bytes.size()))), "vocab.json"));
}
std::vector<std::string> merges() {
  write_gpt2_files(small_tokenizer(), scratch());
  return {read_file(scratch() + "/vocab.json") + '\0' + read_file(scratch() + "/merges.txt")};
}

std::string shard_of(int version, int magic, const std::vector<uint16_t>& tokens) {
  std::array<int32_t, 256> header = {};
  header[0] = magic;
  header[1] = version;
  header[2] = int32_t(tokens.size() * 2 / (version == 7 ? 4 : 2));
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  return bytes + std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}
void parse_shard(std::string_view bytes) {
  const Shard shard(put("fuzz.bin", bytes));
  for_each_piece(shard, 300, [](int64_t, View<const int32_t, 1> piece) {
    for (int64_t i = 0; i < piece.size(); ++i) {
      CHECK(piece[i] >= 0 && piece[i] < 300, "token id %d", piece[i]);
    }
  });
}
std::vector<std::string> shards() {
  return {shard_of(1, 20240520, {1, 2, 299, 0}), shard_of(7, 20240801, {1, 0, 2, 0}),
          shard_of(1, 20240520, {})};
}

void parse_manifest(std::string_view bytes) {
  put(kManifestName, bytes);
  const Manifest manifest = read_manifest(scratch());
  manifest.documents("train");
}
std::vector<std::string> manifests() {
  const std::string zeros(64, '0');
  return {R"({"format": "assay-corpus-1", "tokenizer": {"file": "tokenizer.json", "sha256": ")" +
          zeros +
          R"("}, "vocab_size": 512, "eot_id": 0, "text_bytes": 10, "sources": [], "shards": []})"};
}

std::string gzipped(const std::string& text) {
  z_stream z = {};
  if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return "";
  std::string out(text.size() + 100, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = uInt(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}
std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

// The first byte chooses the kind of file.
void parse_documents(std::string_view bytes) {
  constexpr const char* kNames[] = {"fuzz.jsonl", "fuzz.txt", "fuzz.jsonl.gz", "fuzz.txt.zst"};
  const unsigned kind = bytes.empty() ? 0 : unsigned(bytes[0]) % 4;
  const std::string path = put(kNames[kind], bytes.substr(bytes.empty() ? 0 : 1));
  DocumentOptions options;
  options.part_bytes = 1 << 20;
  DocumentReader reader({path}, options);
  for (RawDocument document; reader.next(document);) document_text(document, options);
}
std::vector<std::string> documents() {
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"tw\\u00f6\", \"n\": [1, {}]}\n";
  const std::string text = "one<|endoftext|>two\n<|endoftext|>";
  using namespace std::string_literals;
  return {"\0"s + lines, "\1"s + text, "\2"s + gzipped(lines), "\3"s + zstandard(text)};
}

}  // namespace

const Target kTokenizerTarget = {"tokenizer", parse_tokenizer, tokenizers};
const Target kMergesTarget = {"merges", parse_merges, merges};
const Target kShardTarget = {"shard", parse_shard, shards};
const Target kManifestTarget = {"manifest", parse_manifest, manifests};
const Target kDocumentsTarget = {"documents", parse_documents, documents};

}  // namespace assay::fuzz
