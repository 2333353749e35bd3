#include "data/documents.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/suggest.h"
#include "data/file_kind.h"
#include "data/json_text.h"
#include "data/utf8.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr const char* kOneObject =
    "JSONL has one whole JSON object on each line, in UTF-8; --skip-bad-lines skips other lines";
constexpr const char* kNameTheField =
    "name the field that holds the text: --field NAME; --skip-bad-lines skips lines without it";

std::string unpacked_extension(const std::string& file) {
  return lower_extension(unpacked_name(file));
}

bool is_jsonl(const std::string& file) {
  const std::string extension = unpacked_extension(file);
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

// A plain *.json in a folder usually describes the corpus and is not part of it.
bool is_corpus_file(const std::string& file) {
  const std::string extension = unpacked_extension(file);
  return extension == ".txt" || extension == ".text" || extension == ".md" ||
         (is_jsonl(file) && lower_extension(file) != ".json");
}

// For a hint: what a name that is not there may stand for; "" if its folder has none like it.
std::string meant_instead_of(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  const fs::path named = whole.has_filename() ? whole : whole.parent_path();  // "x/" is x
  const fs::path folder = named.parent_path();
  try {
    const std::vector<std::string> names = names_in(folder.empty() ? "." : folder.string());
    const std::string near = nearest_name(named.filename().string(), names);
    const bool is_broken = near == named.filename();  // a link to nothing has that name
    if (!near.empty() && !is_broken) return "did you mean " + (folder / near).string() + "? ";
  } catch (const UserError&) {  // the folder cannot be read
  }
  return "";
}

void count_unreadable(LeftOut& left_out, const fs::path& path, const std::string& why) {
  if (left_out.unreadable++ == 0) left_out.first = path.string() + ": " + why;
}

bool readable(const fs::path& path, int rights) {
  return access(path.c_str(), rights) == 0;
}

// True if the entry is a file that belongs to the corpus. What is left out is counted.
bool keep_entry(const fs::directory_entry& entry, LeftOut& left_out) {
  std::error_code error;
  const fs::file_status status = entry.status(error);
  if (!fs::status_known(status) || !fs::exists(status)) {
    count_unreadable(
        left_out, entry.path(),
        error && error != std::errc::no_such_file_or_directory ? error.message() : "a broken link");
    return false;
  }
  if (fs::is_directory(status)) {
    if (entry.is_symlink(error))
      count_unreadable(left_out, entry.path(), "a link to a folder is not followed");
    return false;
  }
  if (!is_corpus_file(entry.path().string()) || !fs::is_regular_file(status)) {
    ++left_out.other_files;
    left_out.kinds.insert(entry.path().extension().string());
    return false;
  }
  if (!readable(entry.path(), R_OK)) {
    count_unreadable(left_out, entry.path(), strerror(errno));
    return false;
  }
  return true;
}

std::vector<std::string> list_folder(const std::string& folder, LeftOut& left_out) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (keep_entry(*at, left_out)) files.push_back(at->path().string());
    std::error_code ignored;
    const bool inner = at->is_directory(ignored) && !at->is_symlink(ignored);
    if (inner && !readable(at->path(), R_OK | X_OK)) {
      count_unreadable(left_out, at->path(), strerror(errno));
      at.disable_recursion_pending();
    }
  }
  if (error) throw_unreadable(folder, error.message());
  if (files.empty())
    throw UserError(
        "no text in the folder " + folder +
            (left_out.unreadable > 0 ? "; not readable: " + left_out.first : ""),
        "it needs files named *.txt, *.text, *.md, *.jsonl or *.ndjson, plain or with .gz or .zst; "
        "give other files by name");
  std::sort(files.begin(), files.end());
  return files;
}

// The last position before a space that follows an ASCII letter or digit; two pieces always meet
// there. 0 if there is none.
size_t last_safe_cut(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;) {
    const unsigned char before = static_cast<unsigned char>(text[i - 1]);
    if (text[i] == ' ' && before < 0x80 && isalnum(before)) return i;
  }
  return 0;
}

const char* with_article(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (value.is_string()) return "a string";
  return value.is_boolean() ? "true or false" : "a number";
}

// Throws for a first line that shows that the whole file is one JSON array, or one object over
// several lines.
void require_lines(const RawDocument& document) {
  if (document.line != 1) return;
  const size_t first = document.bytes.find_first_not_of(kDocumentSpace);
  const std::string_view rest =
      std::string_view(document.bytes).substr(std::min(first, document.bytes.size()));
  if (rest.starts_with("["))
    throw BadLine(
        document.file + " is one JSON array; expected one object per line",
        "take the array apart, e.g. with: jq -c '.[]' " + document.file + " > lines.jsonl");
  if (rest.find_last_not_of(kDocumentSpace) == 0 && rest[0] == '{')
    throw BadLine(
        document.file + " is JSON over several lines; expected one object per line",
        "write each object on one line, e.g. with: jq -c . " + document.file + " > lines.jsonl");
}

