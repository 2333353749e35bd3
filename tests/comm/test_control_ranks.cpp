// A run of ranks that only exchanges, in which one of them is lost in a way of choice: what
// test_control_ranks.py starts.
//   test_control_ranks end|stop|kill|give-up|stuck|throw RANK FOLDER
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "comm/launch.h"

namespace assay {
namespace {

constexpr Control::Times kTimes{.beat_s = 0.2, .silence_s = 2, .stuck_s = 3};
constexpr int64_t kLostAt = 50, kSteps = 150;

// A line of its own, with the time: <seconds> <what> <rank> <text>
void print(const char* what, int rank, const std::string& text) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("%.3f\t%s\t%d\t%s\n", std::chrono::duration<double>(now).count(), what, rank,
              text.c_str());
  std::fflush(stdout);
}

void lose_this_rank(const std::string& how, int rank, Control& control) {
  print("lost", rank, how);
  if (how == "stop") raise(SIGSTOP);
  if (how == "kill") raise(SIGKILL);
  if (how == "throw") throw std::runtime_error("it throws as planned");
  if (how == "give-up") {
    control.give_up("cannot write model.safetensors: no space left", "free space");
    print("passed-on", rank, how);
    control.require_all_there();
  }
  if (how == "stuck") {
    while (true) {
      control.require_all_there();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

[[noreturn]] void end(World& world, const RankLost& lost) {
  print("error", world.rank(), lost.what());
  print("hint", world.rank(), lost.hint());
  end_after_loss(world, lost.rank());
}

// As session/ranks.cpp: nothing is unwound while MPI has the buffers of a call.
void end_if_lost(World& world, const Control& control) {
  try {
    control.require_all_there();
  } catch (const RankLost& lost) {
    end(world, lost);
  }
}

void run(World& world, const std::string& how, int lost, const std::string& folder) {
  const std::string me = "pid " + std::to_string(getpid());
  Control control(world, kTimes, me, folder);
  const auto group = world.group(0, [&] { end_if_lost(world, control); });
  std::vector<std::byte> all(size_t(world.size()) << 16), mine(size_t{1} << 16);
  for (int64_t step = 1; step <= kSteps; ++step) {
    control.doing("compute", step, group->calls());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (world.rank() == lost && step == kLostAt) lose_this_rank(how, lost, control);
    control.doing("exchange", step, group->calls() + 1);
    group->all_gather({}, all.data(), mine.data(), mine.size());
  }
  control.finish();
}

int run_and_report(const std::string& how, int lost, const std::string& folder) {
  const auto world = join_world();
  try {
    run(*world, how, lost, folder);
    print("through", world->rank(), "");
    return 0;
  } catch (const RankLost& error) {
    end(*world, error);
  } catch (const std::runtime_error& error) {
    print("error", world->rank(), error.what());
    end_after_loss(*world, world->rank());
  }
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return assay::run_and_report(argv[1], std::atoi(argv[2]), argv[3]);
}
