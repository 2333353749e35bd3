// Reads and writes the files of tokenizers.
//
//   tokenizer.json             Hugging Face: model.type BPE with the ByteLevel pre-tokenizer
//   vocab.json + merges.txt    GPT-2, side by side in one folder
//
// Both write the bytes of a token with GPT-2's 256 printable characters (a space is U+0120).
#pragma once

#include <string>
#include <vector>

#include "data/bpe.h"

namespace assay {

// path: a tokenizer.json, a vocab.json (with merges.txt beside it), or a folder with either.
// UserError naming file and cause: missing, not JSON, another kind of tokenizer, inconsistent, or
// with other settings beside it (data/tokenizer_settings.h).
Tokenizer read_tokenizer(const std::string& path);
// The files that read_tokenizer(path) reads: one, or vocab.json and merges.txt. UserError for a
// folder with neither kind.
std::vector<std::string> tokenizer_paths(const std::string& path);

void write_tokenizer_json(const Tokenizer& tokenizer, const std::string& path);
// Writes folder/vocab.json and folder/merges.txt.
void write_gpt2_files(const Tokenizer& tokenizer, const std::string& folder);

// The text of tokenizer.json and its SHA-256, which identifies the tokenizer whatever files it was
// read from.
std::string tokenizer_json(const Tokenizer& tokenizer);
std::string tokenizer_hash(const Tokenizer& tokenizer);
// The text with a post-processor by which `tokenizers` begins each text with <|endoftext|>, as
// training documents begin; reading it gives the same tokenizer. UserError without that token.
std::string tokenizer_json_with_begin(const Tokenizer& tokenizer);

// Parse file contents; `name` is used in error messages.
Tokenizer parse_tokenizer_json(const std::string& text, const std::string& name);
Tokenizer parse_gpt2_files(const std::string& vocab_json, const std::string& merges_txt,
                           const std::string& name);

}  // namespace assay
