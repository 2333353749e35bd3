// cuBLASLt's interface without a GPU: the functions that cuda/cublaslt.h looks up, on the SIMT
// emulator's streams. A library, libcublaslt_fake.so, for ASSAY_CUBLASLT_LIBRARY; it takes the
// emulator's functions from the program that opens it.
//
// It multiplies bf16 and float by several algorithms: those that split k round each part to bf16,
// so that a few small products show which it was. With ASSAY_FAKE_CUBLASLT_TIMED=1 it multiplies
// nothing, and each takes its own time on the emulator's clock instead. ASSAY_FAKE_CUBLASLT_VERSION
// is the version that it says it has. ASSAY_FAKE_CUBLASLT_ORDER=reversed proposes the last one
// first. With ASSAY_FAKE_CUBLASLT_FAULT=1 products fail when they run.
#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/check.h"
#include "cuda/simt/context.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"

namespace {

using assay::bf16;

struct Desc {
  std::map<int, int64_t> attributes;
  bool has(int which, int64_t value) const {
    const auto found = attributes.find(which);
    return found != attributes.end() && found->second == value;
  }
};
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, lead;
};
struct Preference {
  std::map<int, uint64_t> attributes;
};

template <typename Ours, typename Theirs>
Ours& as(Theirs* p) {
  return *reinterpret_cast<Ours*>(p);
}

// The words of cublasLtMatmulAlgo_t: attributes by number, and one that they do not say.
constexpr int kWords = 9, kSecret = 15;
uint32_t* words(cublasLtMatmulAlgo_t& a) {
  return reinterpret_cast<uint32_t*>(a.data);
}
uint32_t word(const cublasLtMatmulAlgo_t& a, int which) {
  return reinterpret_cast<const uint32_t*>(a.data)[which];
}

struct Way {
  int id, tile, split_k, reduction, custom, cluster;
  int64_t workspace;  // -1: of the split sums
  int milliseconds;   // that it takes
  bool secret = false;
};
// The first is what the library prefers. The fourth cannot be made anew from its attributes, the
// fifth adds in the output's type, the sixth needs more workspace than is usual.
constexpr Way kWays[] = {
    {66, 20, 1, 0, 0, 0, 0, 6000}, {66, 18, 2, 2, 0, 0, -1, 3000},
    {67, 18, 1, 0, 3, 4, 0, 4500}, {68, 1, 4, 2, 0, 0, -1, 0, true},
    {66, 18, 2, 4, 0, 0, 0, 0},    {70, 5, 8, 2, 0, 0, int64_t{64} << 20, 1500},
};

