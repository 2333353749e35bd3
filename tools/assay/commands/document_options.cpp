#include "tools/assay/commands/document_options.h"

#include <cstdio>
#include <string_view>

#include "base/check.h"
#include "tools/assay/commands.h"

namespace assay {

namespace {

// Replaces the escapes \n, \r, \t and \\ as typed in a shell.
std::string unescaped(const std::string& text) {
  constexpr std::string_view kEscapes = "nrt\\", kCharacters = "\n\r\t\\";
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      plain += text[i];
      continue;
    }
    const size_t at = ++i < text.size() ? kEscapes.find(text[i]) : std::string_view::npos;
    if (at == std::string_view::npos) {
      throw UserError("--separator " + text + " has an unknown escape",
                      "those are \\n, \\r, \\t and \\\\");
    }
    plain += kCharacters[at];
  }
  return plain;
}

// "2 of 40 validation documents are training documents too; ..."; "" if none is.
std::string trained_val_text(const InputNotes& notes) {
  const int64_t trained = notes.trained_val_documents;
  if (trained == 0) return "";
  const bool one = trained == 1;
  // Without them there would be no validation text, which is an error.
  const char* const all = "give other validation text";
  const char* const some =
      one ? "--drop-duplicates leaves it out" : "--drop-duplicates leaves them out";
  return strprintf("%ld of %ld validation documents %s too; %s", static_cast<long>(trained),
                   static_cast<long>(notes.val_documents),
                   one ? "is a training document" : "are training documents",
                   trained == notes.val_documents ? all : some);
}

}  // namespace

DocumentOptions DocumentArguments::options() const {
  DocumentOptions options;
  options.separator = unescaped(separator);
  options.field = field;
  options.trim = keep_space ? Trim::kKeep : Trim::kStrip;
  options.unfinished = drop_unfinished ? Unfinished::kDrop : Unfinished::kKeep;
  options.bad_lines = skip_bad_lines ? BadLines::kSkip : BadLines::kRefuse;
  return options;
}

void add_document_options(CLI::App* subcommand, DocumentArguments& a) {
  subcommand
      ->add_option(
          "PATH", a.inputs,
          "text files, *.jsonl files, or folders of *.txt, *.md, *.jsonl, ... (read in order), "
          "plain or compressed (*.gz, *.zst)")
      ->required();
  subcommand->add_option(
      "--separator", a.separator,
      "separator of the documents in a text file; '\\n\\n' = paragraphs ('\\r\\n\\r\\n' if "
      "lines end so), '' = one document per file (default: <|endoftext|>)");
  subcommand->add_option("--field", a.field,
                         "field of a JSONL object that holds its text (default: text)");
  subcommand->add_flag("--skip-bad-lines", a.skip_bad_lines,
                       "skip and count JSONL lines that are not an object or have no text");
  subcommand->add_flag("--keep-space", a.keep_space, "keep white space around documents");
  subcommand->add_flag("--drop-unfinished", a.drop_unfinished,
                       "drop the last document of a text file if no separator ends it");
  subcommand
      ->add_option("--threads", a.threads, "worker threads; 0 = all usable cores (default: 0)")
      ->check(whole_between(0, 1024));
}

void warn_of_input(const InputNotes& notes) {
  const auto warn = [](int64_t count, const std::string& one, const std::string& many,
                       const std::string& first) {
    if (count > 0)
      std::fprintf(stderr, "warning: %ld %s, the first: %s\n", static_cast<long>(count),
                   (count == 1 ? one : many).c_str(), first.c_str());
  };
  warn(notes.skipped.lines, "bad line was skipped", "bad lines were skipped", notes.skipped.first);
  warn(notes.not_utf8, "document is not UTF-8", "documents are not UTF-8", notes.first_not_utf8);
  warn(notes.nul, "document holds NUL bytes (is its file UTF-16?)",
       "documents hold NUL bytes (are their files UTF-16?)", notes.first_nul);
  const std::string too_long =
      strprintf("of more than %zu MiB cannot be compared (--drop-duplicates)",
                DocumentOptions().part_bytes >> 20);
  warn(notes.too_long, "document " + too_long, "documents " + too_long, notes.first_too_long);
  warn(notes.trained_val_files, "validation file (--val) is trained on too",
       "validation files (--val) are trained on too", notes.first_trained_val);
  warn(notes.repeated.files, "file was given again, and is read once",
       "files were given again, and are read once", notes.repeated.first);
  if (const std::string text = trained_val_text(notes); !text.empty())
    std::fprintf(stderr, "warning: %s\n", text.c_str());
  warn(notes.packed_twins.files, "file has the name of another but for .gz or .zst; both are read",
       "files have the name of another but for .gz or .zst; all are read",
       notes.packed_twins.first);
  warn(notes.like_jsonl.files,
       "file was read as text, but begins as JSONL: name it *.jsonl if each line is a document",
       "files were read as text, but begin as JSONL: name them *.jsonl if each line is a document",
       notes.like_jsonl.first);
  warn(notes.left_out.unreadable, "entry of the folder cannot be read and was left out",
       "entries of the folders cannot be read and were left out", notes.left_out.first);
}

std::string files_text(const InputNotes& notes) {
  const int64_t other = notes.left_out.other_files;
  std::string text =
      strprintf("%ld %s read", static_cast<long>(notes.files), notes.files == 1 ? "file" : "files");
  if (other == 0) return text;
  text += strprintf("; %ld of other kinds left out (", static_cast<long>(other));
  constexpr size_t kMostShown = 8;
  size_t shown = 0;
  for (const std::string& kind : notes.left_out.kinds) {
    if (shown == kMostShown) break;
    text += (shown++ == 0 ? "" : ", ") + (kind.empty() ? "no extension" : kind);
  }
  return text + (shown < notes.left_out.kinds.size() ? ", ...)" : ")");
}

std::string splits_text(const InputNotes& notes, const DocumentArguments& a) {
  if (notes.splits == 0 || a.separator != DocumentArguments().separator) return "";
  return strprintf("%ld %s inside files at %s (--separator '' keeps files whole)\n",
                   static_cast<long>(notes.splits), notes.splits == 1 ? "split" : "splits",
                   a.separator.c_str());
}

}  // namespace assay
