#include "session/product_files.h"

#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "cuda/product_library.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/config/choice.h"

namespace assay {

using gpu::ProductAlgorithm;
using gpu::ProductKey;
using nlohmann::ordered_json;

template <>
struct Choice<ProductKey::Type> {
  static constexpr const char* kNames[] = {"float", "bf16", "e4m3", "e5m2", "e2m1"};
};
template <>
struct Choice<ProductKey::Scales> {
  static constexpr const char* kNames[] = {"none", "tensor", "1x128", "128x128", "1x32", "1x16"};
};
template <>
struct Choice<ProductKey::Form> {
  static constexpr const char* kNames[] = {"plain", "transposed"};
};
template <>
struct Choice<ProductKey::Added> {
  static constexpr const char* kNames[] = {"nothing", "in_place", "other"};
};
template <>
struct Choice<ProductKey::Factors> {
  static constexpr const char* kNames[] = {"host", "device"};
};
template <>
struct Choice<ProductKey::Sums> {
  static constexpr const char* kNames[] = {"float", "promoted", "fast"};
};
template <>
struct Choice<gpu::ChosenBy> {
  static constexpr const char* kNames[] = {"library", "tuning"};
};

namespace {

constexpr const char* kTuneFormat = "assay tune 1";
constexpr const char* kProductsFormat = "assay products 1";

std::string version_text(int64_t version) {
  return strprintf("%ld.%ld.%ld", long(version / 10000), long(version / 100 % 100),
                   long(version % 100));
}

// Reads an object; a field that is missing or of another kind is a UserError that names it.
class Reader {
 public:
  Reader(const ordered_json& json, std::string path, std::string where)
      : json_(json), path_(std::move(path)), where_(std::move(where)) {
    if (!json_.is_object()) fail("is no JSON object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + ": " + (where_.empty() ? "it" : where_) + " " + what,
                    "the file is damaged, or of another version of assay: make it again with "
                    "`assay tune`; that of a run belongs to the run");
  }
  const ordered_json& at(const char* name) const {
    if (!json_.contains(name)) fail(strprintf("has no \"%s\"", name));
    return json_[name];
  }
  bool has(const char* name) const { return json_.contains(name); }
  int64_t integer(const char* name, int64_t low, int64_t high) const {
    const ordered_json& value = at(name);
    if (!value.is_number_integer()) fail(strprintf("has \"%s\", which is no integer", name));
    const auto number = value.get<int64_t>();
    if (number < low || number > high) fail(strprintf("has \"%s\": %ld", name, long(number)));
    return number;
  }
  double number(const char* name) const {
    const ordered_json& value = at(name);
    if (!value.is_number()) fail(strprintf("has \"%s\", which is no number", name));
    return value.get<double>();
  }
  std::string text(const char* name) const {
    const ordered_json& value = at(name);
    if (!value.is_string()) fail(strprintf("has \"%s\", which is no text", name));
    return value.get<std::string>();
  }
  template <typename E>
  E choice(const char* name) const {
    const std::optional<E> found = choice_named<E>(text(name));
    if (!found) fail(strprintf("has \"%s\": \"%s\"", name, text(name).c_str()));
    return *found;
  }
  Reader object(const char* name) const { return {at(name), path_, below(name)}; }
  // f(Reader) for each element of a list.
  template <typename F>
  void each(const char* name, const F& f) const {
    const ordered_json& list = at(name);
    if (!list.is_array()) fail(strprintf("has \"%s\", which is no list", name));
    for (size_t i = 0; i < list.size(); ++i) {
      f(Reader(list[i], path_, below(name) + "[" + std::to_string(i) + "]"));
    }
  }

