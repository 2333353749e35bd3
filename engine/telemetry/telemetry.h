// Writing telemetry.db while training: one transaction a logged step, made by a thread of its own.
//
// The step fills a slot that exists since the start and hands it over; it neither allocates nor
// waits for the disk (unless the disk falls kSlots logged steps behind). Evaluations and events are
// rare and written at once.
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

// The names a step records, fixed for the run. Units are in the names: loss_nats, grad_norm,
// step_ms.
struct TelemetryLayout {
  std::vector<std::string> scalars;
  std::vector<std::string> spans;  // of which milliseconds are taken
  std::vector<int64_t> layers;     // block indices of the MoE layers
  int64_t experts = 0;
  std::vector<OperandSite> operands = {};
};

// One logged step; sizes follow the layout.
struct StepRecord {
  int64_t step = 0;
  std::vector<double> scalars;  // NaN = not measured in this step, no row
  std::vector<double> spans_ms;
  std::vector<RouterRow> router;       // layer is set
  std::vector<uint32_t> counts;        // (M, E) assignments of the step
  std::vector<OperandLoss> precision;  // by layout.operands

  View<uint32_t, 1> layer_counts(int64_t moe_layer, int64_t experts) {
    return {counts.data() + moe_layer * experts, {experts}};
  }
};

class Telemetry {
 public:
  static constexpr int kSlots = 8;

  // Opens or makes the database and starts the thread.
  Telemetry(const std::string& path, TelemetryLayout layout);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry();  // writes what is queued

  // Before the first step of a run that resumes: forgets every row after `step` and records the
  // event, all in one transaction.
  void truncate_after(int64_t step, const std::string& detail);

  // The slot to fill, with NaN scalars, spans and losses, zero counts and absent measures; then
  // commit() hands it over. UserError when an earlier step could not be written.
  StepRecord& begin_step(int64_t step);
  void commit();

  void eval(int64_t step, const std::string& task, const std::string& metric, double value,
            int64_t n);
  void event(int64_t step, const std::string& kind, const std::string& detail);
  void set_meta(const std::string& key, const std::string& value);

  // Everything handed over is on the disk; for before a checkpoint.
  void flush();

  const TelemetryLayout& layout() const { return layout_; }

 private:
  struct Writer;  // statements and the compressor, used by whoever holds database_mutex_

  void work();
  void rethrow_failure();  // under mutex_

  TelemetryLayout layout_;
  Database database_;
  std::unique_ptr<Writer> writer_;
  std::mutex database_mutex_;

  // A ring of slots under mutex_: [first_, first_ + queued_) belong to the thread, the next one to
  // the step.
  std::vector<StepRecord> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int first_ = 0;
  int queued_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace assay
