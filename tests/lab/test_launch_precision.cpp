// The precision that a run's launches had, and that of its rerun.
#include "lab/receipt/launch_precision.h"
#include "tests/catch.h"

namespace assay::test_launch_precision {

TEST_CASE("a launch whose first step is no number began at step 0") {
  const ReceiptJson first{{"first_step", 0}, {"precision", "fp32"}};
  ReceiptJson next{{"first_step", 20}, {"precision", "bf16"}};
  REQUIRE(precision_change({first, next}) == "trained in fp32, and from step 20 on in bf16");
  next["first_step"] = "20";
  REQUIRE(precision_change({first, next}) == "trained in fp32, and from step 0 on in bf16");
}

TEST_CASE("a rerun has the precision of the launches, whatever the configuration has now") {
  Config config;
  config.precision.recipe = "fp32";
  config.precision.bf16_first_layers = 1;
  const auto launch = [](const char* recipe, const char* precision) {
    return ReceiptJson{{"recipe", recipe}, {"precision", precision}};
  };
  ReceiptJson older;  // an older program recorded the recipe only
  older["recipe"] = "bf16";
  const auto absent = [&](const std::vector<ReceiptJson>& launches) {
    return precision_of_rerun(launches, config).absent;
  };
  const auto precision = [&](const std::vector<ReceiptJson>& launches) {
    REQUIRE(absent(launches) == "");
    return precision_of_rerun(launches, config).precision;
  };
  REQUIRE(precision({ReceiptJson::object()}) == config.precision);  // a damaged meta.json
  REQUIRE(precision({launch("fp32", "fp32, first 1 blocks in bf16")}) == config.precision);
  for (const ProductsMode products :
       {ProductsMode::kAuto, ProductsMode::kSimulated, ProductsMode::kNative}) {
    config.precision.products = products;
    PrecisionConfig expected = config.precision;
    expected.recipe = "bf16";
    REQUIRE(precision({older}) == expected);
  }
  config.precision.products = ProductsMode::kAuto;
  REQUIRE(precision({launch("nvfp4", "nvfp4, first 1 blocks in bf16")}).bf16_first_layers == 1);
  const PrecisionConfig plain = precision({launch("bf16", "bf16"), launch("bf16", "bf16")});
  REQUIRE(plain.recipe == "bf16");
  REQUIRE(plain.bf16_first_layers == 0);
  REQUIRE(plain.products == ProductsMode::kSimulated);
  const PrecisionConfig native =
      precision({launch("mxfp8", "mxfp8, products in their own formats")});
  REQUIRE(native.products == ProductsMode::kNative);
  REQUIRE(absent({launch("bf16", "bf16"), launch("fp32", "fp32")}) ==
          "these steps were trained in bf16, then fp32, a rerun has one precision");
  REQUIRE(absent({launch("mxfp8", "mxfp8 with experts.wgrad=bf16")}) ==
          "these steps were trained in mxfp8 with experts.wgrad=bf16, config.yaml has fp32, first "
          "1 blocks in bf16");
}

}  // namespace assay::test_launch_precision
