#include "cuda/cublaslt_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/product_library.h"
#include "cuda/recent_kernels.h"
#include "cuda/transfer.h"

#if CUBLAS_VERSION >= 120900
#define ASSAY_SCALED_PRODUCTS 1
#endif

namespace assay::gpu {

namespace {

using Type = ProductKey::Type;
using Scales = ProductKey::Scales;

cublasLtHandle_t make_handle() {
  cublasLtHandle_t made = nullptr;
  cublas_check(cublaslt().create(&made), "starting");
  return made;
}

template <typename Value>
void set_product(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, Value value) {
  cublas_check(cublaslt().desc_set(desc, which, &value, sizeof value), "describing a product");
}

// `rows` is the contiguous dimension.
cublasLtMatrixLayout_t matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  cublas_check(cublaslt().layout_create(&made, type, uint64_t(rows), uint64_t(columns), rows),
               "describing a matrix");
  return made;
}

bool scaled(const ProductKey& key) {
  return key.a.scales != Scales::kNone;
}

void require_scaled_products() {
  const std::string problem = scaled_products_problem(product_library());
  if (problem.empty()) return;
  throw UserError(problem,
                  "install cuBLAS from the CUDA toolkit that this program was built with, or set "
                  "precision.products: decoded");
}

#ifdef ASSAY_SCALED_PRODUCTS
cublasLtMatmulMatrixScale_t scale_mode(Scales s) {
  switch (s) {
    case Scales::kNone:
    case Scales::kTensor:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case Scales::k1x128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scales::k128x128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case Scales::k1x32:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case Scales::k1x16:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

// The library's A is b, its B is a.
void point_to_scales(cublasLtMatmulDesc_t desc, const ProductOperands& p) {
  set_product(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_scales);
  set_product(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_scales);
}

void describe_scales(cublasLtMatmulDesc_t desc, const ProductKey& key) {
  set_product(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(key.b.scales));
  set_product(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(key.a.scales));
  const int8_t fast = key.sums == ProductKey::Sums::kFast;
  set_product(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
}
#else
void point_to_scales(cublasLtMatmulDesc_t, const ProductOperands&) {}
void describe_scales(cublasLtMatmulDesc_t, const ProductKey&) {}
#endif

cudaDataType_t cuda_type(Type type) {
  switch (type) {
    case Type::kFloat:
      return CUDA_R_32F;
    case Type::kBf16:
      return CUDA_R_16BF;
    case Type::kE4M3:
      return CUDA_R_8F_E4M3;
    case Type::kE5M2:
      return CUDA_R_8F_E5M2;
    case Type::kE2M1:
#ifdef ASSAY_SCALED_PRODUCTS
      return CUDA_R_4F_E2M1;
#else
      break;
#endif
  }
  return CUDA_R_32F;
}

struct AttributeOfLibrary {
  cublasLtMatmulAlgoConfigAttributes_t which;
  size_t bytes;
};
// In the order of kAlgorithmFields.
constexpr AttributeOfLibrary kAttributes[] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
static_assert(std::size(kAttributes) == std::size(kAlgorithmFields));

ProductAlgorithm attributes_of(const cublasLtMatmulAlgo_t& algorithm) {
  ProductAlgorithm found;
  for (size_t i = 0; i < std::size(kAttributes); ++i) {
    uint32_t value = 0;  // little-endian: the first bytes are the lowest
    size_t written = 0;
    const cublasStatus_t status = cublaslt().algorithm_get(&algorithm, kAttributes[i].which, &value,
                                                           kAttributes[i].bytes, &written);
    if (status == CUBLAS_STATUS_SUCCESS) found.*kAlgorithmFields[i].value = value;
  }
  return found;
}

constexpr const char* kTuneAgain =
    "the file that keeps it is of another program or was changed: make it again with `assay tune`, "
    "or train with --fresh";
constexpr int kMostProposals = 16;

struct Plan {
  Plan(const ProductKey& key, const ProductOperands& p) : description(key, p) {}
  ProductDescription description;
  ReadyAlgorithm by = {};
  ChosenBy chosen_by = ChosenBy::kLibrary;
  bool noted = false;
};
using Plans = std::map<std::pair<ProductKey, size_t>, std::unique_ptr<Plan>>;

Plans& plans_of(ProductChoices& choices) {
  if (!choices.plans) choices.plans = std::make_shared<Plans>();
  return *static_cast<Plans*>(choices.plans.get());
}

// A first proposal that a run has kept is asked for again: what is made anew from its attributes
// need not be the same in all that they do not say.
ReadyAlgorithm chosen(const ProductDescription& product, const ProductKey& key, size_t workspace,
                      const ProductChoice* kept) {
  if (kept == nullptr) return first_proposal(product, key, workspace);
  if (kept->by == ChosenBy::kLibrary) {
    for (const int most : {1, kMostProposals}) {
      for (const ReadyAlgorithm& proposal : propose(product, key, workspace, most)) {
        if (proposal.attributes == kept->algorithm) return proposal;
      }
    }
  }
  return rebuild(product, key, kept->algorithm, workspace);
}

Plan& plan_for(Exec on, const ProductKey& key, const ProductOperands& p) {
  ProductChoices& choices = *on.gpu->products;
  const size_t workspace = on.workspace.bytes();
  std::unique_ptr<Plan>& plan = plans_of(choices)[{key, workspace}];
  if (plan) return *plan;
  auto made = std::make_unique<Plan>(key, p);
  const ProductChoice* const kept = choices.find(key);
  made->by = chosen(made->description, key, workspace, kept);
  if (kept) made->chosen_by = kept->by;
  plan = std::move(made);
  return *plan;
}

void note(ProductChoices& choices, const ProductKey& key, Plan& plan) {
  if (plan.noted || choices.notes() == ProductChoices::Notes::kNone) return;
  plan.noted = true;
  choices.note({.key = key,
                .choice = {plan.by.attributes, plan.chosen_by},
                .workspace_bytes = int64_t(plan.by.workspace)});
}

}  // namespace

void cublas_check(cublasStatus_t status, const std::string& doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw UserError(
      strprintf("cuBLASLt failed while %s: %s", doing.c_str(), cublaslt().status_string(status)),
      "set ASSAY_SYNC_LAUNCHES=1 to name a kernel that failed earlier; --device cpu works "
      "meanwhile");
}

cublasLtHandle_t cublaslt_handle() {
  static const cublasLtHandle_t kept = make_handle();
  return kept;
}

uint32_t pointer_alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return uint32_t(std::min<uintptr_t>(256, address & (~address + 1)));
}

ProductDescription::ProductDescription(const ProductKey& key, const ProductOperands& p) {
  const bool a_plain = key.a.form == ProductKey::Form::kPlain;
  const bool b_plain = key.b.form == ProductKey::Form::kPlain;
  if (scaled(key)) require_scaled_products();
  cublas_check(cublaslt().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
  set_product(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE,
              key.factors == ProductKey::Factors::kDevice ? CUBLASLT_POINTER_MODE_DEVICE
                                                          : CUBLASLT_POINTER_MODE_HOST);
  set_product(desc, CUBLASLT_MATMUL_DESC_TRANSA, b_plain ? CUBLAS_OP_N : CUBLAS_OP_T);
  set_product(desc, CUBLASLT_MATMUL_DESC_TRANSB, a_plain ? CUBLAS_OP_N : CUBLAS_OP_T);
  if (scaled(key)) {
    describe_scales(desc, key);
    point_to_scales(desc, p);
  }
  b = matrix_layout(cuda_type(key.b.type), b_plain ? key.n : key.k, b_plain ? key.k : key.n);
  a = matrix_layout(cuda_type(key.a.type), a_plain ? key.k : key.m, a_plain ? key.m : key.k);
  d = matrix_layout(cuda_type(key.result), key.n, key.m);
}

ProductDescription::~ProductDescription() {
  for (const cublasLtMatrixLayout_t layout : {a, b, d}) cublaslt().layout_destroy(layout);
  cublaslt().desc_destroy(desc);
}

std::vector<ReadyAlgorithm> propose(const ProductDescription& product, const ProductKey& key,
                                    size_t workspace, int most) {
  const CublasLt& lib = cublaslt();
  const std::string doing = "choosing an algorithm for " + text_of(key);
  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(lib.preference_create(&preference), doing);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    cublas_check(lib.preference_set(preference, which, &value, sizeof value), doing);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lib.heuristic(cublaslt_handle(), product.desc, product.b, product.a, product.d, product.d,
                    preference, most, results.data(), &found);
  lib.preference_destroy(preference);
  // It says so where it has no algorithm.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  cublas_check(status, doing);
  std::vector<ReadyAlgorithm> proposals;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& r = results[size_t(i)];
    if (r.state != CUBLAS_STATUS_SUCCESS) continue;
    proposals.push_back({r.algo, attributes_of(r.algo), r.workspaceSize});
  }
  return proposals;
}

ReadyAlgorithm first_proposal(const ProductDescription& product, const ProductKey& key,
                              size_t workspace) {
  std::vector<ReadyAlgorithm> first = propose(product, key, workspace, 1);
  if (first.empty()) {
    throw UserError("cuBLASLt has no algorithm for " + text_of(key),
                    "set CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE=cublaslt.log to log the reason");
  }
  return first.front();
}

ReadyAlgorithm rebuild(const ProductDescription& product, const ProductKey& key,
                       const ProductAlgorithm& attributes, size_t workspace) {
  const CublasLt& lib = cublaslt();
  const auto refuse = [&](const std::string& why) {
    throw UserError(
        "the algorithm that is kept for " + text_of(key) + " (" + text_of(attributes) + ") " + why,
        kTuneAgain);
  };
  const auto require = [&](cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    refuse(std::string("is refused by cuBLASLt: ") + lib.status_string(status));
  };
  if ((attributes.reduction & ~int64_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) != 0) {
    refuse("does not add in float alone");
  }
  cublasLtMatmulAlgo_t made = {};
  const cudaDataType_t d = cuda_type(key.result);
  require(lib.algorithm_init(cublaslt_handle(), CUBLAS_COMPUTE_32F, CUDA_R_32F,
                             cuda_type(key.b.type), cuda_type(key.a.type), d, d, int(attributes.id),
                             &made));
  for (size_t i = 1; i < std::size(kAttributes); ++i) {  // the first is the id
    const auto value = uint32_t(attributes.*kAlgorithmFields[i].value);
    const cublasStatus_t status =
        lib.algorithm_set(&made, kAttributes[i].which, &value, kAttributes[i].bytes);
    if (value != 0) require(status);  // 0 may stand for an attribute that it has not
  }
  cublasLtMatmulHeuristicResult_t result = {};
  require(lib.algorithm_check(cublaslt_handle(), product.desc, product.b, product.a, product.d,
                              product.d, &made, &result));
  if (result.workspaceSize > workspace) {
    refuse(
        strprintf("needs %zu bytes of workspace, there are %zu", result.workspaceSize, workspace));
  }
  return {made, attributes, result.workspaceSize};
}

void start_product(Exec on, const ProductDescription& product, const ReadyAlgorithm& by,
                   const ProductKey& key, const ProductOperands& p) {
  const float host_factors[] = {p.gain, p.c ? 1.0f : 0.0f};
  const float* const factors = p.factors ? p.factors : host_factors;
  if (scaled(key)) point_to_scales(product.desc, p);
  remember_kernel("matmul (cuBLASLt)");
  const cublasStatus_t started =
      cublaslt().matmul(cublaslt_handle(), product.desc, factors, p.b, product.b, p.a, product.a,
                        factors + 1, p.c ? p.c : p.d, product.d, p.d, product.d, &by.algorithm,
                        on.workspace.data, by.workspace, static_cast<cudaStream_t>(on.gpu->stream));
  if (started != CUBLAS_STATUS_SUCCESS) cublas_check(started, "starting a product " + text_of(key));
  // So that a failure names the product, not the next kernel. No graph is recorded meanwhile
  // (cuda/graph.h).
  if (on.gpu->launches == Context::Launches::kWaiting) {
    wait_for_launch(on, "the product " + text_of(key));
  }
}

void run_product(Exec on, const ProductKey& key, const ProductOperands& p) {
  CHECK(on.gpu->products != nullptr, "matmul %s: the device has no choices", text_of(key).c_str());
  CHECK(pointer_alignment(on.workspace.data) == 256,
        "matmul %s: workspace at %p, cuBLASLt needs a multiple of 256 bytes", text_of(key).c_str(),
        static_cast<const void*>(on.workspace.data));
  Plan& plan = plan_for(on, key, p);
  note(*on.gpu->products, key, plan);
  ProductOperands call = p;
  call.workspace = on.workspace;
  on.gpu->products->note_call(key, call);
  start_product(on, plan.description, plan.by, key, p);
}

}  // namespace assay::gpu