cublasLtMatmulAlgo_t algorithm_of(const Way& w) {
  cublasLtMatmulAlgo_t a = {};
  words(a)[CUBLASLT_ALGO_CONFIG_ID] = uint32_t(w.id);
  words(a)[CUBLASLT_ALGO_CONFIG_TILE_ID] = uint32_t(w.tile);
  words(a)[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = uint32_t(w.split_k);
  words(a)[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = uint32_t(w.reduction);
  words(a)[CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION] = uint32_t(w.custom);
  words(a)[CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID] = uint32_t(w.cluster);
  words(a)[kSecret] = w.secret ? 1 : 0;
  return a;
}

// The way with these attributes, also without its secret; null if there is none.
const Way* way_of(const cublasLtMatmulAlgo_t& a) {
  for (const Way& w : kWays) {
    const cublasLtMatmulAlgo_t its = algorithm_of(w);
    if (std::memcmp(its.data, a.data, kWords * sizeof(uint32_t)) == 0) return &w;
  }
  return nullptr;
}

int64_t workspace_of(const Way& w, const Layout& d) {
  return w.workspace >= 0 ? w.workspace : 4 * w.split_k * d.rows * d.columns;
}

float element(const void* p, cudaDataType_t type, int64_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(p)[i]
                            : float(static_cast<const bf16*>(p)[i]);
}

struct Product {
  const void *a, *b, *c;
  void* d;
  Layout a_layout, b_layout, d_layout;
  bool a_transposed, b_transposed, factors_on_device;
  const float *alpha, *beta;
  float host_alpha, host_beta;
  int64_t split;
};

// Column-major: D (rows, columns) = alpha op(A) op(B) + beta C.
void multiply(const Product& p) {
  const float alpha = p.factors_on_device ? *p.alpha : p.host_alpha;
  const float beta = p.factors_on_device ? *p.beta : p.host_beta;
  const int64_t k = p.a_transposed ? p.a_layout.rows : p.a_layout.columns;
  const int64_t piece = (k + p.split - 1) / p.split;
  for (int64_t j = 0; j < p.d_layout.columns; ++j) {
    for (int64_t i = 0; i < p.d_layout.rows; ++i) {
      float sum = 0;
      for (int64_t begin = 0; begin < k; begin += piece) {
        float part = 0;
        for (int64_t l = begin; l < std::min(k, begin + piece); ++l) {
          const int64_t at_a = p.a_transposed ? i * p.a_layout.lead + l : l * p.a_layout.lead + i;
          const int64_t at_b = p.b_transposed ? l * p.b_layout.lead + j : j * p.b_layout.lead + l;
          part += element(p.a, p.a_layout.type, at_a) * element(p.b, p.b_layout.type, at_b);
        }
        bf16 rounded_part;
        round_to(rounded_part, part);
        sum += p.split > 1 ? float(rounded_part) : part;
      }
      const int64_t at = j * p.d_layout.lead + i;
      float value = alpha * sum;
      if (beta != 0) value += beta * element(p.c, p.d_layout.type, at);
      if (p.d_layout.type == CUDA_R_32F) {
        static_cast<float*>(p.d)[at] = value;
      } else {
        round_to(static_cast<bf16*>(p.d)[at], value);
      }
    }
  }
}

bool known_type(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  const char* const given = std::getenv("ASSAY_FAKE_CUBLASLT_VERSION");
  return given ? size_t(std::atol(given)) : 130100;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported, says the fake library" : "refused";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  static int handle;
  *made = reinterpret_cast<cublasLtHandle_t>(&handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &as<Desc>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  int64_t number = 0;
  std::memcpy(&number, value, std::min(bytes, sizeof number));
  as<Desc>(desc).attributes[which] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t lead) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, int64_t(rows), int64_t(columns), lead});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &as<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &as<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, value, std::min(bytes, sizeof number));
  as<Preference>(preference).attributes[which] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (!known_type(as<Layout>(a).type) || !known_type(as<Layout>(b).type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  std::map<int, uint64_t>& wanted = as<Preference>(preference).attributes;
  const auto limit = int64_t(wanted[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES]);
  const auto schemes = int64_t(wanted[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK]);
  std::vector<Way> ways;
  for (const Way& w : kWays) {
    if (workspace_of(w, as<Layout>(d)) > limit || (w.reduction & ~schemes) != 0) continue;
    ways.push_back(w);
  }
  const char* const order = std::getenv("ASSAY_FAKE_CUBLASLT_ORDER");
  if (order && std::string(order) == "reversed") std::reverse(ways.begin(), ways.end());
  for (const Way& w : ways) {
    if (*found == most) break;
    results[(*found)++] = {
        algorithm_of(w), size_t(workspace_of(w, as<Layout>(d))), CUBLAS_STATUS_SUCCESS, 1, {}};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, int id, cublasLtMatmulAlgo_t* made) {
  *made = {};
  words(*made)[CUBLASLT_ALGO_CONFIG_ID] = uint32_t(id);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Way* const way = way_of(*algorithm);
  if (way == nullptr || (way->secret && word(*algorithm, kSecret) == 0)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  result->workspaceSize = size_t(workspace_of(*way, as<Layout>(d)));
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    void* value, size_t bytes, size_t* written) {
  const uint32_t number = word(*algorithm, which);
  std::memcpy(value, &number, std::min(bytes, sizeof number));
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    const void* value, size_t bytes) {
  uint32_t number = 0;
  std::memcpy(&number, value, std::min(bytes, sizeof number));
  words(*algorithm)[which] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Way* const way = way_of(*algorithm);
  if (way == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (int64_t(workspace_bytes) < workspace_of(*way, as<Layout>(d_layout))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Desc& how = as<Desc>(desc);
  const bool on_device = how.has(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  const auto *const f = static_cast<const float*>(alpha), *const g =
                                                              static_cast<const float*>(beta);
  const Product product{.a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .a_layout = as<Layout>(a_layout),
                        .b_layout = as<Layout>(b_layout),
                        .d_layout = as<Layout>(d_layout),
                        .a_transposed = how.has(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T),
                        .b_transposed = how.has(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T),
                        .factors_on_device = on_device,
                        .alpha = f,
                        .beta = g,
                        .host_alpha = on_device ? 0 : *f,
                        .host_beta = on_device ? 0 : *g,
                        .split = way->split_k};
  const std::chrono::milliseconds takes(way->milliseconds);
  if (std::getenv("ASSAY_FAKE_CUBLASLT_TIMED") != nullptr) {
    assay::simt::enqueue(stream, [takes] { assay::simt::advance_clock(takes); });
    return CUBLAS_STATUS_SUCCESS;
  }
  const bool fails = std::getenv("ASSAY_FAKE_CUBLASLT_FAULT") != nullptr;
  assay::simt::enqueue(stream, [product, fails] {
    if (fails) throw assay::UserError("an illegal access", "see the product");
    assay::simt::run_grid("matmul", {1, 1, 1}, {1, 1, 1}, 0, [&] { multiply(product); });
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
