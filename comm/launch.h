// Finds out whether a launcher of MPI started this process, and joins the others.
//
// MPI is not linked into programs: comm/mpi_world.cpp is a library of its own, libassay_mpi.so,
// opened when there are ranks. So a program starts, at the same speed, where there is no MPI. It is
// the file that the environment variable ASSAY_MPI_LIBRARY names, or lies beside the program, in
// ../lib/assay, or where the loader looks for libraries of the program.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/world.h"

namespace assay {

// Processes that the launcher (mpirun, srun --mpi=pmix) started, by its environment variables; 0
// without one. Under PMIx alone the number is Slurm's, and without Slurm at least this process's
// place plus one. Several tasks of a step of srun count even if nothing connects them (--mpi=none):
// join_world() refuses them. A batch script of Slurm is not a launcher.
int launched_processes();
// Whether the launcher names the number of its processes, and it is this one alone: that one needs
// no MPI. Under PMIx alone the number is not known.
bool launched_alone();
// UserError for --ranks in a process that a launcher started: its own number counts.
void require_no_launcher(int64_t ranks);

// Initialises MPI for the life of the object; at most one in a process, without a launcher a world
// of one rank. UserError if the library of MPI is absent or cannot be opened, if it cannot serve
// several threads, or if the launcher started several processes and MPI sees one (a launcher of
// another MPI): they would all write the same files. If an exception ends the object, MPI is not
// finalised, because that waits for the other ranks: the process must exit, and the launcher ends
// the others.
std::unique_ptr<World> join_world();

// Whether join_world() finds its library here, and if not, why: for messages before a launch.
struct MpiLibrary {
  bool found = false;
  std::string problem = {};  // the loader's message
  std::string hint = {};
};
MpiLibrary find_mpi_library();

}  // namespace assay
