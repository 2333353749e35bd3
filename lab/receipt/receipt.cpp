#include "lab/receipt/receipt.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "data/json_text.h"
#include "data/sha256.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

constexpr const char* kMarker = "assay_receipt";  // the first key; its value is the schema

Json input_json(const ReceiptInput& input) {
  Json json;
  json["kind"] = input.kind;
  if (!input.path.empty()) json["path"] = input.path;
  json["name"] = input.name;
  if (!input.sha256.empty()) json["sha256"] = input.sha256;
  json.update(input.more);
  return json;
}

Json claim_json(const Claim& claim) {
  Json json;
  json["name"] = claim.name;
  json["value"] = claim.value;
  json["unit"] = claim.unit;
  json["tolerance"] = claim.tolerance == 0 ? Json(0) : Json(claim.tolerance);
  json["how"] = claim.how;
  return json;
}

Json unsealed_json(const Receipt& receipt) {
  Json json;
  json[kMarker] = kReceiptSchema;
  json["kind"] = receipt.kind;
  json["name"] = receipt.name;
  if (receipt.kind == "run") {
    json["run"] = receipt.run;
    json["sealed_step"] = receipt.sealed_step;
  }
  json["contract"] = receipt.contract;
  json["environment"] = receipt.environment;
  json["inputs"] = Json::array();
  for (const ReceiptInput& input : receipt.inputs) json["inputs"].push_back(input_json(input));
  json["claims"] = Json::array();
  for (const Claim& claim : receipt.claims) json["claims"].push_back(claim_json(claim));
  return json;
}

// {"a": 1, "b": [1, 2]} on one line.
std::string on_one_line(const Json& json) {
  if (!json.is_structured()) return json_text(json);
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += text.empty() ? "" : ", ";
    if (json.is_object()) text += json_text(Json(key)) + ": ";
    text += on_one_line(value);
  }
  return json.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// The members of a top-level object or array, one line each.
std::string by_lines(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += text.empty() ? "\n  " : ",\n  ";
    if (json.is_object()) text += json_text(Json(key)) + ": ";
    text += on_one_line(value);
  }
  return json.is_object() ? "{" + text + "\n }" : "[" + text + "\n ]";
}

// A required member; the error names `where` it is missing.
const Json& member(const Json& json, const char* key, const std::string& where) {
  if (json.is_object() && json.contains(key)) return json[key];
  throw DamagedReceipt(where + " has no " + key);
}

std::string text_member(const Json& json, const char* key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_string()) throw DamagedReceipt(where + ": " + key + " is not a string");
  return value.get<std::string>();
}

const Json& part(const Json& json, const char* key, Json::value_t type) {
  const Json& value = member(json, key, "the receipt");
  if (value.type() != type) throw DamagedReceipt(std::string(key) + " has the wrong type");
  return value;
}

ReceiptInput parse_input(const Json& json, const std::string& where) {
  ReceiptInput input;
  input.kind = text_member(json, "kind", where);
  input.name = text_member(json, "name", where);
  if (json.contains("path")) input.path = text_member(json, "path", where);
  if (input.kind != "commit") input.sha256 = text_member(json, "sha256", where);
  for (const auto& [key, value] : json.items()) {
    if (key != "kind" && key != "path" && key != "name" && key != "sha256") input.more[key] = value;
  }
  return input;
}

Claim parse_claim(const Json& json, const std::string& where) {
  Claim claim;
  claim.name = text_member(json, "name", where);
  const std::string named = "claim " + claim.name;
  claim.value = member(json, "value", named);
  claim.unit = text_member(json, "unit", named);
  const Json& tolerance = member(json, "tolerance", named);
  claim.how = member(json, "how", named);
  const bool verdict = claim.how.is_object() && claim.how.value("rule", Json()) == "verdict";
  if (!claim.value.is_number() && !claim.value.is_null() && !(verdict && claim.value.is_string()))
    throw DamagedReceipt(named + ": its value is not a number");
  if (!tolerance.is_number() || tolerance.get<double>() < 0)
    throw DamagedReceipt(named + ": its tolerance is not a number >= 0");
  if (!claim.how.is_object()) throw DamagedReceipt(named + ": how is not a rule");
  claim.tolerance = tolerance.get<double>();
  return claim;
}

// Also true for a file that was cut within its first line.
bool begins_as_receipt(const std::string& text) {
  const std::string start = std::string("{\n \"") + kMarker + "\"";
  return text.starts_with(start) || start.starts_with(text);
}

