// cuBLASLt as cuda/product_library.h shows it.
#include <algorithm>
#include <memory>

#include "base/check.h"
#include "cuda/cublaslt_plan.h"
#include "cuda/product_library.h"

namespace assay::gpu {

namespace {

int64_t version() {
  return int64_t(cublaslt().version());
}

std::vector<ProductProposal> proposals(Exec on, const ProductKey& key, const ProductOperands& call,
                                       int most) {
  const ProductDescription product(key, call);
  const size_t workspace = on.workspace.bytes();
  std::vector<ProductProposal> found;
  for (const ReadyAlgorithm& r : propose(product, key, workspace, most)) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const ProductProposal& f) {
      return f.algorithm == r.attributes;
    });
    if (known) continue;
    try {
      const ReadyAlgorithm again = rebuild(product, key, r.attributes, workspace);
      found.push_back({again.attributes, int64_t(again.workspace)});
    } catch (const UserError&) {  // it cannot be kept as data
    }
  }
  return found;
}

struct Prepared {
  Prepared(const ProductKey& k, const ProductOperands& call) : key(k), description(k, call) {}
  ProductKey key;
  ProductDescription description;
  ReadyAlgorithm by = {};
};

ProductRun run_of(const std::shared_ptr<Prepared>& made) {
  return [made](Exec on, const ProductOperands& p) {
    start_product(on, made->description, made->by, made->key, p);
  };
}

PreparedProduct first(Exec on, const ProductKey& key, const ProductOperands& call) {
  const auto made = std::make_shared<Prepared>(key, call);
  made->by = first_proposal(made->description, key, on.workspace.bytes());
  return {{made->by.attributes, int64_t(made->by.workspace)}, run_of(made)};
}

ProductRun prepare(Exec on, const ProductKey& key, const ProductOperands& call,
                   const ProductAlgorithm& algorithm) {
  const auto made = std::make_shared<Prepared>(key, call);
  made->by = rebuild(made->description, key, algorithm, on.workspace.bytes());
  return run_of(made);
}

constexpr ProductLibrary kCublasLt{version, first, proposals, prepare};

}  // namespace

const ProductLibrary* product_library() {
  return &kCublasLt;
}

}  // namespace assay::gpu
