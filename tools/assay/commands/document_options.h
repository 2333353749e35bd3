// Options of the commands that read documents: tokenizer train and data prepare.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace assay {

struct DocumentArguments {
  std::vector<std::string> inputs;
  std::string separator = "<|endoftext|>";
  std::string field = "text";
  bool keep_space = false;
  bool drop_unfinished = false;
  bool skip_bad_lines = false;
  int threads = 0;

  DocumentOptions options() const;
};

void add_document_options(CLI::App* subcommand, DocumentArguments& arguments);

// Prints one line on stderr if lines were skipped.
void warn_of_skipped(const SkippedLines& skipped);

}  // namespace assay
