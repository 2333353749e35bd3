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

// The file that ASSAY_MPI_LIBRARY names, or that of the first of these folders that has one; else
// its name, which the loader looks for where the program says (RUNPATH): one that find_package()
// built names lib/assay of the Assay that it uses.
std::string library_file(const std::string& given) {
  if (!given.empty()) return given;
  for (const std::string& folder : library_folders()) {
    const std::string path = folder + "/" + kLibrary;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return kLibrary;
}

MpiLibrary problem_of(const std::string& given, const std::string& file, const std::string& why) {
  if (!given.empty()) {
    return {.problem = "ASSAY_MPI_LIBRARY: " + why,
            .hint = std::string("name the ") + kLibrary +
                    " of an Assay that was built with an MPI, or unset ASSAY_MPI_LIBRARY"};
  }
  // The loader begins with the name of what it does not find: of another one, the library needs it.
  if (file != kLibrary || !why.starts_with(std::string(kLibrary) + ":")) {
    return {.problem = why,
            .hint =
                "install the MPI that Assay was built with (Debian: apt-get install "
                "libopenmpi-dev openmpi-bin)"};
  }
  const std::string nowhere = std::string("there is no ") + kLibrary + " in " +
                              library_folders().front() +
                              " or in ../lib/assay, and the loader finds none";
  if (ASSAY_HAS_MPI) {
    return {.problem = nowhere,
            .hint =
                "this Assay was built with an MPI: its library is in the build folder, or in "
                "lib/assay of where it was installed; name the file in ASSAY_MPI_LIBRARY"};
  }
  return {.problem = nowhere,
          .hint =
              "install an MPI (Debian: apt-get install libopenmpi-dev openmpi-bin) and build "
              "Assay again"};
}

void* open_library(MpiLibrary& library) {
  const char* const variable = std::getenv("ASSAY_MPI_LIBRARY");
  const std::string given = variable == nullptr ? "" : variable, file = library_file(given);
  // Open MPI opens libraries of its own, which need its symbols: RTLD_GLOBAL.
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  library.found = handle != nullptr;
  if (handle == nullptr) library = problem_of(given, file, dlerror());
  return handle;
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
  MpiLibrary library;
  open_library(library);
  return library;
}

std::unique_ptr<World> join_world() {
  MpiLibrary library;
  void* const handle = open_library(library);
  using Make = World* (*)();
  const auto make = handle ? reinterpret_cast<Make>(dlsym(handle, kMake)) : nullptr;
  if (handle != nullptr && make == nullptr) {
    library = {.problem = dlerror(),
               .hint = std::string("use the ") + kLibrary + " of this version of Assay"};
  }
  if (make == nullptr) {
    throw UserError("several processes need MPI, which cannot be used here: " + library.problem,
                    library.hint + "; without a launcher, and without --ranks, no MPI is needed");
  }
  return std::unique_ptr<World>(make());
}

}  // namespace assay
