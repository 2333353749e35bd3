// Writes telemetry.db during training: one transaction per logged step, by a thread of its own.
//
// The step fills a preallocated slot and hands it over; it neither allocates nor waits for the disk
// (unless the disk falls kSlots logged steps behind). Evaluations and events are rare and written
// immediately.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/view.h"
#include "engine/telemetry/schema.h"
#include "engine/telemetry/sqlite.h"

namespace assay {

// The names that a step records, fixed for the run. Names include units, as in train_loss_nats.
struct TelemetryLayout {
  std::vector<std::string> scalars;
  std::vector<std::string> spans;  // timed in milliseconds
  std::vector<int64_t> layers;     // block indices of the MoE layers
  int64_t experts = 0;
  std::vector<OperandSite> operands = {};
};

// One logged step; sizes follow the layout.
struct StepRecord {
  int64_t step = 0;
  std::vector<double> scalars;  // NaN = not measured in this step: no row is written
  std::vector<double> spans_ms;
  std::vector<RouterRow> router;       // layer is set
  std::vector<uint32_t> counts;        // (M, E) assignments of the step
  std::vector<OperandLoss> precision;  // in the order of layout.operands
  std::vector<RankStep> ranks;         // in the order of ranks; empty if there is one

  View<uint32_t, 1> layer_counts(int64_t moe_layer, int64_t experts) {
    return {counts.data() + moe_layer * experts, {experts}};
  }
};

class Telemetry {
 public:
  static constexpr int kSlots = 8;

  // Opens or creates the database and starts the thread. Throws UserError if that fails.
  Telemetry(const std::string& path, TelemetryLayout layout);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry();  // writes what is queued

  // Call before the first step of a resumed run: deletes every row after `step` and records the
  // event "resume" with the detail, in one transaction.
  void truncate_after(int64_t step, const std::string& detail);
  // Of a run that has no step yet: deletes its validations at step 0, which may be of other files
  // or another precision than those of this launch.
  void forget_first_validation();

  // Returns the slot to fill, with NaN scalars, spans and losses, zero counts, absent measures and
  // no ranks; commit() hands it over. Throws UserError if an earlier step could not be written.
  StepRecord& begin_step(int64_t step);
  void commit();

  // Of a step that is not logged; train_s and energy only, by which no step counts as logged.
  void scalar(int64_t step, const std::string& name, double value);
  // The values of one evaluation, all or none: one that is there is not measured again.
  struct EvalRow {
    std::string task, metric;
    double value;
    int64_t n;
  };
  void evals(int64_t step, const std::vector<EvalRow>& rows);
  void event(int64_t step, const std::string& kind, const std::string& detail);
  bool has_event(const std::string& kind, const std::string& detail);
  void set_meta(const std::string& key, const std::string& value);

  // Returns when everything handed over is on the disk. Call before saving a checkpoint.
  void flush();

  const TelemetryLayout& layout() const { return layout_; }

 private:
  struct Writer;  // statements and the compressor; use only with database_mutex_ held

  void work();
  void rethrow_failure();  // with mutex_ held

  TelemetryLayout layout_;
  Database database_;
  std::unique_ptr<Writer> writer_;
  std::mutex database_mutex_;

  // A ring of slots, guarded by mutex_: [first_, first_ + queued_) belong to the thread, the next
  // one to the step.
  std::vector<StepRecord> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int first_ = 0;
  int queued_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

// Copies a database, which may be in use, without the rows after `step`. `to` must not exist.
// UserError if it cannot be read or written.
void copy_telemetry(const std::string& from, const std::string& to, int64_t step);

}  // namespace assay
