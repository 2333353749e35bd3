#include "engine/telemetry/telemetry.h"

#include <sqlite3.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/utc.h"
#include "engine/telemetry/expert_load_codec.h"

namespace assay {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

// "INSERT ... table(key, columns) VALUES(?, ...)"
template <typename Columns>
std::string insert_row(const std::string& table, const std::string& key, int keys,
                       const Columns& columns) {
  std::string names = key, places = "?";
  for (int i = 1; i < keys; ++i) places += ", ?";
  for (const auto& column : columns) {
    names += std::string(", ") + column.name;
    places += ", ?";
  }
  return "INSERT OR REPLACE INTO " + table + "(" + names + ") VALUES(" + places + ")";
}

// For a run that an earlier version began.
template <typename Columns>
void add_missing_columns(Database& database, const std::string& table, const Columns& columns) {
  for (const auto& column : columns) {
    Statement there(database, "SELECT 1 FROM pragma_table_info('" + table + "') WHERE name = ?");
    there.bind(0, std::string_view(column.name));
    if (there.step()) continue;
    there.reset();
    database.run("ALTER TABLE " + table + " ADD COLUMN " + column.name + " REAL");
  }
}

void prepare_database(Database& database) {
  Statement version(database, "PRAGMA user_version");
  version.step();
  const int64_t found = version.integer(0);
  version.reset();
  if (found > kTelemetryVersion) {
    throw UserError(database.path() + ": has version " + std::to_string(found) +
                        ", this program writes version " + std::to_string(kTelemetryVersion),
                    "written by a newer assay: use that one, or another run directory");
  }
  require_plain_tables(database);
  // With a WAL, readers see the last complete step during the run; flush() makes it survive a power
  // failure.
  database.run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=256;");
  database.run(telemetry_schema());
  add_missing_columns(database, "router_layer", router_columns());
  add_missing_columns(database, "precision", precision_columns());
  database.run("PRAGMA user_version=" + std::to_string(kTelemetryVersion));
}

}  // namespace

struct Telemetry::Writer {
  explicit Writer(Database& database, const TelemetryLayout& layout)
      : begin(database, "BEGIN IMMEDIATE"),
        commit(database, "COMMIT"),
        scalar(database, "INSERT OR REPLACE INTO scalar VALUES(?, ?, ?)"),
        span(database, "INSERT OR REPLACE INTO span VALUES(?, ?, ?)"),
        router(database, insert_row("router_layer", "step, layer", 2, router_columns())),
        load(database, "INSERT OR REPLACE INTO expert_load VALUES(?, ?, ?)"),
        eval(database, "INSERT OR REPLACE INTO eval VALUES(?, ?, ?, ?, ?)"),
        event(database, "INSERT INTO event VALUES(?, ?, ?, ?)"),
        precision(database, insert_row("precision", "step, layer, weight, operand, role, format", 6,
                                       precision_columns())),
        rank(database, "INSERT OR REPLACE INTO rank_step VALUES(?, ?, ?, ?, ?, ?)"),
        meta(database, "INSERT OR REPLACE INTO meta VALUES(?, ?)"),
        packer(layout.experts) {}

  void write(const StepRecord& record, const TelemetryLayout& layout) {
    begin.execute();
    for (size_t i = 0; i < layout.scalars.size(); ++i) {
      if (std::isnan(record.scalars[i])) continue;
      scalar.bind(0, record.step).bind(1, layout.scalars[i]).bind(2, record.scalars[i]).execute();
    }
    for (size_t i = 0; i < layout.spans.size(); ++i) {
      if (std::isnan(record.spans_ms[i])) continue;
      span.bind(0, record.step).bind(1, layout.spans[i]).bind(2, record.spans_ms[i]).execute();
    }
    for (size_t m = 0; m < layout.layers.size(); ++m) write_layer(record, m, layout);
    for (size_t i = 0; i < layout.operands.size(); ++i) {
      write_loss(record.step, layout.operands[i], record.precision[i]);
    }
    for (size_t r = 0; r < record.ranks.size(); ++r) {
      write_rank(record.step, int64_t(r), record.ranks[r]);
    }
    commit.execute();
  }