 private:
  std::string below(const char* name) const { return where_.empty() ? name : where_ + "." + name; }
  const ordered_json& json_;
  const std::string path_, where_;
};

constexpr int64_t kMost = int64_t{1} << 48;

ordered_json operand_json(const ProductKey::Operand& o) {
  return {{"type", name_of(o.type)},
          {"form", name_of(o.form)},
          {"scales", name_of(o.scales)},
          {"alignment", o.alignment}};
}
ProductKey::Operand operand_of(const Reader& r) {
  return {.type = r.choice<ProductKey::Type>("type"),
          .form = r.choice<ProductKey::Form>("form"),
          .scales = r.choice<ProductKey::Scales>("scales"),
          .alignment = uint32_t(r.integer("alignment", 1, 256))};
}

ordered_json key_json(const ProductKey& key) {
  return {{"m", key.m},
          {"n", key.n},
          {"k", key.k},
          {"a", operand_json(key.a)},
          {"b", operand_json(key.b)},
          {"result", name_of(key.result)},
          {"added", name_of(key.added)},
          {"factors", name_of(key.factors)},
          {"sums", name_of(key.sums)},
          {"c_alignment", key.c_alignment},
          {"d_alignment", key.d_alignment}};
}
ProductKey key_of(const Reader& r) {
  return {.m = r.integer("m", 1, kMost),
          .n = r.integer("n", 1, kMost),
          .k = r.integer("k", 1, kMost),
          .a = operand_of(r.object("a")),
          .b = operand_of(r.object("b")),
          .result = r.choice<ProductKey::Type>("result"),
          .added = r.choice<ProductKey::Added>("added"),
          .factors = r.choice<ProductKey::Factors>("factors"),
          .sums = r.choice<ProductKey::Sums>("sums"),
          .c_alignment = uint32_t(r.integer("c_alignment", 1, 256)),
          .d_alignment = uint32_t(r.integer("d_alignment", 1, 256))};
}

ordered_json algorithm_json(const ProductAlgorithm& algorithm) {
  ordered_json json;
  for (const gpu::AlgorithmField& field : gpu::kAlgorithmFields) {
    json[field.name] = algorithm.*field.value;
  }
  return json;
}
ProductAlgorithm algorithm_of(const Reader& r) {
  ProductAlgorithm algorithm;
  for (const gpu::AlgorithmField& field : gpu::kAlgorithmFields) {
    algorithm.*field.value = r.integer(field.name, 0, UINT32_MAX);
  }
  return algorithm;
}

void put_device(ordered_json& json, const ProductsDevice& device) {
  json["gpu"] = device.gpu;
  json["capability"] = device.capability;
  json["cublaslt"] = device.cublaslt;
  json["driver"] = device.driver;
}
ProductsDevice device_of(const Reader& r) {
  return {.gpu = r.text("gpu"),
          .capability = int(r.integer("capability", 0, 10000)),
          .cublaslt = r.integer("cublaslt", 0, kMost),
          .driver = int(r.integer("driver", 0, INT32_MAX))};
}

double rounded(double us) {
  return std::round(100 * us) / 100;
}

ordered_json product_json(const KeptProduct& p) {
  ordered_json json;
  json["product"] = key_json(p.key);
  json["algorithm"] = algorithm_json(p.choice.algorithm);
  json["by"] = name_of(p.choice.by);
  json["workspace_bytes"] = p.workspace_bytes;
  if (!p.timing) return json;
  json["calls"] = p.timing->calls;
  json["proposals"] = p.timing->proposals;
  json["us"] = rounded(p.timing->us);
  json["first"] = {{"algorithm", algorithm_json(p.timing->first)},
                   {"us", rounded(p.timing->first_us)}};
  return json;
}
KeptProduct product_of(const Reader& r) {
  KeptProduct p{.key = key_of(r.object("product")),
                .choice = {algorithm_of(r.object("algorithm")), r.choice<gpu::ChosenBy>("by")},
                .workspace_bytes = r.integer("workspace_bytes", 0, kMost)};
  if (!r.has("first")) return p;
  const Reader first = r.object("first");
  p.timing = {.calls = r.integer("calls", 0, kMost),
              .proposals = r.integer("proposals", 0, kMost),
              .us = r.number("us"),
              .first = algorithm_of(first.object("algorithm")),
              .first_us = first.number("us")};
  return p;
}

ordered_json parsed(const std::string& path, const std::string& bytes, const char* format) {
  ordered_json json = json_of<ordered_json>(bytes);
  const Reader reader(json, path, "");
  if (reader.text("format") != format) {
    reader.fail(
        strprintf("has \"format\": \"%s\", not \"%s\"", reader.text("format").c_str(), format));
  }
  return json;
}

}  // namespace

bool ProductsDevice::same(const ProductsDevice& other) const {
  return gpu == other.gpu && capability == other.capability && cublaslt == other.cublaslt;
}

std::string ProductsDevice::library_text() const {
  return "cuBLASLt " + version_text(cublaslt);
}

std::string ProductsDevice::text() const {
  return strprintf("%s (%d.%d), %s", gpu.c_str(), capability / 10, capability % 10,
                   library_text().c_str());
}

std::optional<ProductsDevice> products_device(const SessionDevice& device) {
  const gpu::ProductLibrary* const library = device.gpu ? gpu::product_library() : nullptr;
  if (library == nullptr) return std::nullopt;
  const gpu::DeviceFacts& facts = device.gpu->facts();
  return ProductsDevice{.gpu = facts.name,
                        .capability = facts.capability,
                        .cublaslt = library->version(),
                        .driver = facts.driver};
}

double TuneFile::first_us() const {
  double sum = 0;
  for (const KeptProduct& p : products) sum += double(p.timing->calls) * p.timing->first_us;
  return sum;
}
double TuneFile::chosen_us() const {
  double sum = 0;
  for (const KeptProduct& p : products) sum += double(p.timing->calls) * p.timing->us;
  return sum;
}

ordered_json tune_json(const TuneFile& file) {
  ordered_json json;
  json["format"] = kTuneFormat;
  put_device(json, file.device);
  json["workspace_bytes"] = file.workspace_bytes;
  json["date"] = file.date;
  json["commit"] = file.commit;
  json["model"] = file.model;
  json["rounds"] = file.rounds;
  json["left_out"] = file.left_out;
  json["products"] = ordered_json::array();
  for (const KeptProduct& p : file.products) json["products"].push_back(product_json(p));
  return json;
}

Tuning read_tuning(const std::string& path) {
  Tuning tuning{.path = path, .bytes = read_regular_file(path), .sha256 = "", .file = {}};
  tuning.sha256 = sha256_hex(tuning.bytes);
  const ordered_json json = parsed(path, tuning.bytes, kTuneFormat);
  const Reader r(json, path, "");
  TuneFile& file = tuning.file;
  file.device = device_of(r);
  file.workspace_bytes = r.integer("workspace_bytes", 0, int64_t{1} << 40);
  file.date = r.text("date");
  file.commit = r.text("commit");
  file.model = r.text("model");
  file.rounds = r.integer("rounds", 1, kMost);
  file.left_out = r.integer("left_out", 0, kMost);
  r.each("products", [&](const Reader& one) {
    file.products.push_back(product_of(one));
    if (!file.products.back().timing) one.fail("has no \"first\"");
  });
  return tuning;
}

std::vector<ProductsRecord> read_products(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const ordered_json json = parsed(path, read_regular_file(path), kProductsFormat);
  std::vector<ProductsRecord> records;
  Reader(json, path, "").each("devices", [&](const Reader& one) {
    ProductsRecord record{
        .device = device_of(one), .tune_sha256 = one.text("tune_sha256"), .products = {}};
    one.each("products", [&](const Reader& p) { record.products.push_back(product_of(p)); });
    records.push_back(std::move(record));
  });
  return records;
}

ordered_json products_json(const std::vector<ProductsRecord>& records) {
  ordered_json json;
  json["format"] = kProductsFormat;
  json["devices"] = ordered_json::array();
  for (const ProductsRecord& record : records) {
    ordered_json one;
    put_device(one, record.device);
    one["tune_sha256"] = record.tune_sha256;
    one["products"] = ordered_json::array();
    for (const KeptProduct& p : record.products) one["products"].push_back(product_json(p));
    json["devices"].push_back(std::move(one));
  }
  return json;
}

}  // namespace assay
