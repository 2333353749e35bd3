// assay receipt make, verify: writes a run's receipt; checks a receipt by recomputing its claims.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/build_info.h"
#include "base/check.h"
#include "cuda/device.h"
#include "data/sha256.h"
#include "lab/receipt/make.h"
#include "lab/receipt/rerun.h"
#include "lab/receipt/verify.h"
#include "lab/runs/launches.h"
#include "tools/assay/child_process.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"
#include "tools/assay/print_warning.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

struct MakeArguments {
  std::string run;
  std::string output;
};

int run_make(const MakeArguments& a) {
  const fs::path output = a.output.empty() ? fs::path(a.run) / kReceiptName : fs::path(a.output);
  const std::optional<int64_t> settled = last_settled_step(a.run);
  const Receipt receipt = make_run_receipt(a.run, output.parent_path().string(), settled);
  write_receipt(output.string(), receipt);
  std::printf("%s: %zu claims and %zu inputs of %s, sealed at step %ld\n", output.c_str(),
              receipt.claims.size(), receipt.inputs.size(), receipt.name.c_str(),
              long(receipt.sealed_step));
  if (settled) {
    std::printf("%s is being trained: its newest step may lack values and is left out\n",
                a.run.c_str());
  }
  const std::string missing = missing_launches(a.run, receipt.sealed_step);
  if (!missing.empty()) {
    print_warning(missing + ", and the receipt does not say it",
                  "put back the meta.json that the run had, and make the receipt again");
  }
  return kExitDone;
}

void add_make(Commands& commands, CLI::App* receipt) {
  auto a = std::make_shared<MakeArguments>();
  CLI::App* sub = receipt->add_subcommand(
      "make", "write the receipt of a run as it is now; `assay train` writes one at the end");
  sub->add_option("RUN", a->run, "directory of a run")->required();
  sub->add_option("-o,--output", a->output,
                  "file to write, in the run or a folder above it (default: RUN/receipt.json)");
  sub->footer(
      "Example:\n"
      "  assay receipt make runs/moe");
  commands.on_chosen(sub, [a] { return run_make(*a); });
}

struct VerifyArguments {
  std::string receipt;
  std::vector<std::string> data;
  std::optional<int64_t> rerun;
  bool quiet = false, json = false;
};

Json verification_json(const Verification& v) {
  Json json;
  json["receipt"] = v.path;
  json["kind"] = v.kind;
  json["name"] = v.name;
  for (const Finding finding : {Finding::kSame, Finding::kNotAvailable, Finding::kDrift})
    json["counts"][finding_name(finding)] = v.count(finding);
  json["checks"] = Json::array();
  for (const Check& check : v.checks) {
    Json one;
    if (!check.run.empty()) one["run"] = check.run;
    one["what"] = check.what;
    one["finding"] = finding_name(check.finding);
    one["detail"] = check.detail;
    json["checks"].push_back(one);
  }
  return json;
}

// The checks, those together that found the same thing wrong if they are many: a damaged
// telemetry.db fails all claims that read it, with one sentence.
std::vector<Check> without_repetition(const std::vector<Check>& checks) {
  constexpr int64_t kMany = 4;
  std::vector<Check> shown;
  std::vector<int64_t> more;  // checks that are told by that of `shown`
  for (const Check& check : checks) {
    const auto equal = [&](const Check& other) {
      return check.finding != Finding::kSame && other.finding == check.finding &&
             other.detail == check.detail && other.run == check.run;
    };
    const auto same = std::find_if(shown.begin(), shown.end(), equal);
    if (same != shown.end() && std::count_if(checks.begin(), checks.end(), equal) >= kMany) {
      ++more[size_t(same - shown.begin())];
    } else {
      shown.push_back(check);
      more.push_back(0);
    }
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    if (more[i] > 0) shown[i].what += strprintf(" and %ld more", long(more[i]));
  }
  return shown;
}

// Prints all checks, those of a matrix's runs only where the finding is not kSame or the run was
// trained again; if quiet only what differs.
void print_verification(const Verification& v, bool quiet) {
  std::printf("%s: %s %s\n", v.path.c_str(), v.kind.c_str(), v.name.c_str());
  for (const Check& check : without_repetition(v.checks)) {
    if (!check.run.empty() && check.finding == Finding::kSame && !check.is_rerun) continue;
    const bool drift = check.finding == Finding::kDrift;
    if (quiet && !drift) continue;
    const std::string run = check.run.empty() ? "" : check.run + ": ";
    std::printf("  %-13s  %s  %s\n", drift ? "DRIFT" : finding_name(check.finding),
                (run + check.what).c_str(), check.detail.c_str());
  }
  std::printf("%ld same, %ld not available, %ld drift%s\n", long(v.count(Finding::kSame)),
              long(v.count(Finding::kNotAvailable)), long(v.count(Finding::kDrift)),
              v.count(Finding::kDrift) > 1 ? "s" : "");
}