  void write_rank(int64_t step, int64_t number, const RankStep& row) {
    rank.bind(0, step).bind(1, number).bind(2, row.step_ms).bind(3, row.wait_ms);
    rank.bind(4, row.bytes_sent).bind(5, row.peak_rss_bytes).execute();
  }

  void write_loss(int64_t step, const OperandSite& site, const OperandLoss& loss) {
    if (std::isnan(loss.flushed)) return;
    precision.bind(0, step).bind(1, site.layer).bind(2, site.weight).bind(3, site.operand);
    precision.bind(4, site.role).bind(5, site.format);
    int at = 6;
    for (const PrecisionColumn& column : precision_columns()) {
      precision.bind(at++, loss.*column.value);
    }
    precision.execute();
  }

  void write_layer(const StepRecord& record, size_t m, const TelemetryLayout& layout) {
    const RouterRow& row = record.router[m];
    router.bind(0, record.step).bind(1, row.layer);
    int at = 2;
    for (const RouterColumn& column : router_columns()) router.bind(at++, column.value(row));
    router.execute();

    const std::string_view packed =
        packer.pack({record.counts.data() + int64_t(m) * layout.experts, {layout.experts}});
    load.bind(0, record.step).bind(1, row.layer);
    load.bind_blob(2, packed.data(), packed.size()).execute();
  }

  Statement begin, commit, scalar, span, router, load, eval, event, precision, rank, meta;
  LoadPacker packer;
};

Telemetry::Telemetry(const std::string& path, TelemetryLayout layout)
    : layout_(std::move(layout)), database_(path, Database::Mode::kCreate) {
  prepare_database(database_);
  writer_ = std::make_unique<Writer>(database_, layout_);
  slots_.resize(kSlots);
  for (StepRecord& slot : slots_) {
    slot.scalars.resize(layout_.scalars.size());
    slot.spans_ms.resize(layout_.spans.size());
    slot.router.resize(layout_.layers.size());
    slot.precision.resize(layout_.operands.size());
    slot.counts.resize(layout_.layers.size() * static_cast<size_t>(layout_.experts));
  }
  thread_ = std::thread([this] { work(); });
}

Telemetry::~Telemetry() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  writer_.reset();
  // A finished database without a WAL file can also be read from a read-only disk. That needs a
  // moment without a reader: `assay watch` reads now and then.
  constexpr int kTries = 100;
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (int i = 0; i < kTries; ++i) {
    const int status =
        sqlite3_exec(database_.handle(), "PRAGMA journal_mode=DELETE", nullptr, nullptr, nullptr);
    if (status != SQLITE_BUSY) break;
    std::this_thread::sleep_for(kPause);
  }
}

namespace {

// The rows of later steps, in every table that has steps.
void delete_after(Database& database, int64_t step) {
  for (const char* table : {"scalar", "span", "router_layer", "expert_load", "eval", "event",
                            "precision", "rank_step"}) {
    Statement(database, std::string("DELETE FROM ") + table + " WHERE step > ?")
        .bind(0, step)
        .execute();
  }
}

}  // namespace

void copy_telemetry(const std::string& from, const std::string& to, int64_t step) {
  {
    Database original(from, Database::Mode::kReadOnly);
    require_plain_tables(original);
    Statement(original, "VACUUM INTO ?").bind(0, std::string_view(to)).execute();
  }
  Database copy(to, Database::Mode::kCreate);
  prepare_database(copy);  // an earlier version may have written fewer tables
  {
    Transaction transaction(copy);
    delete_after(copy, step);
    transaction.commit();
  }
  copy.run("PRAGMA journal_mode=DELETE");
}