// Whether a text begins as JSONL does: its first line is an object with a string in the field.
bool begins_as_jsonl(std::string_view text, const std::string& field) {
  const size_t first = text.find_first_not_of(kDocumentSpace);
  if (first == std::string::npos || text[first] != '{') return false;
  const auto object = json_of(text.substr(first, text.find('\n', first) - first));
  const auto found = object.is_object() ? object.find(field) : object.end();
  return found != object.end() && found->is_string();
}

// The text in the field of a JSONL line. The parser's errors name the byte of the line, from 1.
std::string field_text(const RawDocument& document, const std::string& field) {
  const std::string where =
      strprintf("%s line %ld", document.file.c_str(), static_cast<long>(document.line));
  require_lines(document);
  if (json_is_too_deep(document.bytes)) {
    throw BadLine(where + strprintf(" is nested more than %d deep", kDeepestJson), kOneObject);
  }
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(document.bytes);  // not too deep: above
  } catch (const nlohmann::json::parse_error& error) {
    // Of the bytes before the error; those behind it may be wrong too. error.what() has the text.
    const size_t wrong = first_not_utf8(document.bytes);
    const bool utf8 = wrong == document.bytes.size() || wrong >= error.byte;
    throw BadLine(
        strprintf("%s is not %s: byte %zu", where.c_str(), utf8 ? "JSON" : "UTF-8", error.byte),
        kOneObject);
  } catch (const nlohmann::json::exception&) {
    throw BadLine(where + " is not JSON: a number is too large", kOneObject);
  }
  if (!object.is_object())
    throw BadLine(where + " is " + with_article(object) + ", not a JSON object", kOneObject);
  const auto found = object.find(field);
  if (found == object.end())
    throw BadLine(where + " has no field \"" + field + "\"", kNameTheField);
  if (!found->is_string())
    throw BadLine(
        where + ": the field \"" + field + "\" is " + with_article(*found) + ", not a string",
        kNameTheField);
  return std::move(found->get_ref<std::string&>());
}

}  // namespace

DocumentReader::DocumentReader(const std::vector<std::string>& paths, DocumentOptions options)
    : options_(std::move(options)) {
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      throw_unreadable(path, error ? error.message() : "No such file", meant_instead_of(path));
    }
    if (fs::is_directory(status)) {
      for (std::string& file : list_folder(path, left_out_)) files_.push_back(std::move(file));
    } else {
      files_.push_back(path);
    }
  }
  drop_repeated();
  note_packed_twins();
  for (const std::string& file : files_) {
    std::error_code not_regular;  // a pipe has no size
    const auto size = fs::file_size(file, not_regular);
    if (!not_regular) bytes_total_ += static_cast<int64_t>(size);
  }
}

// Only of regular files, which can be read again; another link to a file is the same file.
void DocumentReader::drop_repeated() {
  std::map<std::pair<dev_t, ino_t>, std::string> first_names;
  std::vector<std::string> files;
  for (std::string& file : files_) {
    struct stat status;
    if (stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      const std::pair key(status.st_dev, status.st_ino);
      const auto [first, is_new] = first_names.try_emplace(key, file);
      if (!is_new) {
        if (repeated_.files++ == 0) repeated_.first = file + ", as " + first->second;
        continue;
      }
    }
    files.push_back(std::move(file));
  }
  files_ = std::move(files);
}

void DocumentReader::note_packed_twins() {
  const auto normal = [](const std::string& path) {
    return fs::path(path).lexically_normal().string();
  };
  std::map<std::string, std::string> by_name;  // without .gz and .zst
  for (const std::string& file : files_) {
    const auto [other, is_new] = by_name.try_emplace(normal(unpacked_name(file)), file);
    if (is_new || normal(file) == normal(other->second)) continue;  // a pipe may be given twice
    if (packed_twins_.files++ == 0) packed_twins_.first = file + ", beside " + other->second;
  }
}

bool DocumentReader::open_next() {
  if (next_file_ == files_.size()) return false;
  file_ = std::make_unique<InputFile>(files_[next_file_++]);
  buffer_.clear();
  at_ = scanned_ = 0;
  end_of_file_ = inside_ = looked_ = false;
  line_ = 0;
  if (!is_jsonl(files_[next_file_ - 1])) begin_text();
  return true;
}

// Some editors begin a text with a byte order mark. The parser of JSON skips it.
void DocumentReader::begin_text() {
  static_assert(kSignatureBytes >= kByteOrderMark.size());
  while (!end_of_file_ && buffer_.size() < kSignatureBytes) fill();
  if (const FileKind* kind = binary_kind(buffer_)) {
    throw UserError(files_[next_file_ - 1] + " is " + kind->name + ", not text", kind->as_text);
  }
  at_ = scanned_ = buffer_.size() - without_mark(buffer_).size();
}

