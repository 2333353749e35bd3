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

// Prints a line on stderr for each thing that a user may not mean: bad lines, documents that are
// not UTF-8, files of a folder that cannot be read, validation text that is trained on.
void warn_of_input(const InputNotes& notes);

// "3 files read; 4 files of other kinds in the folders left out (.html, .py)"
std::string files_text(const InputNotes& notes);

// How many documents the separator that nobody asked for divided from another in their file, as a
// line: a file that only mentions it is split there too. "" if there are none.
std::string splits_text(const InputNotes& notes, const DocumentArguments& a);

}  // namespace assay
