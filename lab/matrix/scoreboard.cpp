#include "lab/matrix/scoreboard.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "engine/run/progress.h"
#include "lab/compare/published.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/verdict_counts.h"
#include "lab/runs/markdown_table.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// A matrix that tests no study stands for itself.
std::string study_name(const std::string& matrix) {
  const std::string study = study_of_matrix(matrix);
  return study.empty() ? matrix : study;
}

// The claims of one study, those of trained matrices first.
struct Study {
  MarkdownRows rows = {{"claim", "source", "statement", "matrix", "size", "verdict", "seeds",
                        "mean", "95% interval", "p (Holm)"}};
  std::vector<std::string> sources;  // a sentence for each trained matrix
};

using Tested = std::map<std::string, std::set<std::string>>;  // names of claims, by matrix

// "1.7M to 4.2M parameters, 2.95M tokens": of the models and runs of the tables.
std::string size_text(const std::vector<const ContractTable*>& tables) {
  std::vector<double> total, tokens;
  for (const ContractTable* table : tables) {
    for (const SummaryRow& row : table->rows) {
      if (!row.cell->configured) continue;
      total.push_back(*row.total());
      tokens.push_back(*row.tokens());
    }
  }
  if (total.empty()) return "-";
  const auto range = [](const std::vector<double>& counts) {
    const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
    const std::string from = count_text(*low), to = count_text(*high);
    return from == to ? from : from + " to " + to;
  };
  return range(total) + " parameters, " + range(tokens) + " tokens";
}

// As the matrix says, else its file (runs trained before the file said it), else what the studies'
// matrices are for.
std::string source_cell(const MatrixClaim& claim, const std::string& matrix,
                        const std::vector<MatrixFile>& files) {
  std::optional<ClaimSource> source = claim.source;
  for (const MatrixFile& file : files) {
    if (source || file.name != matrix) continue;
    for (const MatrixClaim& one : file.claims) {
      if (one.name == claim.name) source = one.source;
    }
  }
  if (source) return name_of(*source);
  return study_of_matrix(matrix).empty() ? "-" : name_of(ClaimSource::kPost);
}

std::string verdict_cell(const ClaimResult& r) {
  return marked_verdict(r) + (r.why.empty() ? "" : ": " + r.why);
}

// Those that have a term of the claim: across contracts two.
std::vector<const ContractTable*> tables_of(const std::vector<ContractTable>& tables,
                                            const ClaimResult& r) {
  std::vector<const ContractTable*> found;
  for (const ContractTable& table : tables) {
    const bool has_term =
        std::any_of(table.rows.begin(), table.rows.end(), [&](const SummaryRow& row) {
          return std::any_of(r.terms.begin(), r.terms.end(),
                             [&](const ClaimTerm& term) { return term.row == &row; });
        });
    if (has_term) found.push_back(&table);
  }
  CHECK(!found.empty(), "the terms of %s are in no table", r.claim->name.c_str());
  return found;
}

std::string interval_cell(const ClaimResult& r) {
  if (!r.compared || !r.compared->interval95) return "-";
  return strprintf("%.4g to %.4g", r.compared->interval95->low, r.compared->interval95->high);
}

std::string holm_cell(const ClaimResult& r) {
  if (!r.p_holm) return "-";
  return *r.p_holm < 0.001 ? "<0.001" : strprintf("%.3f", *r.p_holm);
}

// Where the runs of a matrix are, as a link from the page.
std::string link_to_runs(const ScoreboardSource& source, const std::string& folder,
                         const std::string& name) {
  fs::path target = folder;
  if (!source.evidence.empty()) {
    target = fs::path(source.evidence) / (name + ".tar.zst");
    std::error_code ignored;
    if (!fs::is_regular_file(target, ignored)) {
      throw UserError(target.string() + " does not exist",
                      "pack the runs: tar --zstd --exclude=checkpoints -C " +
                          fs::path(folder).parent_path().string() + " -cf " + target.string() +
                          " " + fs::path(folder).filename().string());
    }
  }
  const fs::path from = fs::absolute(source.page.empty() ? "page" : source.page).parent_path();
  return "[" + target.filename().string() + "](" +
         fs::absolute(target).lexically_relative(from).generic_string() + ")";
}

