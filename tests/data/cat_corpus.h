// A corpus of ten documents about cats to prepare, for its tests.
#pragma once

#include <string>

#include "data/prepare.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay {

struct CatCorpus {
  TempFolder folder;
  PrepareConfig config;
  CatCorpus() {
    std::string text;
    for (int i = 0; i < 10; ++i) text += "the cat " + std::to_string(i) + "\n<|endoftext|>\n";
    write_file_plain(folder / "in.txt", text);
    config.inputs = {folder / "in.txt"};
    config.corpus = {.folder = folder / "out", .name = "cats"};
    config.val_every = 4;
    config.threads = 2;
  }
};

}  // namespace assay