// What a reader would take for a part of the receipt, though the seal does not cover it.
void require_known_keys(const Json& json, const Json& known) {
  const nlohmann::json diff = nlohmann::json::diff(nlohmann::json(known), nlohmann::json(json));
  for (const nlohmann::json& change : diff) {
    if (change.at("op") != "add") continue;
    throw DamagedReceipt("no receipt has the key " + change.at("path").get<std::string>());
  }
}

Json parse_json(const std::string& text, const std::string& name) {
  Json json = json_of<Json>(text);
  if (json.is_object() && json.contains(kMarker)) return json;
  if (json.is_discarded() && begins_as_receipt(text))
    throw DamagedReceipt(strprintf("the file is damaged: not JSON (%zu bytes)", text.size()));
  throw UserError(name + " is not a receipt", "`assay receipt make RUN` makes one");
}

}  // namespace

std::string seal_of(const Receipt& receipt) {
  const nlohmann::json sorted = unsealed_json(receipt);
  return sha256_hex(json_text(sorted));
}

std::string to_text(const Receipt& receipt) {
  Json json = unsealed_json(receipt);
  json["seal"] = seal_of(receipt);
  std::string text;
  for (const auto& [key, value] : json.items()) {
    const bool lines = key == "inputs" || key == "claims" || key == "environment";
    text += (text.empty() ? "{\n \"" : ",\n \"") + key + "\": ";
    text += lines ? by_lines(value) : on_one_line(value);
  }
  return text + "\n}\n";
}

void write_receipt(const std::string& path, const Receipt& receipt) {
  write_file_atomic(path, to_text(receipt));
}

Receipt parse_receipt(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  const Json& schema = json[kMarker];
  if (!schema.is_number_integer() || schema.get<int64_t>() < 1)
    throw DamagedReceipt(std::string(kMarker) + " is not a version");
  if (schema.get<int64_t>() > kReceiptSchema) {
    throw UserError(strprintf("%s has schema %ld, this version reads up to %d", name.c_str(),
                              long(schema.get<int64_t>()), kReceiptSchema),
                    "verify it with the version of assay that made it, or a newer one");
  }
  Receipt receipt;
  receipt.kind = text_member(json, "kind", "the receipt");
  receipt.name = text_member(json, "name", "the receipt");
  if (receipt.kind != "run" && receipt.kind != "matrix")
    throw DamagedReceipt("its kind is " + receipt.kind + ", not run or matrix");
  if (receipt.kind == "run") {
    receipt.run = text_member(json, "run", "the receipt");
    const Json& step = member(json, "sealed_step", "the receipt");
    if (!step.is_number_integer()) throw DamagedReceipt("sealed_step is not a step");
    receipt.sealed_step = step.get<int64_t>();
  }
  receipt.contract = part(json, "contract", Json::value_t::object);
  receipt.environment = part(json, "environment", Json::value_t::object);
  for (const Json& input : part(json, "inputs", Json::value_t::array)) {
    receipt.inputs.push_back(parse_input(input, strprintf("input %zu", receipt.inputs.size() + 1)));
  }
  for (const Json& claim : part(json, "claims", Json::value_t::array)) {
    receipt.claims.push_back(parse_claim(claim, strprintf("claim %zu", receipt.claims.size() + 1)));
  }
  receipt.seal = text_member(json, "seal", "the receipt");
  if (const auto twice = first_repeated_key(text))
    throw DamagedReceipt("the key " + *twice + " is there twice");
  Json known = unsealed_json(receipt);
  known["seal"] = receipt.seal;
  require_known_keys(json, known);
  return receipt;
}

Receipt read_receipt(const std::string& path) {
  return parse_receipt(read_regular_file(path), path);
}

std::string require_receipt(const std::string& file_or_folder) {
  fs::path path = file_or_folder;
  // What may be there and cannot be looked at is not called absent.
  const auto type_of = [](const fs::path& file) {
    std::error_code error;
    const fs::file_status found = fs::status(file, error);
    if (found.type() == fs::file_type::none) {
      throw_unread(file, error.value(), "check the permissions of the folders above it");
    }
    return found.type();
  };
  if (!file_or_folder.empty() && type_of(path) == fs::file_type::not_found)
    throw UserError(file_or_folder + " does not exist",
                    "give a receipt.json or the folder it is in");
  if (type_of(path) == fs::file_type::directory) path /= kReceiptName;
  if (type_of(path) != fs::file_type::regular)
    throw UserError("no receipt in " + file_or_folder, "`assay receipt make RUN` makes one");
  return path.string();
}

}  // namespace assay
