#include "cuda/matmul.h"
#include "ops/gpu/product_factors.h"
#include "ops/linear.h"

// On a GPU the linear layer is a library call: cuBLASLt is hard to beat for dense bf16 (bound by
// the tensor cores and, for shapes 768 wide, also by the bytes). The only kernel of our own
// computes a factor that is known on the device only.

namespace assay::gpu {

namespace {

using Form = Matmul::Form;

void scaled_matmul(Exec on, const ProductScale& scale, Matmul p) {
  if (!scale.of_operands()) {
    p.gain = scale.gain;
  } else {
    p.factors = place_product_factors(on, scale, p.c ? Adds::kMatrix : Adds::kNothing);
  }
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
                 .c = a.sum == GradientSum::kStore ? nullptr : a.dweight.data,
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
