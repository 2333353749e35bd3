// The ranks of this launch, for a command that runs on all of them: who they are, their group, and
// how one that fails ends all.
//
//   const std::unique_ptr<Ranks> ranks = Ranks::join();  // null: there is one rank
//   return ranks->run([&] {
//     ranks->watch({.folder = "runs/moe"});
//     return train(*ranks);
//   });
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/agree.h"
#include "comm/call_order.h"
#include "comm/control.h"
#include "comm/group.h"
#include "comm/nccl_group.h"
#include "comm/rank_lost.h"
#include "comm/world.h"
#include "cuda/device.h"

namespace assay {

class Ranks {
 public:
  // Null if no launcher started this process, or if it started no other. UserError as join_world().
  static std::unique_ptr<Ranks> join();
  ~Ranks();

  int size() const { return world_->size(); }
  int rank() const { return world_->rank(); }
  bool first() const { return rank() == 0; }
  int node_ranks() const { return world_->node_ranks(); }
  int node_rank() const { return world_->node_rank(); }
  int node() const { return world_->node(); }
  int64_t nodes() const { return nodes_; }  // machines of all ranks
  // For this rank, at least 1: a launcher that binds ranks gives each its own, one that does not
  // gives all to each (base/cores.h).
  int64_t cores() const { return cores_; }
  Group& group() { return *group_; }  // for host memory
  // A group, for host memory, of the ranks that give the same number. Collective over all. of: what
  // its calls count as (comm/call_order.h).
  Group& part(int colour, CallOrder::Of of);
  // A group of all ranks for the memory of this rank's GPU, whose waits then notice lost ranks.
  // It must end before the GPU is closed. Collective; UserError if one of the ranks has no NCCL.
  std::unique_ptr<NcclGroup> gpu_group(gpu::Context& context);
  // A part of that group, as part().
  std::unique_ptr<NcclGroup> gpu_part(NcclGroup& whole, int colour, CallOrder::Of of);
  // The GPU of this rank, among the `devices` that it sees: all of its machine, or one that its
  // launcher chose.
  int gpu_number(int devices) const { return devices > 0 ? node_rank() % devices : 0; }
  // Whether two ranks have the same GPU. UserError if they have, except with `share`. Collective.
  bool share_gpus(const gpu::DeviceFacts& mine, bool share);
  // The first rank with the GPU of this one, after share_gpus(); before, this rank.
  int gpu_rank() const { return gpu_rank_ < 0 ? rank() : gpu_rank_; }

  // From here on a rank that is lost ends all (comm/control.h). folder: of the run. Collective.
  // goes_on: how the same command goes on after a loss at about this step, for the hint.
  struct Watch {
    double silence_s = 20, stuck_s = 900;
    std::string folder;
    std::function<std::string(int64_t step)> goes_on;
  };
  void watch(const Watch& settings);
  // What this rank does now, for messages about it; before watch() nothing. what: a literal. kSlow:
  // the others may have to wait for long.
  void doing(const char* what, int64_t step, Control::Pace pace = Control::Pace::kSteady);

  // The same while `work` lasts, which is steady: what is done is then as before.
  void while_doing(const char* what, const std::function<void()>& work);

  // A file that this process leaves for the others for a moment: removed where it ends because one
  // of them is lost. "": none.
  void remove_if_lost(const std::string& path) { left_ = path; }

  // Runs `work`, on all ranks, and returns the exit code of this process. If it throws, all ranks
  // end, and the first of those that are left prints one line `error:` and one line `hint:`; with
  // exit code 1 if a rank said what it could not do, kRankLostExit if one was lost. Afterwards
  // signals of mpirun are ignored: nothing is left to stop.
  int run(const std::function<int()>& work);

 private:
  explicit Ranks(std::unique_ptr<World> world);
  std::unique_ptr<Group> make_group(int colour, CallOrder::Of of);
  void count_calls(Group& group, CallOrder::Of of);
  void tell();
  void end_if_lost();
  // Ends this process, with what the exception says.
  [[noreturn]] void end_by(const std::exception_ptr& failure);
  [[noreturn]] void lose(const RankLost& lost);
  void say(const RankLost& lost) const;
  // Returns to the first thread that ends this process, to no other.
  void begin_end();
  [[noreturn]] void fail(const std::string& why, const std::string& hint);

  std::unique_ptr<World> world_;
  std::unique_ptr<Control> control_;
  CallOrder calls_;
  std::unique_ptr<Group> group_;
  std::function<std::string(int64_t step)> goes_on_;
  std::vector<std::unique_ptr<Group>> parts_;
  std::string left_;
  int64_t cores_ = 1, nodes_ = 1;
  int gpu_rank_ = -1;
  const char* what_ = "start";
  std::atomic<int64_t> step_{0};  // the control's thread reads it
  Control::Pace pace_ = Control::Pace::kSlow;
  std::atomic_flag ending_;
};

// The result of `make`, which writes caches: one rank of each machine makes it, then the others
// find it there. ranks may be null. Collective.
template <typename Make>
auto machine_by_machine(Ranks* ranks, const Make& make) {
  if (ranks == nullptr) return make();
  const bool first = ranks->node_rank() == 0;
  std::optional<decltype(make())> made;
  if (first) made = make();
  wait_for_all(&ranks->group());
  if (!first) made = make();
  return std::move(*made);
}

// "node07, pid 4242": this process, for messages of other ranks.
std::string process_name();

// Before a group of ranks that share a GPU: NCCL (from 2.30) refuses one unless its environment
// allows it.
void let_nccl_share_gpus();

// Cores for this process: those that it may use, or its share of them where other ranks may use the
// same.
int64_t cores_of_rank(const Ranks* ranks);

}  // namespace assay
