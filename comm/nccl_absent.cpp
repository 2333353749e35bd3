// comm/nccl_group.h for a build without nccl.h: using NCCL is a user error.
#include "base/check.h"
#include "comm/nccl_group.h"

namespace assay {

const std::string& nccl_problem() {
  static const std::string problem = "this program was built without NCCL";
  return problem;
}

std::string nccl_version() {
  return "";
}

std::unique_ptr<NcclGroup> join_nccl(Group&, NcclCallbacks) {
  throw UserError(nccl_problem() + ", which several ranks with GPUs need",
                  "build it where CMake finds CUDA and nccl.h, or use --device cpu");
}

}  // namespace assay