void add_tested(const ScoreboardSource& source, const std::vector<MatrixFile>& files,
                const std::string& given, std::map<std::string, Study>& studies, Tested& tested,
                VerdictCounts& counts) {
  const std::string folder = fs::absolute(given + "/").lexically_normal().parent_path().string();
  const RecordedMatrix recorded = read_matrix_folder(folder);
  const MatrixFile& file = recorded.matrix.file;
  if (tested.contains(file.name)) {
    throw UserError("two of the folders have a matrix " + file.name + ", the second is " + folder,
                    "give each matrix once");
  }
  const MatrixSummary summary = summarise_matrix(recorded.matrix, MatrixFolder(folder));
  if (!summary.unread.empty()) throw UserError(summary.unread.front());
  Study& study = studies[study_name(file.name)];
  std::set<std::string>& claims = tested[file.name];
  for (const MatrixClaim& claim : file.claims) claims.insert(claim.name);
  for (const ClaimResult& r : evaluate_claims(file.claims, summary.tables)) {
    counts.add(r);
    study.rows.push_back({r.claim->name, source_cell(*r.claim, file.name, files), r.claim->text(),
                          file.name + ", " + r.contract + ", " + r.precision,
                          size_text(tables_of(summary.tables, r)), verdict_cell(r),
                          r.compared ? std::to_string(r.compared->n) : "-",
                          r.compared ? strprintf("%.4g", r.compared->mean) : "-", interval_cell(r),
                          holm_cell(r)});
  }
  std::string text = file.name + ": " + link_to_runs(source, folder, file.name) + ".";
  if (!summary.complete()) {
    text += strprintf(" %ld of %ld runs are finished.", long(summary.done), long(summary.cells));
  }
  if (summary.seal && !file.claims.empty()) text += " " + seal_text(*summary.seal);
  study.sources.push_back(text);
}

// The claims of a file that no trained matrix of its name has.
void add_untested(const MatrixFile& file, std::map<std::string, Study>& studies,
                  const Tested& tested, VerdictCounts& counts) {
  const auto own = tested.find(file.name);
  for (const MatrixClaim& claim : file.claims) {
    if (own != tested.end() && own->second.contains(claim.name)) continue;
    counts.add_untested();
    studies[study_name(file.name)].rows.push_back({claim.name, source_cell(claim, file.name, {}),
                                                   claim.text(), file.name, "-", "untested", "-",
                                                   "-", "-", "-"});
  }
}

std::string title_of(const std::string& study) {
  return study_of_matrix(study).empty() ? study : study + ". " + published_study(study).title;
}

// Links where the page lies beside the documentation, names elsewhere.
std::string where_to_read(const std::string& page) {
  const fs::path folder = fs::absolute(page.empty() ? "page" : page).parent_path();
  std::error_code ignored;
  if (page.empty() || !fs::exists(folder / "reproduce.md", ignored)) {
    return "docs/matrix.md has the rules, docs/reproduce.md the commands.";
  }
  return "[matrix.md](matrix.md#claims) has the rules, [reproduce.md](reproduce.md) the commands.";
}

}  // namespace

std::string scoreboard_markdown(const ScoreboardSource& source) {
  std::map<std::string, Study> studies;
  Tested tested;
  VerdictCounts counts;
  std::vector<MatrixFile> files;
  for (const std::string& path : source.files) files.push_back(load_matrix_file(path));
  for (const std::string& folder : source.folders) {
    add_tested(source, files, folder, studies, tested, counts);
  }
  for (const MatrixFile& file : files) add_untested(file, studies, tested, counts);
  std::string text =
      "# Published claims, tested\n\n"
      "Made by `assay published scoreboard` from trained matrices. Each claim is judged by "
      "Student's 95% interval over the seeds; the p beside it is corrected for the number of "
      "claims judged in its matrix (Holm), and a verdict that the correction does not leave is "
      "marked `not after Holm` and counted apart. " +
      where_to_read(source.page) +
      " A verdict holds at the size beside it, not at the published one. Source: `post` is a claim "
      "of the study, `review` one that a review of it asks for, `ours` is made by neither.\n\n" +
      counts.text() + ".\n";
  for (const auto& [name, study] : studies) {
    text += "\n## " + title_of(name) + "\n\n" + markdown_table(study.rows, 6);
    for (const std::string& line : study.sources) text += "\n" + line + "\n";
  }
  return text;
}

}  // namespace assay
