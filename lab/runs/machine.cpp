#include "lab/runs/machine.h"

namespace assay {
namespace {

// "4 threads", "1 thread", "4, then 2 threads".
std::string counted(const std::string& number, const std::string& what) {
  return number + " " + what + (number == "1" ? "" : "s");
}

bool agree(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

}  // namespace

std::string Machine::text() const {
  std::string text = device.empty() ? "an unknown device" : device;
  if (!cpu.empty()) text += ", " + cpu;
  if (!instructions.empty()) text += " with " + instructions;
  if (!ranks.empty() && ranks != "1") text += ", " + counted(ranks, "rank");
  if (!nodes.empty() && nodes != "1") text += ", " + counted(nodes, "machine");
  if (!threads.empty()) text += ", " + counted(threads, "thread");
  return text;
}

Machine machine_of(const RunRecord& run) {
  return {.device = run.device,
          .cpu = run.cpu,
          .ranks = run.ranks,
          .threads = run.threads,
          .instructions = run.instructions,
          .nodes = run.nodes};
}

bool same_machine(const Machine& a, const Machine& b) {
  if (a.device != b.device || a.cpu != b.cpu || !agree(a.ranks, b.ranks)) return false;
  if (!agree(a.nodes, b.nodes) || !agree(a.instructions, b.instructions)) return false;
  return a.device.starts_with("cuda") || agree(a.threads, b.threads);
}

std::string other_machine(std::span<const RunRecord* const> runs) {
  for (size_t i = 1; i < runs.size(); ++i) {
    const Machine of_i = machine_of(*runs[i]);
    for (size_t k = 0; k < i; ++k) {
      const Machine of_k = machine_of(*runs[k]);
      if (same_machine(of_k, of_i)) continue;
      return runs[k]->name + " ran on " + of_k.text() + ", " + runs[i]->name + " on " + of_i.text();
    }
  }
  return "";
}

}  // namespace assay
