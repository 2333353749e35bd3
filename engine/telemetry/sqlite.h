// RAII wrappers of SQLite; every failure is a UserError that names the database, a ReadFailed where
// the file may be whole: it is held, the disk fails, too many files are open.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace assay {

// How long a database waits for a program that holds its file: ten seconds, or a fifth of one, for
// who looks again anyway.
enum class Wait { kLong, kBrief };

class Database {
 public:
  enum class Mode { kReadOnly, kCreate };

  // UserError too for what may harm other files: links (of the database itself only with kCreate),
  // pipes and devices, and a journal that names a file for SQLite to delete.
  Database(std::string path, Mode mode, Wait wait = Wait::kLong);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // Runs one or more statements without results.
  void run(const std::string& sql);
  sqlite3* handle() const { return handle_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& what) const;
  // Before each step of a statement: what takes more operations than a file of its size can need
  // fails.
  void begin_step() const { checks_of_step_ = 0; }

 private:
  // SQLite calls it now and then; not 0 ends what it does.
  static int exceeds_file(void* database);

  std::string path_;
  sqlite3* handle_ = nullptr;
  mutable std::atomic<int64_t> checks_of_step_ = 0;
};

// A name in a statement: a file from elsewhere may name a column by an expression.
std::string quoted_name(const std::string& name);

// A prepared statement. Parameters and columns count from 0. Text and blobs are not copied: they
// must live until the next reset.
class Statement {
 public:
  Statement(const Database& database, const std::string& sql);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  Statement& bind(int at, int64_t value);
  Statement& bind(int at, double value);  // NaN becomes NULL
  Statement& bind(int at, std::string_view text);
  Statement& bind_blob(int at, const void* data, size_t bytes);

  // True while there is a row.
  bool step();
  void reset();
  // For statements without rows: step, then reset.
  void execute();

  bool is_null(int column) const;
  int64_t integer(int column) const;
  double number(int column) const;  // NaN for NULL
  std::string text(int column) const;
  std::string_view blob(int column) const;  // valid until the next step

 private:
  const Database& database_;
  sqlite3_stmt* handle_ = nullptr;
};

// BEGIN IMMEDIATE ... COMMIT; rolled back if commit() is not called.
class Transaction {
 public:
  explicit Transaction(Database& database);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace assay
