#include "session/run_products.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "data/sha256.h"
#include "engine/run/run_dir.h"

namespace assay {

namespace {

std::string tune_of(const std::string& folder) {
  return folder + "/" + kTuneCopy;
}
std::string products_of(const std::string& folder) {
  return folder + "/" + kProductsFile;
}

// "" if the file's choices are of this GPU and library; also where no GPU is open (kPlan).
std::string difference(const Session& session, const Tuning& tuning) {
  if (session.use == SessionOptions::Use::kPlan) return "";
  const std::optional<ProductsDevice> here = products_device(session.device);
  if (!here) return "here products have one way only";
  if (here->same(tuning.file.device)) return "";
  return "here is " + here->text();
}

void take(Session& session, const std::vector<KeptProduct>& products) {
  gpu::Context* const gpu = session.device.context();
  if (gpu == nullptr) return;
  for (const KeptProduct& p : products) gpu->products->set(p.key, p.choice);
}

void take(Session& session, Tuning tuning) {
  take(session, tuning.file.products);
  session.tuning = std::move(tuning);
}

// The run may go on with this file only.
void require_same_tuning(const std::string& folder, const Tuning& given) {
  const bool has_one = std::filesystem::exists(tune_of(folder));
  // Nothing was computed yet: the process was killed before it kept the file.
  if (!has_one && !std::filesystem::exists(products_of(folder))) return;
  const char* const hint =
      "leave out --tune: the run keeps its choices; train in another --run, or start over with "
      "--fresh";
  if (!has_one) throw UserError(folder + " began without a tune file, --tune gives one", hint);
  const Tuning kept = read_tuning(tune_of(folder));
  if (kept.sha256 == given.sha256) return;
  throw UserError(tune_of(folder) + " is " + short_hash(kept.sha256) + ", --tune " + given.path +
                      " is " + short_hash(given.sha256),
                  hint);
}

// What the run's products took on this device. False if the latest were those of another.
bool take_record(Session& session, const std::string& folder) {
  const std::optional<ProductsDevice> here = products_device(session.device);
  if (!here) return true;
  const std::vector<ProductsRecord> records = read_products(products_of(folder));
  for (const ProductsRecord& record : records) {
    if (record.device.same(*here)) take(session, record.products);
  }
  return records.empty() || records.back().device.same(*here);
}

// The most bytes that a product of the run took on this device.
int64_t workspace_of_record(const Session& session, const std::string& folder) {
  const std::optional<ProductsDevice> here = products_device(session.device);
  if (!here) return 0;
  int64_t most = 0;
  for (const ProductsRecord& record : read_products(products_of(folder))) {
    if (!record.device.same(*here)) continue;
    for (const KeptProduct& p : record.products) most = std::max(most, p.workspace_bytes);
  }
  return most;
}

}  // namespace

void use_tuning(Session& session, Tuning tuning) {
  if (session.backend == Backend::kCpu) {
    throw UserError(tuning.path + " has the products of a GPU (" + tuning.file.device.text() +
                        "), but this runs on the CPU",
                    "give --device cuda, or leave out --tune");
  }
  if (const std::string here = difference(session, tuning); !here.empty()) {
    throw UserError(tuning.path + " is of " + tuning.file.device.text() + "; " + here,
                    "make one here: assay tune CONFIG --device cuda -o FILE; or leave out --tune");
  }
  take(session, std::move(tuning));
}

void use_products_for_training(Session& session, const std::string& folder,
                               const std::string& given, bool goes_on) {
  if (!given.empty()) {
    Tuning tuning = read_tuning(given);
    if (goes_on) require_same_tuning(folder, tuning);
    use_tuning(session, std::move(tuning));
  }
  if (!goes_on || session.backend == Backend::kCpu) return;
  if (given.empty() && std::filesystem::exists(tune_of(folder))) {
    Tuning kept = read_tuning(tune_of(folder));
    if (const std::string here = difference(session, kept); here.empty()) {
      take(session, std::move(kept));
    } else {
      session.warnings.push_back(tune_of(folder) + " is of " + kept.file.device.text() + "; " +
                                 here + ": cuBLASLt's first proposals instead, other bits");
      return;
    }
  }
  session.product_workspace = workspace_of_record(session, folder);
  if (!take_record(session, folder)) {
    session.warnings.push_back("dense products so far were those of " +
                               read_products(products_of(folder)).back().device.text() +
                               "; here is " + products_device(session.device)->text() +
                               ": their bits may differ");
  }
}

void use_products_of_run(Session& session, const std::string& folder) {
  if (session.backend == Backend::kCpu) return;
  if (std::filesystem::exists(tune_of(folder))) {
    Tuning kept = read_tuning(tune_of(folder));
    if (difference(session, kept).empty()) take(session, std::move(kept));
  }
  take_record(session, folder);
}

RunProducts::RunProducts(const Session& session, const std::string& folder)
    : session_(session), path_(products_of(folder)), device_(products_device(session.device)) {
  if (!device_) return;
  const std::string sha256 = session.tuning ? session.tuning->sha256 : "";
  if (session.tuning && !std::filesystem::exists(tune_of(folder))) {
    write_file_atomic(tune_of(folder), session.tuning->bytes);
  }
  records_ = read_products(path_);
  const auto mine = std::find_if(records_.begin(), records_.end(),
                                 [&](const ProductsRecord& r) { return r.device.same(*device_); });
  if (mine == records_.end()) {
    records_.push_back({.device = *device_, .tune_sha256 = sha256, .products = {}});
  } else {
    std::rotate(mine, mine + 1, records_.end());
  }
}

void RunProducts::update() {
  if (!device_) return;
  const std::vector<gpu::ProductChoices::Used>& used = session_.device.context()->products->used();
  if (used.size() == written_) return;
  written_ = used.size();
  std::vector<KeptProduct>& products = records_.back().products;
  for (const gpu::ProductChoices::Used& u : used) {
    const bool known = std::any_of(products.begin(), products.end(),
                                   [&](const KeptProduct& p) { return p.key == u.key; });
    if (!known) products.push_back({u.key, u.choice, u.workspace_bytes});
  }
  write_file_atomic(path_, products_json(records_).dump(1) + "\n");
}

std::string RunProducts::library() const {
  return device_ ? device_->library_text() : "";
}

std::string RunProducts::summary() const {
  if (!device_) return "";
  if (!session_.tuning) return "dense products: " + library() + ", its first proposals";
  return strprintf("dense products: %s, %zu of them as chosen in %s (%s)", library().c_str(),
                   session_.tuning->file.products.size(), session_.tuning->path.c_str(),
                   short_hash(session_.tuning->sha256).c_str());
}

}  // namespace assay
