#include "comm/launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"

namespace assay {

namespace {

constexpr const char* kLibrary = "libassay_mpi.so";
constexpr const char* kMake = "assay_make_mpi_world";

// Beside the program, as in a build folder; in lib/assay, as installed.
std::vector<std::string> library_folders() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  std::string folder = length > 0 ? std::string(path, size_t(length)) : "./assay";
  folder.erase(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  return {folder, folder + "/../lib/assay"};
}

void* open_library(std::string& problem) {
  for (const std::string& folder : library_folders()) {
    const std::string path = folder + "/" + kLibrary;
    if (access(path.c_str(), F_OK) != 0) continue;
    // Open MPI opens libraries of its own, which need its symbols: RTLD_GLOBAL.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    problem = dlerror();
    return nullptr;
  }
  problem = std::string("there is no ") + kLibrary + " in " + library_folders().front() +
            " or in ../lib/assay";
  return nullptr;
}

int number(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Tasks of this step of srun. Slurm also calls a batch script and an interactive shell a step, of
// numbers from this one on: nobody started those as ranks.
int tasks_of_slurm_step() {
  constexpr uint32_t kFirstSpecialStep = 0xfffffff0;
  const char* const step = std::getenv("SLURM_STEP_ID");
  if (step == nullptr || std::strtoull(step, nullptr, 10) >= kFirstSpecialStep) return 0;
  return number("SLURM_STEP_NUM_TASKS");
}

constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

}  // namespace

int launched_processes() {
  for (const char* name : kSizes) {
    if (std::getenv(name) != nullptr) return std::max(1, number(name));
  }
  const int tasks = tasks_of_slurm_step();
  if (std::getenv("PMIX_RANK") != nullptr) return std::max(number("PMIX_RANK") + 1, tasks);
  return tasks > 1 ? tasks : 0;
}

bool launched_alone() {
  if (launched_processes() != 1) return false;
  for (const char* name : kSizes) {
    if (std::getenv(name) != nullptr) return number(name) == 1;
  }
  return tasks_of_slurm_step() == 1;
}

void require_no_launcher(int64_t ranks) {
  if (launched_processes() == 0) return;
  throw UserError(strprintf("--ranks %ld in a process that a launcher of MPI started", long(ranks)),
                  "leave out --ranks: mpirun -n or srun -n gives the number of ranks");
}

MpiLibrary find_mpi_library() {
  MpiLibrary found;
  found.found = open_library(found.problem) != nullptr;
  return found;
}

std::unique_ptr<World> join_world() {
  std::string problem;
  void* const library = open_library(problem);
  using Make = World* (*)();
  const auto make = library ? reinterpret_cast<Make>(dlsym(library, kMake)) : nullptr;
  if (library != nullptr && make == nullptr) problem = dlerror();
  if (make == nullptr) {
    throw UserError("several processes need MPI, which cannot be used here: " + problem,
                    "install an MPI (Debian: apt-get install libopenmpi-dev openmpi-bin) and build "
                    "Assay again; without a launcher, and without --ranks, no MPI is needed");
  }
  return std::unique_ptr<World>(make());
}

}  // namespace assay
