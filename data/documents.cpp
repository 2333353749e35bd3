#include "data/documents.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr const char* kSpace = " \t\n\v\f\r";

bool is_jsonl(const std::string& file) {
  const std::string extension = fs::path(file).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

bool is_corpus_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".txt" || extension == ".text" || extension == ".md" ||
         is_jsonl(path.string());
}

[[noreturn]] void throw_unreadable(const std::string& path, const std::string& why) {
  throw UserError("cannot read " + path + ": " + why, "check the path and who may read it");
}

std::vector<std::string> list_folder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error))
    if (at->is_regular_file() && is_corpus_file(at->path())) files.push_back(at->path().string());
  if (error) throw_unreadable(folder, error.message());
  if (files.empty())
    throw UserError(
        "no text in the folder " + folder,
        "it needs files named *.txt, *.text, *.md, *.jsonl or *.ndjson; other files can "
        "be given by name");
  std::sort(files.begin(), files.end());
  return files;
}

// Before a space that follows a letter or digit two pieces meet, whatever is around them. 0: no such place.
size_t last_safe_cut(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;) {
    const unsigned char before = static_cast<unsigned char>(text[i - 1]);
    if (text[i] == ' ' && before < 0x80 && isalnum(before)) return i;
  }
  return 0;
}

}  // namespace

DocumentReader::DocumentReader(const std::vector<std::string>& paths, DocumentOptions options)
    : options_(std::move(options)) {
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw_unreadable(path, error ? error.message() : "No such file");
    if (fs::is_directory(status)) {
      for (std::string& file : list_folder(path)) files_.push_back(std::move(file));
    } else {
      files_.push_back(path);
    }
  }
  for (const std::string& file : files_) {
    std::error_code not_regular;  // a pipe has no size
    const auto size = fs::file_size(file, not_regular);
    if (!not_regular) bytes_total_ += static_cast<int64_t>(size);
  }
}

bool DocumentReader::open_next() {
  if (next_file_ == files_.size()) return false;
  const std::string& path = files_[next_file_++];
  file_.reset(std::fopen(path.c_str(), "rb"));
  if (file_ == nullptr) throw_unreadable(path, strerror(errno));
  buffer_.clear();
  at_ = scanned_ = 0;
  end_of_file_ = inside_ = false;
  line_ = 0;
  return true;
}

void DocumentReader::fill() {
  buffer_.erase(0, at_);
  scanned_ -= at_;
  at_ = 0;
  const size_t have = buffer_.size();
  buffer_.resize(have + kReadBytes);
  errno = 0;
  const size_t got = std::fread(buffer_.data() + have, 1, kReadBytes, file_.get());
  buffer_.resize(have + got);
  bytes_read_ += static_cast<int64_t>(got);
  if (std::ferror(file_.get())) throw_unreadable(files_[next_file_ - 1], strerror(errno));
  end_of_file_ = got == 0;
}

bool DocumentReader::next(RawDocument& document) {
  for (;;) {
    if (file_ == nullptr && !open_next()) return false;
    document.file = files_[next_file_ - 1];
    if (is_jsonl(document.file) ? next_line(document) : next_text(document)) return true;
    file_.reset();
  }
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
    // A separator may stand across the end of the buffer.
    scanned_ = std::max(at_, buffer_.size() - std::min(buffer_.size(), separator.size()));
    if (buffer_.size() - at_ > options_.part_bytes) {
      const size_t cut = last_safe_cut(std::string_view(buffer_).substr(at_, scanned_ - at_));
      if (cut > 0) {
        document.bytes.assign(buffer_, at_, cut);
        document.ends = false;
        at_ += cut;
        inside_ = true;
        return true;
      }
    }
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
      fill();
      continue;
    }
    if (end == std::string::npos) end = buffer_.size();
    if (at_ == buffer_.size()) return false;
    document.bytes.assign(buffer_, at_, end - at_);
    at_ = scanned_ = std::min(end + 1, buffer_.size());
    document.line = ++line_;
    if (document.bytes.find_first_not_of(kSpace) != std::string::npos) return true;
  }
}

std::string document_text(const RawDocument& document, const DocumentOptions& options) {
  std::string text;
  if (document.line == 0) {
    text = document.bytes;
  } else {
    const std::string where =
        strprintf("%s line %ld", document.file.c_str(), static_cast<long>(document.line));
    nlohmann::json object = nlohmann::json::parse(document.bytes, nullptr, false);
    if (object.is_discarded())
      throw UserError(where + " is not JSON",
                      "JSONL has one whole JSON object on each line, in UTF-8");
    const auto field = object.is_object() ? object.find(options.field) : object.end();
    if (field == object.end() || !field->is_string())
      throw UserError(
          strprintf("%s has no text in a field \"%s\"", where.c_str(), options.field.c_str()),
          "name the field that holds the text: --field NAME");
    text = std::move(field->get_ref<std::string&>());
  }
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  if (options.trim == Trim::kKeep) return text;
  if (document.ends) text.resize(text.find_last_not_of(kSpace) + 1);
  if (document.begins) text.erase(0, first);
  return text;
}

}  // namespace assay