// Prints one line per drift on stderr, for scripts that keep only stderr.
void print_failure(const Verification& v) {
  for (const Check& check : without_repetition(v.checks)) {
    if (check.finding != Finding::kDrift) continue;
    const std::string run = check.run.empty() ? "" : check.run + ": ";
    std::fprintf(stderr, "drift: %s%s: %s\n", run.c_str(), check.what.c_str(),
                 check.detail.c_str());
  }
}

RerunOptions rerun_options(const VerifyArguments& a) {
  RerunOptions options{.steps = *a.rerun,
                       .program = kThisProgram,
                       .data = a.data,
                       .gpu = "",
                       .guard_exit = kExitStoppedByGuard};
  try {
    const gpu::DeviceFacts facts = gpu::device_facts();
    gpu::require_usable(facts);
    options.gpu = facts.name;
  } catch (const UserError& error) {
    options.gpu_problem = error.what();
  }
  return options;
}

// The error of a rerun. Where it could not read data that is not in its place, the hint of `assay
// train` is no help.
UserError rerun_error(const UserError& error, const Verification& v, const VerifyArguments& a) {
  const bool no_data = std::any_of(v.checks.begin(), v.checks.end(),
                                   [](const Check& check) { return check.no_data; });
  if (!no_data || !a.data.empty()) return error;
  return {error.what(), "name the folder that has the data now: --data DIR"};
}

int run_verify(const VerifyArguments& a) {
  for (const std::string& folder : a.data) {
    if (!fs::is_directory(folder))
      throw UserError("--data " + folder + " is not a folder", "give the folder of the shards");
  }
  if (a.rerun && *a.rerun < 1) {
    throw UserError(strprintf("--rerun %ld is not a number of steps", long(*a.rerun)),
                    "give a number >= 1");
  }
  Verification v = verify_receipt(
      a.receipt,
      {.data = a.data, .program_sha256 = sha256_file(kThisProgram), .commit = build_info().commit});
  std::optional<UserError> not_rerun;
  if (a.rerun && !v.kind.empty()) {
    try {
      for (const Check& check : rerun_receipt(a.receipt, rerun_options(a))) {
        v.checks.push_back(check);
      }
    } catch (const UserError& error) {
      not_rerun = rerun_error(error, v, a);
    }
  }
  if (a.json) {
    print_json(verification_json(v));
  } else {
    print_verification(v, a.quiet);
  }
  print_failure(v);
  if (v.count(Finding::kDrift) > 0) return kExitVerificationFailed;
  if (not_rerun) throw *not_rerun;
  return kExitDone;
}

void add_verify(Commands& commands, CLI::App* receipt) {
  auto a = std::make_shared<VerifyArguments>();
  CLI::App* sub = receipt->add_subcommand(
      "verify", "check every hash and recompute every claim; exit 2 if anything differs");
  sub->add_option("RECEIPT", a->receipt, "receipt.json, or the folder it is in")->required();
  sub->add_option("--data", a->data, "folder of the shards if they were moved; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--rerun", a->rerun,
                  "train the first N steps again and compare hashes and losses bit for bit");
  sub->add_flag("-q,--quiet", a->quiet, "print only what differs, and the totals");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay receipt verify runs/moe\n"
      "  assay receipt verify runs/matrix -q\n"
      "  assay receipt verify runs/moe --rerun 5\n"
      "`not available` means that something is missing: moved data, the build of assay that made "
      "the receipt, a deleted checkpoint. `drift` means that something exists and differs.\n"
      "docs/receipts.md lists claims, inputs and rules.");
  commands.on_chosen(sub, [a] { return run_verify(*a); });
}

}  // namespace

void add_receipt_commands(Commands& commands) {
  CLI::App* receipt = commands.app.add_subcommand(
      "receipt", "evidence for the results of a run or a matrix: make it, verify it");
  receipt->require_subcommand(1);
  receipt->footer(
      "Examples:\n"
      "  assay receipt verify runs/moe             recompute every claim of a run\n"
      "  assay receipt verify runs/moe --rerun 5   and train its first 5 steps again\n"
      "docs/receipts.md says what a receipt can show.");
  add_make(commands, receipt);
  add_verify(commands, receipt);
}

}  // namespace assay
