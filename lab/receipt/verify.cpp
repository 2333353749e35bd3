#include "lab/receipt/verify.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "base/check.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "lab/receipt/launch_precision.h"
#include "lab/receipt/locate_data.h"
#include "lab/receipt/make.h"
#include "lab/receipt/telemetry_dump.h"
#include "lab/runs/launches.h"
#include "lab/runs/recorded_data.h"
#include "lab/runs/run_record.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

std::string differs(const std::string& now, const std::string& then) {
  return short_hash(now) + ", the receipt has " + short_hash(then).substr(8);
}

std::string shown(const Json& json) {
  return json_text(json);
}

// Compares values; the order of keys does not matter.
bool equal(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

bool within(const Json& claimed, const Json& now, double tolerance) {
  if (!claimed.is_number() || !now.is_number()) return equal(claimed, now);
  if (claimed.is_number_integer() && now.is_number_integer() && tolerance == 0)
    return equal(claimed, now);
  return std::abs(claimed.get<double>() - now.get<double>()) <= tolerance;
}

class Verifier {
 public:
  Verifier(const VerifyOptions& options, std::string run)
      : options_(options), run_(std::move(run)) {}

  void verify(const Receipt& receipt, const fs::path& folder) {
    add(seal_of(receipt) == receipt.seal ? Finding::kSame : Finding::kDrift, "receipt",
        seal_of(receipt) == receipt.seal ? "as it was sealed" : "edited after it was sealed");
    if (receipt.kind == "run") {
      verify_run(receipt, folder);
    } else {
      verify_matrix(receipt, folder);
    }
  }

  void add(Finding finding, const std::string& what, const std::string& detail) {
    checks.push_back({.finding = finding, .what = what, .detail = detail, .run = run_});
  }

  std::vector<Check> checks;

 private:
  // Runs `find`, which adds findings; an exception becomes a finding, too.
  template <typename F>
  void check(const std::string& what, const F& find) {
    try {
      find();
    } catch (const NotAvailable& absent) {
      add(Finding::kNotAvailable, what, absent.what());
    } catch (const UserError& damaged) {
      add(Finding::kDrift, what, damaged.what());
    } catch (const nlohmann::json::exception& wrong) {
      add(Finding::kDrift, what, wrong.what());
    }
  }

  void verify_run(const Receipt& receipt, const fs::path& folder) {
    const fs::path run = folder / receipt.run;
    RunEvidence evidence(run.string(), receipt.sealed_step);
    for (const char* kind : {"config", "commit", "binary", "telemetry"})
      require_input(receipt, kind);
    for (const ReceiptInput& input : receipt.inputs) {
      const std::string what = "input " + input.kind + " " + shown_name(input);
      check(what, [&] { check_input(what, input, receipt, folder); });
    }
    check("telemetry", [&] { check_later_steps(receipt, evidence); });
    check("contract", [&] { check_contract(receipt, evidence); });
    check("meta.json", [&] { check_recorded_data(receipt, run.string()); });
    check("meta.json", [&] { check_launches(receipt, run.string()); });
    check("precision", [&] { check_precision(receipt, evidence); });
    const std::vector<ClaimSpec> expected = expected_claims(evidence);
    check_claims(
        receipt, expected, [&](const Json& how) { return recompute(evidence, how); },
        [](const Json&) { return std::string(); });
  }

  void verify_matrix(const Receipt& receipt, const fs::path& folder) {
    BundleEvidence evidence(folder.string());
    for (const ReceiptInput& input : receipt.inputs) {
      const std::string what = "input " + input.kind + " " + shown_name(input);
      if (input.kind == "run") {
        const Json step = input.more.value("sealed_step", Json());
        if (step.is_number_integer()) evidence.add(input.path, step.get<int64_t>());
        check(what, [&] { check_run(what, input, folder); });
      } else {
        check(what, [&] { check_input(what, input, receipt, folder); });
      }
    }
    check_claims(
        receipt, {}, [&](const Json& how) { return recompute(evidence, how); },
        [&](const Json& how) { return verdict_by_present_rule(evidence, how); });
  }

  static std::string shown_name(const ReceiptInput& input) {
    if (input.kind == "commit") return input.name.substr(0, 12);
    return input.path.empty() ? input.name : input.path;
  }

  void require_input(const Receipt& receipt, const std::string& kind) {
    const bool found = std::any_of(receipt.inputs.begin(), receipt.inputs.end(),
                                   [&](const ReceiptInput& input) { return input.kind == kind; });
    // Without meta.json a run's commit and binary are unknown.
    if (!found && kind != "commit" && kind != "binary")
      add(Finding::kDrift, "input " + kind, "the receipt does not list it");
  }

  // Verifies the run's own receipt; its checks follow under the name of the run.
  void check_run(const std::string& what, const ReceiptInput& input, const fs::path& folder) {
    const fs::path path = folder / input.path / kReceiptName;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) throw NotAvailable("no " + path.string());
    Verifier inner(options_, input.path);
    try {
      const Receipt of_run = read_receipt(path.string());
      compare(what, of_run.seal, input.sha256);
      inner.verify(of_run, path.parent_path());
    } catch (const DamagedReceipt& damaged) {
      add(Finding::kDrift, what, damaged.what());
    }
    checks.insert(checks.end(), inner.checks.begin(), inner.checks.end());
  }

  void compare(const std::string& what, const std::string& now, const std::string& then) {
    if (now == then) return add(Finding::kSame, what, short_hash(now));
    add(Finding::kDrift, what, differs(now, then));
  }

  void check_input(const std::string& what, const ReceiptInput& input, const Receipt& receipt,
                   const fs::path& folder) {
    if (input.kind == "commit") {
      if (input.name != options_.commit)
        throw NotAvailable("this program was built from " + options_.commit.substr(0, 12));
      return add(Finding::kSame, what, "this program's commit");
    }
    if (input.kind == "binary") {
      if (input.sha256 != options_.program_sha256)
        throw NotAvailable("this program is another build, " + short_hash(options_.program_sha256));
      return add(Finding::kSame, what, "this program");
    }
    if (input.path.empty()) return check_data(what, input, (folder / receipt.run).string());
    const fs::path file = folder / input.path;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) throw NotAvailable("no " + file.string());
    if (input.kind == "telemetry") return check_telemetry(what, input, receipt, file.string());
    compare(what, sha256_file(file.string()), input.sha256);
  }

  void check_data(const std::string& what, const ReceiptInput& input, const std::string& run) {
    const std::optional<FoundData> found = find_data(input.name, input.sha256, options_.data, run);
    if (!found) {
      add(Finding::kNotAvailable, what,
          "not where the run had it; give its folder with --data DIR");
      checks.back().no_data = true;
      return;
    }
    if (found->sha256 == input.sha256)
      return add(Finding::kSame, what, short_hash(found->sha256) + " in " + found->path);
    add(Finding::kDrift, what, found->path + " has " + differs(found->sha256, input.sha256));
  }

  void check_telemetry(const std::string& what, const ReceiptInput& input, const Receipt& receipt,
                       const std::string& file) {
    const TelemetryDump dump = dump_telemetry(file, receipt.sealed_step);
    if (dump.sha256 == input.sha256)
      return add(Finding::kSame, what, "up to step " + std::to_string(dump.step));
    std::string tables;
    for (const TelemetryDump::Table& table : dump.tables) {
      const Json sealed = input.more.value(Json::json_pointer("/tables/" + table.name), Json());
      if (!sealed.is_object() || sealed.value("sha256", "") == table.sha256) continue;
      tables += (tables.empty() ? "table " : ", ") + table.name;
    }
    add(Finding::kDrift, what,
        differs(dump.sha256, input.sha256) + (tables.empty() ? "" : " (" + tables + ")"));
  }

  static bool is_readable(RunEvidence& evidence) {
    try {
      evidence.config();
      evidence.telemetry().steps_done();
      return true;
    } catch (const NotAvailable&) {
    } catch (const UserError&) {
    }
    return false;
  }

  // `assay compare` and others read all steps. A finding only if there are some after the sealed
  // one; files that are missing or damaged have findings of their own.
  void check_later_steps(const Receipt& receipt, RunEvidence& evidence) {
    if (!is_readable(evidence)) return;
    const int64_t steps =
        recorded_steps(evidence.telemetry(), evidence.config().run.steps, evidence.folder());
    if (steps <= receipt.sealed_step) return;
    add(Finding::kNotAvailable, "telemetry",
        strprintf("the run went on to step %ld: the receipt, made at step %ld, does not cover the "
                  "later ones (`assay receipt make` makes it again)",
                  long(steps), long(receipt.sealed_step)));
  }

  static bool lists_data(const Receipt& receipt) {
    return std::any_of(receipt.inputs.begin(), receipt.inputs.end(),
                       [](const ReceiptInput& input) { return input.kind == "data"; });
  }

  // `assay compare` and others take from meta.json what a run was trained on. A finding only if it
  // is not what the receipt has; a receipt of a run without meta.json lists no data.
  void check_recorded_data(const Receipt& receipt, const std::string& run) {
    const bool has_data = lists_data(receipt);
    const std::string file = run + "/meta.json";
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return;  // check_launches() says so
    const Json meta = json_in_file<Json>(file);
    if (has_data && !meta.is_object()) {
      return add(Finding::kDrift, "meta.json", "it is damaged: not a JSON object");
    }
    if (!meta.is_object()) return;
    if (!meta.contains("data_sha256")) {
      if (has_data) throw NotAvailable(file + " names no data");
      return;
    }
    NamedContents recorded = content_by_name(recorded_data(meta));
    for (const ReceiptInput& input : receipt.inputs) {
      if (input.kind != "data") continue;
      const auto same = recorded.find({input.name, input.sha256});
      if (same == recorded.end()) {
        return add(Finding::kDrift, "meta.json",
                   "it does not name " + input.name + ", " + short_hash(input.sha256));
      }
      recorded.erase(same);
    }
    if (recorded.empty()) return;
    add(Finding::kDrift, "meta.json",
        "it names " + recorded.begin()->first + ", which the receipt does not have");
  }

  // A finding only if launches are missing: what they were cannot be compared.
  void check_launches(const Receipt& receipt, const std::string& run) {
    std::string missing = missing_launches(run, receipt.sealed_step);
    if (missing.empty()) return;
    if (!lists_data(receipt)) missing += "; the receipt was made without it, and lists no data";
    throw NotAvailable(missing);
  }

  // A finding only if the run changed its precision, or if the configuration has another one than
  // the launch that made the last steps.
  void check_precision(const Receipt& receipt, RunEvidence& evidence) {
    const std::vector<Json> launches =
        contributing_launches(evidence.folder(), receipt.sealed_step);
    const std::string change = precision_change(launches);
    const std::string other = other_precision_in_config(launches, evidence.config());
    if (!change.empty()) add(Finding::kSame, "precision", change);
    if (!other.empty()) add(Finding::kDrift, "precision", other);
  }

  // The receipt's contract must be that of the configuration.
  void check_contract(const Receipt& receipt, RunEvidence& evidence) {
    const Json now = contract_json(evidence.config());
    std::string wrong;
    for (const auto& [key, value] : receipt.contract.items()) {
      if (now.contains(key) && equal(now[key], value)) continue;
      wrong += (wrong.empty() ? "" : "; ") + key + " is " +
               (now.contains(key) ? shown(now[key]) : "absent") + ", the receipt has " +
               shown(value);
    }
    if (receipt.contract.empty()) wrong = "the receipt has none";
    add(wrong.empty() ? Finding::kSame : Finding::kDrift, "contract",
        wrong.empty() ? "as in the configuration" : wrong);
  }

  // Claims that a run's receipt must make, as far as its files exist and can be read.
  static std::vector<ClaimSpec> expected_claims(RunEvidence& evidence) {
    std::vector<ClaimSpec> all;
    for (const auto claims_of : {config_claims, telemetry_claims}) {
      try {
        for (const ClaimSpec& spec : claims_of(evidence)) all.push_back(spec);
      } catch (const NotAvailable&) {
      } catch (const UserError&) {
      }
    }
    return all;
  }

  // present: the verdict of the present rule where an older one has another.
  template <typename F, typename G>
  void check_claims(const Receipt& receipt, const std::vector<ClaimSpec>& expected,
                    const F& recomputed, const G& present) {
    std::set<std::string> names;
    for (const Claim& claim : receipt.claims) {
      const std::string what = "claim " + claim.name;
      if (!names.insert(claim.name).second) {
        add(Finding::kDrift, what, "claimed twice");
        continue;
      }
      const auto spec = std::find_if(expected.begin(), expected.end(),
                                     [&](const ClaimSpec& s) { return s.name == claim.name; });
      check(what, [&] {
        if (spec != expected.end() && !equal(spec->how, claim.how)) {
          return add(Finding::kDrift, what,
                     "its rule is " + shown(spec->how) + ", the receipt has " + shown(claim.how));
        }
        if (spec != expected.end() && spec->unit != claim.unit) {
          return add(Finding::kDrift, what,
                     "its unit is " + spec->unit + ", the receipt has " + claim.unit);
        }
        check_value(what, claim, recomputed(claim.how), present(claim.how));
      });
    }
    for (const ClaimSpec& spec : expected) {
      if (!names.contains(spec.name))
        add(Finding::kDrift, "claim " + spec.name, "missing from the receipt");
    }
  }

  void check_value(const std::string& what, const Claim& claim, const Json& now,
                   const std::string& present) {
    const double allowed = rule_tolerance(claim.how, claim.value);
    if (claim.tolerance > allowed) {
      return add(Finding::kDrift, what,
                 strprintf("its tolerance is %g, the rule allows %g", claim.tolerance, allowed));
    }
    if (within(claim.value, now, claim.tolerance))
      return add(Finding::kSame, what,
                 shown(now) + " " + claim.unit +
                     (present.empty() ? "" : "(by an older rule; now \"" + present + "\")"));
    add(Finding::kDrift, what,
        "recomputed " + shown(now) + ", the receipt has " + shown(claim.value));
  }

  const VerifyOptions& options_;
  const std::string run_;
};

}  // namespace

const char* finding_name(Finding finding) {
  switch (finding) {
    case Finding::kSame:
      return "same";
    case Finding::kNotAvailable:
      return "not available";
    case Finding::kDrift:
      return "drift";
  }
  return "?";
}

int64_t Verification::count(Finding finding) const {
  return std::count_if(checks.begin(), checks.end(),
                       [&](const Check& check) { return check.finding == finding; });
}

Verification verify_receipt(const std::string& file_or_folder, const VerifyOptions& options) {
  Verification result;
  result.path = require_receipt(file_or_folder);
  Verifier verifier(options, "");
  try {
    const Receipt receipt = read_receipt(result.path);
    result.kind = receipt.kind;
    result.name = receipt.name;
    verifier.verify(receipt, fs::path(result.path).parent_path());
  } catch (const DamagedReceipt& damaged) {
    verifier.add(Finding::kDrift, "receipt", damaged.what());
  }
  result.checks = std::move(verifier.checks);
  return result;
}

}  // namespace assay
