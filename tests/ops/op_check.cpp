// op_check [--op NAME] [--filter TEXT] [--list]: every case against its scalar reference, with sentinels, twice,
// and with 1 and 3 threads. Exit 1 when one fails. Needs the standard library only.
#include <cstdio>
#include <cstring>
#include <memory>

#include "tests/ops/op_case.h"

namespace assay {
namespace {

bool run_case(const OpCase& c, CaseWorkspace& workspace) {
  const View<std::byte, 1> scratch = workspace.view();
  OpInstance instance = c.make();
  instance.bench->restore();
  instance.run({.threads = 2, .workspace = scratch});
  Report report;
  instance.check(report);
  const auto first = instance.bench->results();
  std::vector<std::string> failures = instance.bench->damage();

  double used = 0;
  for (const auto& r : report.comparisons()) {
    used = std::max(used, r.used);
    if (r.outside == 0) continue;
    char text[256];
    std::snprintf(text, sizeof text, "%s[%ld]: got %.9g, want %.9g, tolerance %.3g, %ld outside",
                  r.tensor.c_str(), long(r.worst_index), r.got, r.want, r.tolerance,
                  long(r.outside));
    failures.push_back(text);
  }
  for (const int threads : {2, 1, 3}) {
    instance.bench->restore();
    std::memset(scratch.data, 0xFF, scratch.bytes() / 64);
    instance.run({.threads = threads, .workspace = scratch});
    if (instance.bench->results() != first) {
      failures.push_back(threads == 2 ? "a second run gives other bits"
                                      : "another number of threads gives other bits");
    }
  }
  const auto after = instance.bench->damage();
  failures.insert(failures.end(), after.begin(), after.end());

  std::printf("%s %s", failures.empty() ? "ok  " : "FAIL", c.name.c_str());
  if (!report.comparisons().empty()) std::printf(" | %.0f%% of tolerance", 100 * used);
  std::printf("\n");
  for (const auto& f : failures) std::printf("     %s\n", f.c_str());
  if (!failures.empty()) std::printf("     again: op_check --filter '%s'\n", c.name.c_str());
  return failures.empty();
}

int run(int argc, char** argv) {
  std::string op, filter;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--list") {
      list = true;
    } else if ((flag == "--op" || flag == "--filter") && i + 1 < argc) {
      (flag == "--op" ? op : filter) = argv[++i];
    } else {
      std::fprintf(stderr, "usage: op_check [--op NAME] [--filter TEXT] [--list]\n");
      return flag == "--help" ? 0 : 1;
    }
  }
  CaseWorkspace workspace;
  int done = 0, failed = 0;
  for (const OpCase& c : all_op_cases()) {
    if (!selected(c, op, filter)) continue;
    ++done;
    if (list) {
      std::printf("%s\n", c.name.c_str());
    } else if (!run_case(c, workspace)) {
      ++failed;
    }
  }
  if (!list) std::printf("%d cases, %d failed\n", done, failed);
  if (done == 0) std::fprintf(stderr, "op_check: no case matches\n");
  return failed > 0 || done == 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  return assay::run(argc, argv);
}
