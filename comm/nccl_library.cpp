#include "comm/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "comm/nccl_group.h"
#include "cuda/shared_library.h"

namespace assay {

namespace {

// Splits that share resources, and communicators that abort at any time, as we use them.
constexpr int kOldest = 22700;

struct Loaded {
  Nccl functions = {};
  int version = 0;
  std::string problem;
};

std::string written(int version) {
  return strprintf("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

Loaded load() {
  // Buffers inside recorded graphs are not registered: NCCL can hang without a word there
  // (NVIDIA/nccl issue 2389). NCCL reads this when it opens.
  setenv("NCCL_GRAPH_REGISTER", "0", 1);
  const char* const given = std::getenv("ASSAY_NCCL_LIBRARY");
  const bool is_given = given != nullptr && *given != '\0';
  const std::string name = is_given ? given : "libnccl.so.2";
  const gpu::SharedLibrary library = gpu::open_shared_library(
      name, is_given ? std::vector<std::string>() : gpu::toolkit_library_folders());
  Loaded loaded;
  if (library.handle == nullptr) {
    loaded.problem = name + " cannot be loaded (" + library.problem + ")";
    return loaded;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library.handle, symbol));
    if (function == nullptr && loaded.problem.empty()) {
      loaded.problem = name + " has no " + symbol;
    }
  };
  Nccl& f = loaded.functions;
  find(f.version, "ncclGetVersion");
  if (f.version == nullptr) return loaded;
  if (f.version(&loaded.version) != ncclSuccess || loaded.version < kOldest) {
    loaded.problem = name + " is NCCL " + written(loaded.version) + ", " + written(kOldest) +
                     " or later is needed";
    return loaded;
  }
  find(f.unique_id, "ncclGetUniqueId");
  find(f.init, "ncclCommInitRankConfig");
  find(f.split, "ncclCommSplit");
  find(f.count, "ncclCommCount");
  find(f.user_rank, "ncclCommUserRank");
  find(f.finalize, "ncclCommFinalize");
  find(f.destroy, "ncclCommDestroy");
  find(f.abort, "ncclCommAbort");
  find(f.async_error, "ncclCommGetAsyncError");
  find(f.error_string, "ncclGetErrorString");
  find(f.last_error, "ncclGetLastError");
  find(f.group_start, "ncclGroupStart");
  find(f.group_end, "ncclGroupEnd");
  find(f.all_gather, "ncclAllGather");
  find(f.all_reduce, "ncclAllReduce");
  find(f.send, "ncclSend");
  find(f.receive, "ncclRecv");
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

const std::string& nccl_problem() {
  return loaded().problem;
}

std::string nccl_version() {
  return loaded().problem.empty() ? written(loaded().version) : "";
}

const Nccl& nccl() {
  CHECK(loaded().problem.empty(), "%s", loaded().problem.c_str());
  return loaded().functions;
}

}  // namespace assay
