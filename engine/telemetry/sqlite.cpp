#include "engine/telemetry/sqlite.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/math.h"
#include "base/read_failed.h"

namespace assay {
namespace {

constexpr const char* kHeldHint = "another program holds the file: close it";
constexpr int kLongWaitMs = 10'000, kBriefWaitMs = 200;
constexpr int kLargestRow = 64 << 20;  // bytes; the largest of ours are load vectors
// Operations of SQLite's machine. A row takes at least five bytes of the file, and our statements
// some tens of operations for each; the first number is of tables that are almost empty.
constexpr int64_t kOperations = 20'000'000, kOperationsEachByte = 100;
constexpr int kOperationsBetweenChecks = 1'000'000;

// Gives SQLite one block for its page cache, so that a writer does not allocate pages during a
// training step. Has no effect if SQLite is already initialised.
void plan_page_cache() {
  constexpr int kPageBytes = 4096, kPages = 320;
  int header_bytes = 0;
  sqlite3_config(SQLITE_CONFIG_PCACHE_HDRSZ, &header_bytes);
  const int slot = round_up(kPageBytes + header_bytes, 8);
  static std::vector<uint64_t> block(static_cast<size_t>(slot) / 8 * kPages);
  sqlite3_config(SQLITE_CONFIG_PAGECACHE, block.data(), slot, kPages);
}

// A transaction of several databases leaves a journal that ends with the name of another file and
// these bytes. SQLite undoes the transaction and then deletes that file, whatever it is. Telemetry
// is one database: it never leaves such a name.
constexpr std::string_view kJournalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";

void require_no_file_to_delete(const std::string& journal) {
  const int file = open_regular(journal);
  if (file < 0) return;  // absent, or SQLite cannot open it either
  char end[kJournalMagic.size()] = {};
  struct stat info = {};
  const bool is_long = fstat(file, &info) == 0 && info.st_size >= int64_t{sizeof end};
  const bool is_read = is_long && pread(file, end, sizeof end, info.st_size - off_t{sizeof end}) ==
                                      ssize_t{sizeof end};
  close(file);
  if (!is_read || std::string_view(end, sizeof end) != kJournalMagic) return;
  throw UserError(journal + " names another file, which SQLite would delete",
                  "no run leaves such a journal: do not trust this folder, or move the journal "
                  "away");
}

// The database may be read through a link, since nothing is written then.
void require_harmless_files(const std::string& path, Database::Mode mode) {
  std::error_code ignored;
  std::string at = path;
  if (mode == Database::Mode::kCreate) {
    require_no_link(path);
  } else if (const auto target = std::filesystem::canonical(path, ignored); !ignored) {
    at = target.string();
  }
  // SQLite opens these beside it, and waits for a writer of a pipe.
  for (const char* suffix : {"-journal", "-wal", "-shm"}) require_no_link(at + suffix);
  require_no_file_to_delete(at + "-journal");
}

}  // namespace

Database::Database(std::string path, Mode mode, Wait wait) : path_(std::move(path)) {
  require_harmless_files(path_, mode);
  static std::once_flag planned;
  std::call_once(planned, plan_page_cache);
  const int flags =
      mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int status =
      sqlite3_open_v2(path_.c_str(), &handle_, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  if (status != SQLITE_OK) {
    const std::string why = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(status);
    const bool too_many = handle_ != nullptr && too_many_files(sqlite3_system_errno(handle_));
    sqlite3_close(handle_);
    throw ReadFailed("cannot open " + path_ + ": " + why,
                     too_many ? kTooManyFiles : "check the path and its permissions");
  }
  sqlite3_busy_timeout(handle_, wait == Wait::kBrief ? kBriefWaitMs : kLongWaitMs);
  // A file from elsewhere may hold views, triggers and functions that run for ever; ours has none.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, kLargestRow);
  sqlite3_progress_handler(handle_, kOperationsBetweenChecks, exceeds_file, this);
  sqlite3_exec(handle_, "PRAGMA ignore_check_constraints=1", nullptr, nullptr, nullptr);
  // Reports pass over the tables many times. This waits for a program that holds the file; what
  // else is wrong with it the first statement finds.
  if (mode == Mode::kReadOnly &&
      sqlite3_exec(handle_, "PRAGMA cache_size=-65536", nullptr, nullptr, nullptr) == SQLITE_BUSY) {
    const std::string why = sqlite3_errmsg(handle_);
    sqlite3_close(handle_);
    throw ReadFailed(path_ + ": cannot be read: " + why, kHeldHint);
  }
}

// Pages of a crafted file can lead to each other so that a few kilobytes have 2^60 rows. SQLite
// adds the operations of a step to the statement's when the step ends, so those of the one that
// runs are counted here.
int Database::exceeds_file(void* database) {
  const auto& self = *static_cast<const Database*>(database);
  const int64_t of_step = kOperationsBetweenChecks * ++self.checks_of_step_;
  int64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    std::error_code absent;
    const auto size = std::filesystem::file_size(self.path_ + suffix, absent);
    if (!absent) bytes += int64_t(size);
  }
  const int64_t most = kOperations + kOperationsEachByte * bytes;
  for (sqlite3_stmt* one = sqlite3_next_stmt(self.handle_, nullptr); one != nullptr;
       one = sqlite3_next_stmt(self.handle_, one)) {
    const auto before =
        static_cast<uint32_t>(sqlite3_stmt_status(one, SQLITE_STMTSTATUS_VM_STEP, 0));
    if (sqlite3_stmt_busy(one) != 0 && before + of_step > most) return 1;
  }
  return 0;
}

Database::~Database() {
  sqlite3_close(handle_);
}

void Database::fail(const std::string& what) const {
  const int code = sqlite3_errcode(handle_);
  const char* hint = "check the disk and the permissions there";
  if (code == SQLITE_FULL)
    hint =
        "free space and run the same command again, without --fresh: the run continues from its "
        "last checkpoint";
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
    hint =
        "the file is damaged: put back a copy of it, or move it away (the checkpoints are not "
        "affected): `assay train` then continues an unfinished run without the figures so far";
  if (code == SQLITE_INTERRUPT) {
    throw UserError(path_ + ": " + what + ": its tables have no end",
                    "the file is damaged, or was made to hold its reader up");
  }
  const bool held = code == SQLITE_BUSY || code == SQLITE_LOCKED || code == SQLITE_PROTOCOL;
  if (held) hint = kHeldHint;
  const bool too_many = code == SQLITE_CANTOPEN && too_many_files(sqlite3_system_errno(handle_));
  if (too_many) hint = kTooManyFiles;
  const std::string message = path_ + ": " + what + ": " + sqlite3_errmsg(handle_);
  if (held || too_many || code == SQLITE_IOERR || code == SQLITE_NOMEM) {
    throw ReadFailed(message, hint);
  }
  throw UserError(message, hint);
}

void Database::run(const std::string& sql) {
  begin_step();
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    fail("cannot write");
}

std::string quoted_name(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

Statement::Statement(const Database& database, const std::string& sql) : database_(database) {
  const int status = sqlite3_prepare_v3(database.handle(), sql.c_str(), -1,
                                        SQLITE_PREPARE_PERSISTENT, &handle_, nullptr);
  if (status != SQLITE_OK) database.fail("cannot be used");
}

Statement::~Statement() {
  sqlite3_finalize(handle_);
}

Statement& Statement::bind(int at, int64_t value) {
  sqlite3_bind_int64(handle_, at + 1, value);
  return *this;
}

Statement& Statement::bind(int at, double value) {
  if (std::isnan(value)) {
    sqlite3_bind_null(handle_, at + 1);
  } else {
    sqlite3_bind_double(handle_, at + 1, value);
  }
  return *this;
}

Statement& Statement::bind(int at, std::string_view text) {
  sqlite3_bind_text64(handle_, at + 1, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_blob(int at, const void* data, size_t bytes) {
  sqlite3_bind_blob64(handle_, at + 1, data, bytes, SQLITE_STATIC);
  return *this;
}

bool Statement::step() {
  database_.begin_step();
  const int status = sqlite3_step(handle_);
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  database_.fail("cannot be read or written");
}

void Statement::reset() {
  sqlite3_reset(handle_);
  sqlite3_stmt_status(handle_, SQLITE_STMTSTATUS_VM_STEP, 1);
}

void Statement::execute() {
  struct AtEnd {
    Statement& statement;
    ~AtEnd() { statement.reset(); }
  } at_end{*this};
  step();
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_, column);
}

double Statement::number(int column) const {
  if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(handle_, column);
}

std::string Statement::text(int column) const {
  const unsigned char* text = sqlite3_column_text(handle_, column);
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

std::string_view Statement::blob(int column) const {
  const void* data = sqlite3_column_blob(handle_, column);
  return {static_cast<const char*>(data),
          static_cast<size_t>(sqlite3_column_bytes(handle_, column))};
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.run("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

}  // namespace assay
