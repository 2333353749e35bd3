// MPI, for ranks that `mpirun` or `srun` started: host memory between processes. Any MPI-3. Others
// see this header and not <mpi.h>.
#pragma once

#include <functional>
#include <memory>

#include "comm/group.h"

namespace assay {

// Initialises MPI, for the life of the object; at most one in a process. UserError if MPI cannot
// serve several threads, or if the launcher says that it started several processes and MPI sees one
// (a launcher of another MPI). If an exception ends the object, MPI is not finalised, because that
// waits for the other ranks: the process must exit, and the launcher ends the others.
class MpiWorld {
 public:
  MpiWorld();
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int size() const;
  int rank() const;
  // Ranks on this machine, and this one's position among them.
  int node_ranks() const;
  int node_rank() const;

  // The members that give the same colour, in the order of their ranks here. Collective over all
  // ranks. The group must end before the world. Waits give the core away to other threads, and call
  // `look` now and then, which may throw. Errors of MPI are UserErrors.
  std::unique_ptr<Group> group(int colour, std::function<void()> look = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