void DocumentReader::close() {
  bytes_before_ += file_->bytes_read();
  read_.push_back({.bytes = file_->bytes_read(), .sha256 = file_->sha256()});
  split_may_follow_ = false;
  file_.reset();
}

void DocumentReader::fill() {
  buffer_.erase(0, at_);
  scanned_ -= at_;
  at_ = 0;
  const size_t have = buffer_.size();
  buffer_.resize(have + kReadBytes);
  const size_t got = file_->read(buffer_.data() + have, kReadBytes);
  buffer_.resize(have + got);
  end_of_file_ = got == 0;
  const bool enough = end_of_file_ || buffer_.size() >= kReadBytes;
  if (!looked_ && (enough || buffer_.find('\n') != std::string::npos)) look_for_jsonl();
}

// Of the first line of a text file.
void DocumentReader::look_for_jsonl() {
  looked_ = true;
  const std::string& file = files_[next_file_ - 1];
  if (is_jsonl(file) || !begins_as_jsonl(buffer_, options_.field)) return;
  if (like_jsonl_.files++ == 0) like_jsonl_.first = file;
}

// Before more is read behind what has no end yet.
void DocumentReader::require_bounded() const {
  if (buffer_.size() - at_ <= options_.most_bytes) return;
  const std::string& file = files_[next_file_ - 1];
  throw UserError(
      strprintf("%s has more than %zu MiB %s", file.c_str(), options_.most_bytes >> 20,
                is_jsonl(file) ? "in one line" : "of text without a space after a letter or digit"),
      "check that it is text, one JSON object per line where its name ends in .jsonl");
}

bool DocumentReader::next(RawDocument& document) {
  for (;;) {
    if (file_ == nullptr && !open_next()) return false;
    document.file_idx = next_file_ - 1;
    document.file = files_[document.file_idx];
    if (is_jsonl(document.file) ? next_line(document) : next_text(document)) {
      count_split(document);
      return true;
    }
    close();
  }
}

void DocumentReader::count_split(const RawDocument& document) {
  const bool is_text = document.line == 0 && document.begins &&
                       document.bytes.find_first_not_of(kDocumentSpace) != std::string::npos;
  if (!is_text) return;
  splits_ += split_may_follow_ ? 1 : 0;
  split_may_follow_ = true;
}

bool DocumentReader::next_text(RawDocument& document) {
  const std::string& separator = options_.separator;
  document.line = 0;
  document.begins = !inside_;
  for (;;) {
    const size_t found = separator.empty() ? std::string::npos : buffer_.find(separator, scanned_);
    if (found != std::string::npos) {
      document.bytes.assign(buffer_, at_, found - at_);
      document.ends = true;
      at_ = scanned_ = found + separator.size();
      inside_ = false;
      return true;
    }
    if (end_of_file_) break;
    // A separator may begin at the end of the buffer and end beyond it.
    scanned_ = std::max(at_, buffer_.size() - std::min(buffer_.size(), separator.size()));
    if (buffer_.size() - at_ > options_.part_bytes) {
      const std::string_view scanned = std::string_view(buffer_).substr(at_, scanned_ - at_);
      const size_t cut = last_safe_cut(scanned);
      if (cut > 0 &&
          (inside_ || cut > scanned.find_first_not_of(kDocumentSpace) + kFirstPartBytes)) {
        document.bytes.assign(buffer_, at_, cut);
        document.ends = false;
        at_ += cut;
        inside_ = true;
        return true;
      }
    }
    require_bounded();
    fill();
  }
  const bool drop = options_.unfinished == Unfinished::kDrop && !separator.empty() && !inside_;
  if (at_ == buffer_.size() || drop) return false;
  document.bytes.assign(buffer_, at_);
  document.ends = true;
  at_ = buffer_.size();
  inside_ = false;
  return true;
}

bool DocumentReader::next_line(RawDocument& document) {
  document.begins = document.ends = true;
  for (;;) {
    size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos && !end_of_file_) {
      scanned_ = buffer_.size();
      require_bounded();
      fill();
      continue;
    }
    if (end == std::string::npos) end = buffer_.size();
    if (at_ == buffer_.size()) return false;
    document.bytes.assign(buffer_, at_, end - at_);
    at_ = scanned_ = std::min(end + 1, buffer_.size());
    document.line = ++line_;
    if (document.bytes.find_first_not_of(kDocumentSpace) != std::string::npos) return true;
  }
}

std::string document_text(const RawDocument& document, const DocumentOptions& options) {
  std::string text = document.line == 0 ? document.bytes : field_text(document, options.field);
  const size_t first = text.find_first_not_of(kDocumentSpace);
  if (first == std::string::npos) return "";
  if (options.trim == Trim::kKeep) return text;
  if (document.ends) text.resize(text.find_last_not_of(kDocumentSpace) + 1);
  if (document.begins) text.erase(0, first);
  return text;
}

}  // namespace assay
