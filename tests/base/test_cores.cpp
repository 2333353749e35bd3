#include <sched.h>

#include <algorithm>

#include "base/cores.h"
#include "tests/base/planted_system.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("processes share the cores of one mask on one machine") {
  // Two ranks with the cores of `taskset -c 0-7`, one with a mask of its own, two on another
  // machine that are bound to half of it each.
  const auto bound = [](int64_t machine, uint64_t mask) {
    return CoresOfProcess{.machine = machine, .mask = mask, .bound = 8, .quota = {}};
  };
  const std::vector<CoresOfProcess> all = {bound(0, 0x00FF), bound(0, 0xFF00), bound(0, 0x00FF),
                                           bound(3, 0x00FF), bound(3, 0xFF00)};
  const int64_t expected[] = {4, 8, 4, 8, 8};
  for (size_t i = 0; i < all.size(); ++i) REQUIRE(share_of_cores(all, i) == expected[i]);
  // More processes than cores: one each.
  REQUIRE(share_of_cores(std::vector<CoresOfProcess>(9, bound(0, 0x00FF)), 4) == 1);
}

TEST_CASE("processes share the quota of one cgroup on one machine") {
  // All are bound to the same 32 cores, but for the last one.
  const auto limited = [](int64_t machine, CpuQuota quota) {
    return CoresOfProcess{.machine = machine, .mask = 1, .bound = 32, .quota = quota};
  };
  const std::vector<CoresOfProcess> together(4, limited(0, {.cores = 8, .cgroup = 5}));
  REQUIRE(share_of_cores(together, 1) == 2);
  // In a container each: the quota is each one's own, the 32 cores are for all four.
  std::vector<CoresOfProcess> apart;
  for (uint64_t cgroup = 1; cgroup <= 4; ++cgroup) {
    apart.push_back(limited(0, {.cores = 6, .cgroup = cgroup}));
  }
  REQUIRE(share_of_cores(apart, 1) == 6);
  apart[1].quota.cores = 12;
  REQUIRE(share_of_cores(apart, 1) == 8);
  // Cgroups of two machines may have one number.
  REQUIRE(share_of_cores({limited(0, {.cores = 4, .cgroup = 5}), limited(3, {4, 5})}, 0) == 4);
  // A quota of less than a core a process, and none.
  REQUIRE(share_of_cores(std::vector<CoresOfProcess>(3, limited(0, {2, 5})), 2) == 1);
  REQUIRE(share_of_cores({limited(0, {}), limited(0, {2, 5})}, 0) == 16);
}

TEST_CASE(
    "a quota of CPU time counts as cores, rounded up, the least of a cgroup and those above") {
  const PlantedSystem job("0::/slurm/job_7/task_1\n", kUnified);
  const auto cores = [&] { return cpu_quota(job.root()).cores; };
  REQUIRE(cores() == 0);
  const int all = usable_cores(job.root());
  REQUIRE(all >= 1);
  const std::string at = "/sys/fs/cgroup/slurm/";
  job.write(at + "cpu.max", "max 100000\n");
  job.write(at + "job_8/cpu.max", "100000 100000\n");
  REQUIRE(cores() == 0);
  REQUIRE(cpu_quota(job.root()).cgroup == 0);
  job.write(at + "job_7/cpu.max", "250000 100000\n");
  REQUIRE(cores() == 3);
  REQUIRE(usable_cores(job.root()) == std::min(all, 3));
  const uint64_t cgroup = cpu_quota(job.root()).cgroup;
  REQUIRE(cgroup != 0);
  // More for a task of the job changes nothing, and of equal ones the job's is the one.
  for (const char* const more : {"80000000 100000\n", "60000 20000\n"}) {
    job.write(at + "job_7/task_1/cpu.max", more);
    REQUIRE(cores() == 3);
    REQUIRE(cpu_quota(job.root()).cgroup == cgroup);
  }
  job.write(at + "job_7/task_1/cpu.max", "1000 100000\n");
  REQUIRE(cores() == 1);
  REQUIRE(cpu_quota(job.root()).cgroup != cgroup);
  REQUIRE(usable_cores(job.root()) == 1);
}

TEST_CASE("a container's quota of CPU time is found in both versions of cgroups") {
  const PlantedSystem version_1(
      "5:cpu,cpuacct:/docker/abc\n4:cpuset:/docker/abc\n0::/docker/abc\n",
      "31 30 0:28 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
      "32 30 0:29 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
  const auto write = [&](const std::string& folder, const char* quota) {
    version_1.write("/sys/fs/cgroup/" + folder + "/cpu.cfs_quota_us", quota);
    version_1.write("/sys/fs/cgroup/" + folder + "/cpu.cfs_period_us", "50000\n");
  };
  write("cpuset", "50000\n");
  write("cpu", "-1\n");
  REQUIRE(cpu_quota(version_1.root()).cores == 0);
  write("cpu", "200000\n");
  REQUIRE(cpu_quota(version_1.root()).cores == 4);
  const PlantedSystem version_2("0::/\n", kUnified);
  version_2.write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  REQUIRE(cpu_quota(version_2.root()).cores == 2);
}

TEST_CASE("a process that is bound to other cores has another mask") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const CoresOfProcess all = cores_of_process(7);
  REQUIRE((all.machine == 7 && all.mask == cores_of_process(7).mask));
  REQUIRE(all.bound >= usable_cores());
  if (CPU_COUNT(&before) < 2) return;  // there is no smaller mask
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const CoresOfProcess bound = cores_of_process(7);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  REQUIRE(bound.mask != all.mask);
  REQUIRE(cores_of_process(7).mask == all.mask);
}

}  // namespace assay
