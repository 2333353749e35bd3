#include "lab/matrix/claim_file.h"

#include <algorithm>

#include "base/check.h"
#include "base/joined.h"
#include "base/suggest.h"
#include "engine/config/scalar.h"
#include "lab/matrix/file.h"
#include "lab/runs/run_measures.h"

namespace assay {
namespace {

using Relation = MatrixClaim::Relation;
using Over = ClaimAcross::Over;

const char* const kExample = "e.g. - {measure: max_load, of: aux-only, below: baseline}";

void check_measure(const SectionReader& reader, const YAML::Node& item, const MatrixClaim& c) {
  const RunMeasure* measure = find_run_measure(c.measure);
  if (measure == nullptr) {
    std::vector<std::string> known;
    std::string all;
    for (const RunMeasure& one : run_measures()) {
      known.emplace_back(one.name);
      all += (all.empty() ? "" : ", ") + known.back();
    }
    const std::string near = nearest_name(c.measure, known);
    reader.fail(item, "measure " + c.measure + " is unknown",
                (near.empty() ? "" : "did you mean " + near + "? ") + ("known are " + all));
  }
  const bool shares = c.at || (c.across && c.across->over == Over::kShares);
  if (shares && measure->at == nullptr) {
    reader.fail(item, "measure " + c.measure + " has no value during a run",
                "at, and across with shares, take what evaluations give: val_loss, bits_per_byte");
  }
}

// A claim while its keys are read.
struct Draft {
  MatrixClaim claim;
  std::string relations;  // those given, joined by " and "
  bool has_within = false;
};

void read_relation(const SectionReader& reader, Draft& draft, Relation relation,
                   const YAML::Node& node) {
  const char* name = claim_relation_name(relation);
  draft.relations += (draft.relations.empty() ? "" : " and ") + std::string(name);
  draft.claim.relation = relation;
  const std::string given = reader.text(node, name);
  const ReadDouble read = read_double(given);
  if (read.problem.empty()) {
    draft.claim.number = read.value;
  } else {
    draft.claim.other = given;
  }
}

ClaimAcross read_across(const SectionReader& reader, const YAML::Node& node) {
  const char* example = "two of one kind: across: [activeDN, totalDN], [bf16, nvfp4] or [0.2, 1]";
  if (!node.IsSequence() || node.size() != 2) {
    reader.fail(node, "across is not a list of two", example);
  }
  ClaimAcross across;
  across.from = reader.text(node[0], "across");
  across.to = reader.text(node[1], "across");
  const bool numbers[] = {read_double(across.from).problem.empty(),
                          read_double(across.to).problem.empty()};
  if (numbers[0] != numbers[1]) {
    reader.fail(node, "across has a number and a name: " + across.from + ", " + across.to, example);
  }
  if (across.from == across.to) {
    reader.fail(node, "across names " + across.from + " twice", example);
  }
  if (numbers[0]) {
    across.over = Over::kShares;
    across.from_share = reader.share(node[0], "across", "run");
    across.to_share = reader.share(node[1], "across", "run");
  }
  return across;
}

ClaimSource read_source(const SectionReader& reader, const YAML::Node& node) {
  const std::string given = reader.text(node, "source");
  if (const auto source = choice_named<ClaimSource>(given)) return *source;
  reader.fail(node, "source = " + given + " is not post, review or ours",
              "post: the published study says it; review: a review of it asks; ours: neither does");
}

void check_claim(const SectionReader& reader, const YAML::Node& item, const Draft& draft) {
  const MatrixClaim& c = draft.claim;
  if (c.measure.empty()) reader.fail(item, "a claim has no measure", kExample);
  check_measure(reader, item, c);
  if (c.of.empty()) reader.fail(item, "a claim has no model", kExample);
  if (draft.relations.empty()) {
    reader.fail(item, "a claim has neither below nor above nor near", kExample);
  }
  if (draft.relations.find(" and ") != std::string::npos) {
    reader.fail(item, "a claim has " + draft.relations, "split it into two claims");
  }
  if (draft.has_within != (c.relation == Relation::kNear)) {
    reader.fail(
        item,
        draft.has_within ? "a claim has within, but not near" : "a claim has near, but not within",
        "e.g. - {measure: cv, of: e1024, near: baseline, within: 0.05}");
  }
  if (draft.has_within && !(c.within > 0)) {
    reader.fail(item, strprintf("within = %g must be > 0", c.within), "e.g. within: 0.05");
  }
  const bool shares = c.across && c.across->over == Over::kShares;
  if (c.at && shares) {
    reader.fail(item, "a claim has at and across with shares", "across names both shares");
  }
}

MatrixClaim read_claim(const SectionReader& reader, const YAML::Node& item) {
  Draft draft;
  MatrixClaim& c = draft.claim;
  c.where = reader.source().at(item);
  const auto relation = [&](Relation kind) {
    return SectionReader::Field{claim_relation_name(kind), [&, kind](const auto& v) {
                                  read_relation(reader, draft, kind, v);
                                }};
  };
  const auto string = [&](const char* name, const char* what, std::string& into) {
    return SectionReader::Field{
        name, [&reader, &into, what](const auto& v) { into = reader.text(v, what); }};
  };
  reader.read_section(item, "a claim",
                      {
                          string("name", "the claim's name", c.name),
                          string("measure", "measure", c.measure),
                          string("of", "of", c.of),
                          relation(Relation::kBelow),
                          relation(Relation::kAbove),
                          relation(Relation::kNear),
                          {"within",
                           [&](const auto& v) {
                             draft.has_within = true;
                             c.within = reader.number(v, "within");
                           }},
                          {"at", [&](const auto& v) { c.at = reader.share(v, "at", "run"); }},
                          string("contract", "contract", c.contract),
                          string("precision", "precision", c.precision),
                          {"across", [&](const auto& v) { c.across = read_across(reader, v); }},
                          {"source", [&](const auto& v) { c.source = read_source(reader, v); }},
                      });
  check_claim(reader, item, draft);
  return c;
}

// "did you mean moe?", else the names themselves.
std::string hint_of(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "it has " + joined(known, ", ") : "did you mean " + near + "?";
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Names {
  std::vector<std::string> models, contracts, precisions;
};

void require(const MatrixClaim& c, const char* key, const std::string& name,
             const std::vector<std::string>& known, const char* what) {
  if (name.empty() || has(known, name)) return;
  throw UserError(c.where + ": " + key + " " + name + " is not a " + what + " of this matrix",
                  hint_of(name, known));
}

void resolve_across(MatrixClaim& c, const Names& names) {
  if (!c.across || c.across->over == Over::kShares) return;
  ClaimAcross& across = *c.across;
  const bool precisions = has(names.precisions, across.from) && has(names.precisions, across.to);
  across.over = precisions ? Over::kPrecisions : Over::kContracts;
  if (precisions) return;
  std::vector<std::string> known = names.contracts;
  known.insert(known.end(), names.precisions.begin(), names.precisions.end());
  for (const std::string& name : {across.from, across.to}) {
    require(c, "across:", name, known, "contract or precision");
    if (has(names.contracts, name)) continue;
    throw UserError(c.where + ": across has the precision " + name + " beside a contract",
                    "name two contracts or two precisions");
  }
}

// A claim is judged once for each contract and precision, so it can only name the first of two that
// it goes across.
void require_judged_somewhere(const MatrixClaim& c) {
  if (!c.across || c.across->over == Over::kShares) return;
  const bool contracts = c.across->over == Over::kContracts;
  const std::string& where = contracts ? c.contract : c.precision;
  if (where.empty() || where == c.across->from) return;
  const char* key = contracts ? "contract" : "precision";
  throw UserError(c.where + ": a claim across " + c.across->from + " and " + c.across->to +
                      " has the " + key + " " + where,
                  std::string("across names both: remove ") + key + ": " + where);
}

// A model may be called 64: below: 64 means it then.
void resolve_other(MatrixClaim& c, const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    const ReadDouble read = read_double(model);
    if (!c.other.empty() || !read.problem.empty() || read.value != c.number) continue;
    c.other = model;
    c.number = 0;
  }
  if (c.other != c.of) return;
  throw UserError(c.where + ": a claim compares " + c.of + " with itself",
                  "name another model, or a number");
}

bool judged_in_one_place(const MatrixClaim& a, const MatrixClaim& b) {
  const auto meet = [](const std::string& one, const std::string& other) {
    return one.empty() || other.empty() || one == other;
  };
  const auto place = [](const MatrixClaim& claim, Over over, const std::string& given) {
    return claim.across && claim.across->over == over ? claim.across->from : given;
  };
  return meet(place(a, Over::kContracts, a.contract), place(b, Over::kContracts, b.contract)) &&
         meet(place(a, Over::kPrecisions, a.precision), place(b, Over::kPrecisions, b.precision));
}

}  // namespace

std::vector<MatrixClaim> read_claims(const SectionReader& reader, const YAML::Node& node) {
  std::vector<MatrixClaim> claims;
  reader.each_item(node, "claims",
                   [&](const YAML::Node& item) { claims.push_back(read_claim(reader, item)); });
  return claims;
}

void resolve_claims(MatrixFile& file) {
  Names names;
  for (const MatrixModel& model : file.models) names.models.push_back(model.name);
  for (const MatrixContract& contract : file.contracts) names.contracts.push_back(contract.name);
  names.precisions = file.precisions;
  std::vector<const MatrixClaim*> seen;
  for (MatrixClaim& c : file.claims) {
    require(c, "of:", c.of, names.models, "model");
    resolve_other(c, names.models);
    require(c, claim_relation_name(c.relation), c.other, names.models, "model");
    require(c, "contract:", c.contract, names.contracts, "contract");
    require(c, "precision:", c.precision, names.precisions, "precision");
    resolve_across(c, names);
    require_judged_somewhere(c);
    if (c.name.empty()) c.name = c.text();
    for (const MatrixClaim* other : seen) {
      if (other->name != c.name || !judged_in_one_place(*other, c)) continue;
      throw UserError(c.where + ": two claims are called " + c.name, "give them different names");
    }
    seen.push_back(&c);
  }
}

}  // namespace assay
