// Telemetry that somebody else has made or edited: it runs nothing, writes nowhere, and ends.
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/telemetry.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_foreign_telemetry {
namespace {

const TelemetryLayout kSmall = {
    .scalars = {"loss_nats", "lr"}, .spans = {"forward"}, .layers = {1}, .experts = 4};

// Telemetry of one step with an event.
void write_small(const std::string& path) {
  Telemetry telemetry(path, kSmall);
  telemetry.begin_step(1).scalars[0] = 2.0;
  telemetry.commit();
  telemetry.event(1, "begin", "a run");
}

// False if this SQLite cannot do it.
bool edit(const std::string& path, const char* sql) {
  sqlite3* plain = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &plain) == SQLITE_OK);
  const int status = sqlite3_exec(plain, sql, nullptr, nullptr, nullptr);
  sqlite3_close(plain);
  return status == SQLITE_OK;
}

// Lets the table `event` have 18 levels of pages, each of which leads to the next one 60 times.
void make_endless(const std::string& path) {
  constexpr int kPage = 512, kLevels = 18, kCells = 60;
  constexpr int kCellBytes = 5;  // a page's number and a key
  REQUIRE(edit(path, "PRAGMA journal_mode=DELETE; PRAGMA page_size=512; VACUUM"));
  sqlite3* plain = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &plain) == SQLITE_OK);
  int root = 0;
  const auto keep = [](void* to, int, char** values, char**) {
    *static_cast<int*>(to) = std::atoi(values[0]);
    return 0;
  };
  REQUIRE(sqlite3_exec(plain, "SELECT rootpage FROM sqlite_schema WHERE name = 'event'", keep,
                       &root, nullptr) == SQLITE_OK);
  sqlite3_close(plain);
  std::string bytes = read_file(path);
  const int first_new = int(bytes.size()) / kPage + 1;
  const auto big_endian = [](uint32_t value) {
    return std::string{char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
  };
  // An interior page: its header with the last child, the places of its cells, the cells.
  const auto leading_to = [&](int child) {
    std::string page(kPage, '\0');
    const int cells_at = kPage - kCells * kCellBytes;
    page.replace(0, 12,
                 std::string{5, 0, 0, 0, kCells, char(cells_at >> 8), char(cells_at), 0} +
                     big_endian(uint32_t(child)));
    for (int i = 0; i < kCells; ++i) {
      const int at = cells_at + i * kCellBytes;
      page[size_t(12 + 2 * i)] = char(at >> 8);
      page[size_t(13 + 2 * i)] = char(at);
      page.replace(size_t(at), kCellBytes, big_endian(uint32_t(child)) + char(i + 1));
    }
    return page;
  };
  const std::string leaf = bytes.substr(size_t(root - 1) * kPage, kPage);
  bytes.replace(size_t(root - 1) * kPage, kPage, leading_to(first_new));
  for (int level = 1; level < kLevels; ++level) bytes += leading_to(first_new + level);
  bytes += leaf;
  bytes.replace(28, 4, big_endian(uint32_t(bytes.size() / kPage)));
  write_file_atomic(path, bytes);
}

}  // namespace

TEST_CASE("a database with anything that runs is refused") {
  const TempFolder folder;
  for (const char* sql :
       {"DROP TABLE scalar; CREATE VIEW scalar AS WITH RECURSIVE n(step) AS (SELECT 1 UNION ALL "
        "SELECT step + 1 FROM n) SELECT step, 'train_loss_nats' AS name, 1.0 AS value FROM n",
        "CREATE TRIGGER t AFTER INSERT ON scalar BEGIN DELETE FROM eval; END",
        "CREATE VIRTUAL TABLE words USING fts4(text)",
        "CREATE INDEX i ON scalar(length(zeroblob(step)))",
        "CREATE INDEX i ON scalar(step) WHERE length(zeroblob(step)) > 0",
        "ALTER TABLE eval ADD COLUMN t AS (length(zeroblob(step)))",
        "DROP TABLE scalar; CREATE TABLE scalar(step INTEGER, name TEXT, raw REAL, value REAL AS "
        "(raw + length(zeroblob(100000000))) STORED)",
        "ALTER TABLE router_layer ADD COLUMN more REAL DEFAULT 7",
        "DROP TABLE meta; CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT DEFAULT "
        "(length(zeroblob(100000000))))"}) {
    const std::string path = folder / "t.db";
    std::filesystem::remove(path);
    write_small(path);
    INFO(sql);
    if (!edit(path, sql)) continue;  // a SQLite without fts4
    expect_error([&] { TelemetryReader reader(path); }, "that is none of assay's");
    expect_error([&] { Telemetry telemetry(path, kSmall); }, "that is none of assay's");
    expect_error([&] { copy_telemetry(path, folder / "copy.db", 1); }, "that is none of assay's");
  }
}

TEST_CASE("an index of columns that somebody added is no danger") {
  const TempFolder folder;
  const std::string path = folder / "t.db";
  write_small(path);
  REQUIRE(edit(path, "CREATE INDEX mine ON scalar(name, value)"));
  REQUIRE(TelemetryReader(path).last_step() == 1);
}

TEST_CASE("a row of many megabytes is not read, and a condition of a table is not computed") {
  const TempFolder folder;
  const std::string path = folder / "t.db";
  write_small(path);
  REQUIRE(edit(path,
               "INSERT INTO meta VALUES('large', zeroblob(70000000));"
               "DROP TABLE event; CREATE TABLE event(step INTEGER, time TEXT, kind TEXT, "
               "detail TEXT, CHECK(0))"));
  expect_error([&] { TelemetryReader(path).meta("large"); }, "too big");
  Telemetry telemetry(path, kSmall);
  telemetry.event(1, "end", "steps");
  telemetry.flush();
  REQUIRE(TelemetryReader(path).events("end") == 1);
}

TEST_CASE("tables whose pages lead to each other are refused") {
  const TempFolder folder;
  const std::string path = folder / "t.db";
  write_small(path);
  make_endless(path);
  REQUIRE(std::filesystem::file_size(path) < 100'000);
  expect_error([&] { TelemetryReader(path).events("end"); }, "its tables have no end");
}

TEST_CASE("telemetry from elsewhere writes and deletes no other file") {
  const TempFolder folder;
  make_folders(folder / "run");
  const std::string path = folder / "run/telemetry.db", victim = folder / "victim";
  write_small(path);
  write_file_atomic(victim, "precious");
  const auto write = [&] { Telemetry telemetry(path, kSmall); };
  const auto read = [&] { TelemetryReader reader(path); };
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    const std::string link = path + suffix;
    std::filesystem::create_symlink("../victim", link);
    expect_error(write, link + " is a link");
    expect_error(read, link + " is a link");
    std::filesystem::remove(link);
  }
  // The end of a journal by which SQLite would delete a file: its name, length and checksum.
  const std::string journal = path + "-journal", magic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  write_file_atomic(journal, std::string(512, ' ') + victim + std::string(8, ' ') + magic);
  expect_error(write, journal + " names another file");
  expect_error(read, journal + " names another file");
  std::filesystem::remove(journal);
  REQUIRE(TelemetryReader(path).last_step() == 1);

  std::filesystem::rename(path, folder / "other.db");
  std::filesystem::create_symlink("../other.db", path);
  expect_error(write, path + " is a link");
  REQUIRE(TelemetryReader(path).last_step() == 1);  // nothing is written
  REQUIRE(read_file(victim) == "precious");
}

}  // namespace assay::test_foreign_telemetry