void Telemetry::truncate_after(int64_t step, const std::string& detail) {
  flush();
  const std::lock_guard lock(database_mutex_);
  Transaction transaction(database_);
  delete_after(database_, step);
  const std::string now = utc_now();
  writer_->event.bind(0, step).bind(1, now).bind(2, "resume").bind(3, detail).execute();
  transaction.commit();
}

void Telemetry::forget_first_validation() {
  flush();
  const std::lock_guard lock(database_mutex_);
  Statement(database_, "DELETE FROM eval WHERE step = 0 AND (task = 'val' OR task LIKE 'val/%')")
      .execute();
}

StepRecord& Telemetry::begin_step(int64_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queued_ < kSlots || failure_; });
  rethrow_failure();
  StepRecord& slot = slots_[static_cast<size_t>((first_ + queued_) % kSlots)];
  slot.step = step;
  std::fill(slot.scalars.begin(), slot.scalars.end(), kAbsent);
  std::fill(slot.spans_ms.begin(), slot.spans_ms.end(), kAbsent);
  std::fill(slot.precision.begin(), slot.precision.end(), OperandLoss{});
  std::fill(slot.counts.begin(), slot.counts.end(), 0u);
  slot.ranks.clear();
  for (size_t m = 0; m < slot.router.size(); ++m) {
    slot.router[m] = RouterRow{};
    slot.router[m].layer = layout_.layers[m];
  }
  return slot;
}

void Telemetry::commit() {
  {
    const std::lock_guard lock(mutex_);
    ++queued_;
  }
  changed_.notify_all();
}

void Telemetry::work() {
  for (;;) {
    const StepRecord* record = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return queued_ > 0 || stop_; });
      if (queued_ == 0) return;
      if (!failure_) record = &slots_[static_cast<size_t>(first_)];
    }
    std::exception_ptr failure;
    if (record != nullptr) {  // null after a failure: the following steps are dropped
      const std::lock_guard lock(database_mutex_);
      try {
        writer_->write(*record, layout_);
      } catch (...) {
        failure = std::current_exception();
        sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
      }
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure) failure_ = failure;
      first_ = (first_ + 1) % kSlots;
      --queued_;
    }
    changed_.notify_all();
  }
}

void Telemetry::rethrow_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void Telemetry::scalar(int64_t step, const std::string& name, double value) {
  const std::lock_guard lock(database_mutex_);
  writer_->scalar.bind(0, step).bind(1, name).bind(2, value).execute();
}

void Telemetry::evals(int64_t step, const std::vector<EvalRow>& rows) {
  const std::lock_guard lock(database_mutex_);
  Transaction transaction(database_);
  for (const EvalRow& r : rows) {
    writer_->eval.bind(0, step).bind(1, r.task).bind(2, r.metric).bind(3, r.value).bind(4, r.n);
    writer_->eval.execute();
  }
  transaction.commit();
}

void Telemetry::event(int64_t step, const std::string& kind, const std::string& detail) {
  const std::lock_guard lock(database_mutex_);
  const std::string now = utc_now();
  writer_->event.bind(0, step).bind(1, now).bind(2, kind).bind(3, detail).execute();
}

bool Telemetry::has_event(const std::string& kind, const std::string& detail) {
  const std::lock_guard lock(database_mutex_);
  Statement found(database_, "SELECT 1 FROM event WHERE kind = ? AND detail = ?");
  found.bind(0, kind).bind(1, detail);
  return found.step();
}

void Telemetry::set_meta(const std::string& key, const std::string& value) {
  const std::lock_guard lock(database_mutex_);
  writer_->meta.bind(0, key).bind(1, value).execute();
}

void Telemetry::flush() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queued_ == 0; });
    rethrow_failure();
  }
  const std::lock_guard lock(database_mutex_);
  // Syncs the WAL and the database. An active reader can make it partial, but not wrong.
  sqlite3_wal_checkpoint_v2(database_.handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr,
                            nullptr);
}

}  // namespace assay
