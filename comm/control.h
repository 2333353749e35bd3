// How ranks notice that another one is silent, stuck, or has given up, and how all of them end with
// the same message. A thread beside the step exchanges letters with those of the other ranks
// (comm/watch.h); it sleeps nearly always.
//
//   Control control(world, {}, "node07, pid 4242", run_folder);
//   auto group = world.group(0, [&] { ... });  // ends the process if require_all_there() throws
//   control.doing("exchange of gradients", step, group->calls() + 1);
//   ...
//   control.finish();
//
// A rank whose own run fails tells the others: give_up().
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/bounded_thread.h"
#include "comm/rank_lost.h"
#include "comm/watch.h"
#include "comm/world.h"

namespace assay {

class Control {
 public:
  using Times = ControlTimes;
  // Collective over all ranks. me: names this process in messages. folder: where rank 0 keeps
  // ranks/last.txt (comm/last_words.h), "" for nowhere. Must end before the world.
  Control(World& world, Times times, std::string me, const std::string& folder);
  // Without an exception on its way: finish(), whose RankLost is dropped. With one that nobody has
  // told: gives up. Waits at most 5 s once a rank is lost.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // kSlow: what a rank does may take long, as saving or evaluating. Then others may wait for it
  // beyond stuck_s; silence is noticed as ever. kReading: it waits for its data. If all ranks do,
  // they may for long, as a file server that stopped comes back; one for which others wait is stuck
  // as anywhere.
  enum class Pace { kSteady, kReading, kSlow };
  // What this rank does now; neither allocates nor locks. what: a string literal. call: how far it
  // has come in its calls of groups (comm/call_order.h), the one it is about to begin included;
  // equal on all ranks that have come equally far. The four are stored one by one, so a letter may
  // mix two neighbouring words.
  void doing(const char* what, int64_t step, uint64_t call, Pace pace = Pace::kSteady) noexcept;

  // From here on calls are queued on GPUs, on all ranks (comm/watch.h). A rank's own thread may be
  // held up then where it does not look: in the driver, until the GPU goes on. So `end`, which must
  // end the process, is called from the control's thread once a rank has been lost for kHeldUp and
  // this one does nothing slow.
  static constexpr double kHeldUp = 3;  // seconds
  void calls_are_queued(std::function<void(const RankLost&)> end);

  // Throws RankLost once a rank is lost. Cheap; what the waits of groups call (World::group).
  void require_all_there() const;

  // Tells the others, who throw RankLost with this rank, `why` and `hint`. Returns when they have
  // been told, after at most 3 s. If another rank was lost before, that stays the message.
  void give_up(const std::string& why, const std::string& hint) noexcept;

  // Collective: returns when every rank is through; RankLost. Then no letter is under way, and MPI
  // can end.
  void finish();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::optional<BoundedThread> thread_;
  const int exceptions_ = std::uncaught_exceptions();
};

// Ends this process after RankLost, or after give_up(), and with it the launch: MPI cannot be
// finalised without the lost rank. The lowest rank that is not lost aborts the launch, with `code`,
// a second later, so that all can write their message first; the others wait for that. Everyone is
// gone after 8 s.
[[noreturn]] void end_after_loss(World& world, int lost_rank, int code = kRankLostExit);

}  // namespace assay
