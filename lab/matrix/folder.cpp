#include "lab/matrix/folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/json_text.h"
#include "lab/matrix/state.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string record_of(const std::string& folder) {
  return (fs::path(folder) / kMatrixRecord).string();
}

MatrixContract contract_of(const Json& json) {
  MatrixContract contract;
  contract.name = json.at("name");
  const std::string kind = json.at("kind");
  if (!kind.empty()) contract.kind = choice_named<ContractKind>(kind);
  contract.coefficient = json.at("coefficient");
  contract.reference = json.at("reference");
  contract.fraction = json.at("fraction");
  contract.shared_in_total = json.value("shared_in_total", true);
  contract.branch_of = json.value("branch_of", "");
  return contract;
}

// The configuration with which a run was started, or is going to be; nullopt if there is none yet.
std::optional<Config> config_of(const MatrixFolder& folder, const std::string& run) {
  std::error_code ignored;
  for (const std::string& path :
       {folder.file(run + "/config.yaml"), folder.file("configs/" + run + ".yaml")}) {
    if (fs::exists(path, ignored)) return load_config(path);
  }
  return std::nullopt;
}

Cell cell_of(const Json& json, const MatrixFolder& folder) {
  Cell cell;
  cell.name = json.at("cell");
  cell.model = json.at("model");
  cell.contract = json.at("contract");
  cell.precision = json.at("precision");
  cell.seed = json.at("seed");
  cell.run = json.at("run");
  cell.known_steps = !json.at("steps").is_null();
  cell.unavailable = json.value("unavailable", "");
  const std::optional<Config> config = config_of(folder, cell.run);
  cell.configured = config.has_value();
  if (config) {
    cell.config = *config;
    cell.audit = audit(cell.config);
  } else if (cell.known_steps) {
    cell.config.run.steps = json.at("steps");
  }
  return cell;
}

template <typename T>
void add_new(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

void fill_file(const Json& record, MatrixFile& file, const std::vector<Cell>& cells) {
  file.name = record.at("matrix");
  file.path = record.value("file", "");
  if (record.contains("extra_seeds"))
    file.extra_seeds = record["extra_seeds"].get<std::vector<int64_t>>();
  for (const Json& contract : record.at("contracts")) {
    file.contracts.push_back(contract_of(contract));
  }
  std::vector<std::string> models;
  for (const Cell& cell : cells) {
    add_new(models, cell.model);
    add_new(file.precisions, cell.precision);
    add_new(file.seeds, cell.seed);
  }
  for (const std::string& model : models)
    file.models.push_back({.name = model, .config = {}, .changes = {}});
}

// False for a claim about models, contracts or precisions that the matrix no longer has.
bool names_known(const MatrixClaim& claim, const MatrixFile& file) {
  const auto model = [&](const std::string& name) {
    return std::any_of(file.models.begin(), file.models.end(),
                       [&](const MatrixModel& one) { return one.name == name; });
  };
  const auto contract = [&](const std::string& name) {
    return std::any_of(file.contracts.begin(), file.contracts.end(),
                       [&](const MatrixContract& one) { return one.name == name; });
  };
  const auto precision = [&](const std::string& name) {
    return std::count(file.precisions.begin(), file.precisions.end(), name) > 0;
  };
  if (!model(claim.of) || !(claim.other.empty() || model(claim.other))) return false;
  if (!(claim.contract.empty() || contract(claim.contract))) return false;
  if (!(claim.precision.empty() || precision(claim.precision))) return false;
  if (!claim.across || claim.across->over == ClaimAcross::Over::kShares) return true;
  const auto known = [&](const std::string& name) {
    return claim.across->over == ClaimAcross::Over::kContracts ? contract(name) : precision(name);
  };
  return known(claim.across->from) && known(claim.across->to);
}

}  // namespace

bool is_matrix_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(record_of(path), ignored);
}

bool is_beside_matrix_runs(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const fs::path name = folder.filename();
  return (name == "configs" || name == "logs") && is_matrix_folder(folder.parent_path());
}

RecordedMatrix read_matrix_folder(const std::string& folder) {
  RecordedMatrix recorded;
  MatrixFile& file = recorded.matrix.file;
  try {
    const Json record = json_or_throw<Json>(read_regular_file(record_of(folder)));
    for (const Json& cell : record.at("cells")) {
      recorded.matrix.cells.push_back(cell_of(cell, MatrixFolder(folder)));
    }
    fill_file(record, file, recorded.matrix.cells);
    if (record.contains("claims")) {
      for (const Json& claim : record["claims"]) file.claims.push_back(claim_of_json(claim));
    } else {
      recorded.notes.push_back(
          "An earlier version made this matrix and did not record its claims; "
          "assay matrix " +
          file.path + " adds them.");
    }
    require_whole_record(record_of(folder), record);
  } catch (const Json::exception&) {
    throw damaged_record(record_of(folder));
  }
  std::erase_if(file.claims, [&](const MatrixClaim& claim) { return !names_known(claim, file); });
  return recorded;
}

}  // namespace assay
