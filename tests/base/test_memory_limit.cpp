#include "base/memory_limit.h"
#include "tests/base/planted_system.h"
#include "tests/catch.h"

namespace assay {
namespace {

class System : public PlantedSystem {
 public:
  using PlantedSystem::PlantedSystem;
  MemoryLimit limit() const { return memory_limit(root()); }
};

}  // namespace

TEST_CASE("no more memory is available than the limit allows") {
  const System job("0::/job\n", kUnified);
  const auto available = [&] { return available_memory_bytes(job.root()); };
  REQUIRE(available() == machine_memory_bytes());  // the kernel does not say
  job.write("/proc/meminfo",
            "MemTotal:       90 kB\nHugePages_Total:       0\nMemAvailable:         70 kB\n"
            "Buffers:         8 kB\n");
  REQUIRE(available() == 70 * 1024);
  job.write("/sys/fs/cgroup/job/memory.max", "90000\n");
  REQUIRE(available() == 70 * 1024);
  job.write("/sys/fs/cgroup/job/memory.max", "50000\n");
  REQUIRE(available() == 50000);
}

TEST_CASE("without a cgroup that limits memory the machine's counts") {
  const auto is_machine = [](const MemoryLimit& limit) {
    return limit.bytes == machine_memory_bytes() && limit.cgroup == 0;
  };
  REQUIRE(is_machine(System("", "").limit()));
  const System none("0::/user.slice/a.scope\n", kUnified);
  REQUIRE(is_machine(none.limit()));
  none.write("/sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n");
  REQUIRE(is_machine(none.limit()));
  const System wide("4:memory:/\n",
                    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  wide.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  REQUIRE(is_machine(wide.limit()));
}

TEST_CASE("the least limit of a process's cgroup and of those above it counts") {
  const System job("0::/slurm/job_7/step_0/task_1\n", kUnified);
  const std::string at = "/sys/fs/cgroup/slurm/";
  job.write(at + "memory.max", "80000\n");
  job.write(at + "job_7/memory.max", "50000\n");
  job.write(at + "job_7/step_0/memory.max", "60000\n");
  job.write(at + "job_7/step_0/task_1/memory.max", "max\n");
  job.write(at + "job_8/memory.max", "10\n");
  const MemoryLimit one = job.limit();
  REQUIRE(one.bytes == 50000);
  REQUIRE(one.cgroup != 0);
  // Another task of the job shares that limit; one of its own is of itself.
  job.write("/proc/self/cgroup", "0::/slurm/job_7/step_0/task_2\n");
  REQUIRE(job.limit().bytes == 50000);
  REQUIRE(job.limit().cgroup == one.cgroup);
  job.write(at + "job_7/step_0/task_2/memory.max", "40000\n");
  REQUIRE(job.limit().bytes == 40000);
  REQUIRE(job.limit().cgroup != one.cgroup);
  job.write(at + "job_7/step_0/task_2/memory.max", "50000\n");  // the job's is reached first
  REQUIRE(job.limit().cgroup == one.cgroup);
}

TEST_CASE("a container's limit is at the mount where its own cgroup is the top") {
  const System version_1(
      "5:cpu:/docker/abc\n4:memory,hugetlb:/docker/abc\n0::/docker/abc\n",
      "31 30 0:28 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
      "32 30 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,hugetlb,memory\n");
  version_1.write("/sys/fs/cgroup/cpu/memory.limit_in_bytes", "1\n");
  version_1.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
  REQUIRE(version_1.limit().bytes == 70000);
  version_1.write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "60000\n");
  version_1.write("/proc/self/cgroup", "4:memory,hugetlb:/docker/abc/inner\n");
  REQUIRE(version_1.limit().bytes == 60000);
  // With a namespace of its own, and one that is seen from another.
  for (const char* name : {"0::/\n", "0::/../job/step\n"}) {
    const System version_2(name, kUnified);
    version_2.write("/sys/fs/cgroup/memory.max", "30000\n");
    REQUIRE(version_2.limit().bytes == 30000);
  }
}

}  // namespace assay
