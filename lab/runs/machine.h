// The machine that made the steps of a run: device, CPU, ranks, the number of machines that these
// were on, and threads. Seconds and joules of two runs are one quantity only where these are equal.
//
//   const std::string why = other_machine(runs);       // of all runs that a table compares
//   if (!why.empty()) notes.push_back("no ranking by seconds: " + why);
#pragma once

#include <span>
#include <string>

#include "lab/runs/run_record.h"

namespace assay {

// Each a text over all launches that made steps of the run, "4" or "4, then 2"; "" where a run of
// an old version did not record it.
struct Machine {
  std::string device, cpu;
  std::string ranks, threads;     // threads: of each rank
  std::string instructions = {};  // of the CPU, where it makes the steps
  std::string nodes = {};         // machines of the ranks

  // "cpu, Intel(R) Xeon(R) Processor with AMX, 2 ranks, 2 machines, 4 threads".
  std::string text() const;
};

Machine machine_of(const RunRecord& run);

// Threads do not count where a GPU makes the steps. Ranks, their machines, threads and instructions
// that only one of the two recorded are taken as equal.
bool same_machine(const Machine& a, const Machine& b);

// "a ran on cpu, 1 thread, b on cpu, 4 threads": the first two runs of other machines; "" if there
// are none.
std::string other_machine(std::span<const RunRecord* const> runs);

}  // namespace assay
