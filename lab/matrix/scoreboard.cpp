#include "lab/matrix/scoreboard.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "engine/run/progress.h"
#include "lab/compare/published.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/folder.h"
#include "lab/runs/markdown_table.h"

namespace assay {
namespace {

// "0003" of "0003-mini".
std::string study_of(const std::string& matrix) {
  return matrix.substr(0, matrix.find('-'));
}

struct Study {
  MarkdownRows rows = {
      {"claim", "matrix", "size", "verdict", "n", "mean", "95% interval", "p (Holm)"}};
  std::vector<std::string> seals;  // a sentence for each matrix
};

using Counts = std::map<std::string, int64_t>;  // by verdict; "untested" too

// "1.7M to 4.2M parameters, 2.95M tokens": of the models and runs of a table.
std::string size_text(const ContractTable& table) {
  const auto by_total = [](const SummaryRow& a, const SummaryRow& b) {
    return a.cell->audit.total < b.cell->audit.total;
  };
  const auto by_tokens = [](const SummaryRow& a, const SummaryRow& b) {
    return a.tokens() < b.tokens();
  };
  const auto [small, large] = std::minmax_element(table.rows.begin(), table.rows.end(), by_total);
  const auto [few, many] = std::minmax_element(table.rows.begin(), table.rows.end(), by_tokens);
  const auto range = [](double low, double high) {
    const std::string from = count_text(low), to = count_text(high);
    return from == to ? from : from + " to " + to;
  };
  return range(double(small->cell->audit.total), double(large->cell->audit.total)) +
         " parameters, " + range(few->tokens(), many->tokens()) + " tokens";
}

std::string verdict_cell(const ClaimResult& r) {
  const std::string verdict = claim_verdict_name(r.verdict);
  const bool decided = r.verdict == ClaimVerdict::kHolds || r.verdict == ClaimVerdict::kFails;
  if (!r.why.empty()) return verdict + ": " + r.why;
  return decided && r.p && !r.after_holm() ? verdict + ", not after Holm" : verdict;
}

const ContractTable& table_of(const std::vector<ContractTable>& tables, const ClaimResult& r) {
  for (const ContractTable& table : tables) {
    for (const SummaryRow& row : table.rows) {
      if (&row == r.terms.front().row) return table;
    }
  }
  CHECK(false, "the terms of %s are in no table", r.claim->name.c_str());
}

void add_tested(const std::string& folder, std::map<std::string, Study>& studies,
                std::set<std::string>& tested, Counts& counts) {
  const RecordedMatrix recorded = read_matrix_folder(folder);
  const MatrixFile& file = recorded.matrix.file;
  const MatrixSummary summary = summarise_matrix(recorded.matrix, MatrixFolder(folder));
  Study& study = studies[study_of(file.name)];
  tested.insert(file.name);
  for (const ClaimResult& r : evaluate_claims(file.claims, summary.tables)) {
    std::string interval = "-";
    if (r.compared && r.compared->interval95) {
      interval =
          strprintf("%.4g to %.4g", r.compared->interval95->low, r.compared->interval95->high);
    }
    counts[claim_verdict_name(r.verdict)] += 1;
    study.rows.push_back({r.claim->name, file.name + ", " + r.contract + ", " + r.precision,
                          size_text(table_of(summary.tables, r)), verdict_cell(r),
                          r.compared ? std::to_string(r.compared->n) : "-",
                          r.compared ? strprintf("%.4g", r.compared->mean) : "-", interval,
                          !r.p_holm           ? "-"
                          : *r.p_holm < 0.001 ? "<0.001"
                                              : strprintf("%.3f", *r.p_holm)});
  }
  if (summary.seal && !file.claims.empty()) {
    study.seals.push_back(file.name + ": " + seal_text(*summary.seal));
  }
}

void add_untested(const std::string& path, std::map<std::string, Study>& studies,
                  const std::set<std::string>& tested, Counts& counts) {
  const MatrixFile file = load_matrix_file(path);
  if (tested.contains(file.name)) return;
  for (const MatrixClaim& claim : file.claims) {
    counts["untested"] += 1;
    studies[study_of(file.name)].rows.push_back(
        {claim.name, file.name, "-", "untested", "-", "-", "-", "-"});
  }
}

std::string title_of(const std::string& study) {
  for (const std::string& name : published_names()) {
    if (name == study) return study + ". " + published_study(name).title;
  }
  return study;
}

}  // namespace

std::string scoreboard_markdown(const std::vector<std::string>& folders,
                                const std::vector<std::string>& files) {
  std::map<std::string, Study> studies;
  std::set<std::string> tested;
  Counts counts;
  for (const std::string& folder : folders) add_tested(folder, studies, tested, counts);
  for (const std::string& file : files) add_untested(file, studies, tested, counts);
  std::string text =
      "# Published claims, tested\n\n"
      "Made by `assay published scoreboard` from trained matrices. Each claim is judged by "
      "Student's "
      "95% interval over the seeds, and corrected for the number of claims of its matrix (Holm); "
      "[matrix.md](matrix.md#claims) has the rules, [reproduce.md](reproduce.md) the commands. A "
      "verdict holds at the size beside it, not at the published one.\n\n";
  std::string sum;
  for (const auto& [verdict, count] : counts) {
    sum += (sum.empty() ? "" : ", ") + strprintf("%ld ", long(count)) + verdict;
  }
  text += sum + ".\n";
  for (const auto& [name, study] : studies) {
    text += "\n## " + title_of(name) + "\n\n" + markdown_table(study.rows, 4);
    if (!study.seals.empty()) text += "\n";
    for (const std::string& seal : study.seals) text += seal + "\n";
  }
  return text;
}

}  // namespace assay
