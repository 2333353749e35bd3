#include "base/check.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "cuda/matmul.h"
#include "ops/gpu_ops.h"
#include "ops/linear.h"

// The linear layer is a library's product on a GPU: cuBLASLt is hard to beat for dense bf16 (bound: the tensor cores, and
// for 768 wide shapes the bytes too). No kernel of our own but for the one number of a scale.

namespace assay::gpu {

namespace {

using Form = Matmul::Form;

struct ProductFactors {
  float* factors;  // out (2)   of the product, of what is added
  ProductScale scale;
  float of_added;
};

// One thread: latency, while the library's kernel is being launched.
__global__ void product_factors_kernel(const __grid_constant__ ProductFactors a) {
  a.factors[0] = a.scale.factor();
  a.factors[1] = a.of_added;
}

// With a scale its factors lie at the start of the workspace, and the library has the rest.
void scaled_matmul(Exec on, const ProductScale& scale, Matmul p) {
  constexpr int64_t kFactorsBytes = 256;  // the rest stays aligned
  if (scale.empty()) return matmul(on, p);
  CHECK(on.workspace.dim[0] >= kFactorsBytes, "linear: workspace of %ld bytes, a scale needs %ld",
        long(on.workspace.dim[0]), long(kFactorsBytes));
  float* const factors = reinterpret_cast<float*>(on.workspace.data);
  launch(on, {.name = "product_factors", .grid = {1}, .block = {1}}, product_factors_kernel,
         ProductFactors{factors, scale, p.c ? 1.0f : 0.0f});
  p.factors = factors;
  on.workspace = on.workspace.rows(kFactorsBytes, on.workspace.dim[0] - kFactorsBytes);
  matmul(on, p);
}

template <typename T, typename Y>
void forward(Exec on, const LinearForward<T, Y>& a) {
  scaled_matmul(on, a.scale,
                {.d = a.y.data,
                 .c = a.add.data,
                 .a = a.x.data,
                 .b = a.weight.plain.data,
                 .m = a.x.dim[0],
                 .n = a.weight.plain.dim[0],
                 .k = a.x.dim[1],
                 .b_form = Form::kTransposed,
                 .operands = element_of<T>,
                 .result = element_of<Y>});
}

template <typename T>
void dgrad(Exec on, const LinearDgrad<T>& a) {
  scaled_matmul(on, a.scale,
                {.d = a.dx.data,
                 .c = a.add.data,
                 .a = a.dy.data,
                 .b = a.weight.plain.data,
                 .m = a.dy.dim[0],
                 .n = a.dx.dim[1],
                 .k = a.dy.dim[1],
                 .operands = element_of<T>,
                 .result = element_of<T>});
}

template <typename T>
void wgrad(Exec on, const LinearWgrad<T>& a) {
  scaled_matmul(on, a.scale,
                {.d = a.dweight.data,
                 .c = a.dweight.data,
                 .a = a.dy.data,
                 .b = a.x.data,
                 .m = a.dweight.dim[0],
                 .n = a.dweight.dim[1],
                 .k = a.dy.dim[0],
                 .a_form = Form::kTransposed,
                 .operands = element_of<T>,
                 .result = Element::kFloat});
}

}  // namespace

void linear_forward(Exec on, const LinearForward<float>& a) {
  forward(on, a);
}
void linear_forward(Exec on, const LinearForward<bf16>& a) {
  forward(on, a);
}
void linear_forward(Exec on, const LinearForward<bf16, float>& a) {
  forward(on, a);
}
void linear_dgrad(Exec on, const LinearDgrad<float>& a) {
  dgrad(on, a);
}
void linear_dgrad(Exec on, const LinearDgrad<bf16>& a) {
  dgrad(on, a);
}
void linear_wgrad(Exec on, const LinearWgrad<float>& a) {
  wgrad(on, a);
}
void linear_wgrad(Exec on, const LinearWgrad<bf16>& a) {
  wgrad(on, a);
}

}  // namespace assay::gpu
