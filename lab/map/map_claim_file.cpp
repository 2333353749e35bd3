#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/suggest.h"
#include "engine/config/yaml_source.h"
#include "lab/map/map_claims.h"
#include "lab/matrix/section_reader.h"

namespace assay {
namespace {

using Kind = MapClaim::Kind;

constexpr const char* kExample = "e.g. - {of: moe-64, below: dense, along: p_total, at: 5}";
constexpr const char* kHint = "docs/map.md shows a file of claims";

CostAxis axis_named(const SectionReader& reader, const YAML::Node& node) {
  const std::string name = reader.text(node, "along");
  std::vector<std::string> known;
  std::string all;
  for (const AxisWords& words : cost_axes()) {
    if (words.axis == CostAxis::kMemory) continue;  // does not grow with training
    if (name == words.name) return words.axis;
    known.emplace_back(words.name);
    all += (all.empty() ? "" : ", ") + known.back();
  }
  const std::string near = nearest_name(name, known);
  reader.fail(node, "along " + name + " is no axis of the map",
              (near.empty() ? "" : "did you mean " + near + "? ") + ("known are " + all));
}

double budget(const SectionReader& reader, const YAML::Node& node, const char* what) {
  const double value = reader.number(node, what);
  if (value > 0) return value;
  reader.fail(node, strprintf("%s = %g must be > 0", what, value), kExample);
}

struct Draft {
  MapClaim claim;
  int relations = 0;
  bool has_axis = false, has_at = false, has_from = false, has_to = false;
};

void check_claim(const SectionReader& reader, const YAML::Node& item, const Draft& draft) {
  const MapClaim& c = draft.claim;
  if (c.of.empty()) reader.fail(item, "a claim has no model: of", kExample);
  if (draft.relations != 1) {
    reader.fail(item, "a claim has not exactly one of below, above and overtakes", kExample);
  }
  if (c.of == c.other) reader.fail(item, "a claim compares " + c.of + " with itself", kExample);
  if (!draft.has_axis) reader.fail(item, "a claim has no axis: along", kExample);
  if (c.kind != Kind::kOvertakes) {
    if (!draft.has_at || draft.has_from || draft.has_to) {
      reader.fail(item, "below and above want a budget, at, and neither from nor to", kExample);
    }
    return;
  }
  if (draft.has_at || !draft.has_from || !draft.has_to || c.from >= c.to) {
    reader.fail(item, "overtakes wants from and a larger to, and no at",
                "e.g. - {of: moe-64, overtakes: dense, along: p_active, from: 0.4, to: 1}");
  }
}

MapClaim read_claim(const SectionReader& reader, const YAML::Node& item) {
  Draft draft;
  MapClaim& c = draft.claim;
  c.where = reader.source().at(item);
  const auto relation = [&](const char* name, Kind kind) {
    return SectionReader::Field{name, [&draft, &c, &reader, name, kind](const auto& v) {
                                  ++draft.relations;
                                  c.kind = kind;
                                  c.other = reader.text(v, name);
                                }};
  };
  const auto bound = [&](const char* name, double& into, bool& has) {
    return SectionReader::Field{name, [&reader, &into, &has, name](const auto& v) {
                                  into = budget(reader, v, name);
                                  has = true;
                                }};
  };
  reader.read_section(item, "a claim",
                      {{"name", [&](const auto& v) { c.name = reader.text(v, "name"); }},
                       {"of", [&](const auto& v) { c.of = reader.text(v, "of"); }},
                       relation("below", Kind::kBelow),
                       relation("above", Kind::kAbove),
                       relation("overtakes", Kind::kOvertakes),
                       {"along",
                        [&](const auto& v) {
                          c.along = axis_named(reader, v);
                          draft.has_axis = true;
                        }},
                       {"at",
                        [&](const auto& v) {
                          if (reader.text(v, "at") != "every") c.at = budget(reader, v, "at");
                          draft.has_at = true;
                        }},
                       bound("from", c.from, draft.has_from),
                       bound("to", c.to, draft.has_to)});
  check_claim(reader, item, draft);
  if (c.name.empty()) c.name = c.text();
  return c;
}

}  // namespace

std::vector<MapClaim> read_map_claims(const std::string& path) {
  const YamlSource source{.name = path,
                          .folder = std::filesystem::path(path).parent_path().string()};
  const YAML::Node root = parse_yaml(read_file(path), source);
  const SectionReader reader(source, kHint);
  if (!root.IsSequence()) reader.fail(root, "the file is not a list of claims", kExample);
  std::vector<MapClaim> claims;
  reader.each_item(root, "the file", [&](const YAML::Node& item) {
    claims.push_back(read_claim(reader, item));
    const std::string& name = claims.back().name;
    if (std::count_if(claims.begin(), claims.end(),
                      [&](const MapClaim& c) { return c.name == name; }) > 1) {
      reader.fail(item, "two claims are called " + name, "give them different names");
    }
  });
  return claims;
}

}  // namespace assay
