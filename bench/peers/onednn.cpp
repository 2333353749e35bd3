#include "bench/peers/onednn.h"

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/bf16.h"
#include "machine/normals.h"

namespace assay {

namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

dnnl::memory filled(const dnnl::memory::desc& desc, const dnnl::engine& engine) {
  dnnl::memory m(desc, engine);
  void* const data = m.get_data_handle();
  if (desc.data_type() == Type::f32) {
    fill_normal(static_cast<float*>(data), int64_t(desc.get_size() / sizeof(float)));
  } else {
    fill_normal(static_cast<bf16*>(data), int64_t(desc.get_size() / sizeof(bf16)));
  }
  return m;
}

// c (m, n) = a (m, k) b (k, n): with packed weights, or (wgrad) added to c.
struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;

  void run() {
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

}  // namespace

std::function<void()> onednn_product(Pass pass, LimitType type, int64_t rows, int64_t out,
                                     int64_t in) {
  const Type t = type == LimitType::kBf16 ? Type::bf16 : Type::f32;
  const auto product = std::make_shared<Product>();
  dnnl::memory::desc a, b, packed, c;
  dnnl::primitive_attr attributes;
  if (pass == Pass::kForward) {
    a = {{rows, in}, t, Tag::ab};
    b = {{in, out}, t, Tag::ba};
    c = {{rows, out}, t, Tag::ab};
  } else if (pass == Pass::kDgrad) {
    a = {{rows, out}, t, Tag::ab};
    b = {{out, in}, t, Tag::ab};
    c = {{rows, in}, t, Tag::ab};
  } else {
    a = {{out, rows}, t, Tag::ba};
    b = {{rows, in}, t, Tag::ab};
    c = {{out, in}, Type::f32, Tag::ab};
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  packed = pass == Pass::kWgrad ? b : dnnl::memory::desc(b.dims(), t, Tag::any);
  try {
    const dnnl::matmul::primitive_desc desc({a, packed, c}, attributes, product->engine);
    dnnl::memory weights = filled(b, product->engine);
    if (desc.weights_desc() != b) {
      dnnl::memory plain = weights;
      weights = dnnl::memory(desc.weights_desc(), product->engine);
      dnnl::reorder(plain, weights).execute(product->stream, plain, weights);
      product->stream.wait();
    }
    product->primitive = dnnl::matmul(desc);
    product->arguments = {{DNNL_ARG_SRC, filled(a, product->engine)},
                          {DNNL_ARG_WEIGHTS, weights},
                          {DNNL_ARG_DST, filled(c, product->engine)}};
  } catch (const dnnl::error&) {
    return {};
  }
  return [product] { product->run(); };
}

}  // namespace assay
