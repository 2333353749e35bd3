// The table of formats: recipes, overrides, refusals.
#include <algorithm>

#include "models/decoder/decoder.h"
#include "models/linear/precision.h"
#include "tests/catch.h"

namespace assay::test_precision {

namespace {

ModelConfig model_of_64() {
  ModelConfig m;
  m.hidden = 64;
  m.layers = 8;
  m.heads = 2;
  m.ffn = 128;
  m.vocab_size = 128;
  m.moe = MoeConfig{.experts = 4,
                    .top_k = 2,
                    .shared = 1,
                    .expert_ffn = 32,
                    .first_dense_layers = 1,
                    .router = {}};
  return m;
}

PrecisionTable table_of(const std::string& recipe, std::vector<std::string> changes = {}) {
  PrecisionConfig c;
  c.recipe = recipe;
  c.override_ = std::move(changes);
  return precision_table(c, model_of_64());
}

// fprop input, weight | dgrad gradient, weight | wgrad gradient, input
std::string shown(const ProductFormats& f) {
  return format_name(f.fprop_input) + " " + format_name(f.fprop_weight) + " | " +
         format_name(f.dgrad_gradient) + " " + format_name(f.dgrad_weight) + " | " +
         format_name(f.wgrad_gradient) + " " + format_name(f.wgrad_input);
}

}  // namespace

TEST_CASE("every recipe of the configuration has its formats, and none is left out") {
  std::vector<std::string> quantised;
  for (const std::string& name : recipe_names()) {
    if (name != "auto" && name != "fp32" && name != "bf16") quantised.push_back(name);
    REQUIRE(table_of(name).any() == is_quantised_recipe(name));
  }
  std::sort(quantised.begin(), quantised.end());
  std::string joined;
  for (const std::string& name : quantised) joined += (joined.empty() ? "" : ", ") + name;
  REQUIRE(joined == quantised_recipe_names());
}

TEST_CASE("recipes are tables by role, product and operand") {
  struct Row {
    const char *recipe, *attention, *experts;
  };
  const std::string plain = "bf16 bf16 | bf16 bf16 | bf16 bf16";
  for (const Row& row :
       {Row{"bf16", plain.c_str(), plain.c_str()},
        Row{"fp8_tensor", "fp8_e4m3 fp8_e4m3 | fp8_e5m2 fp8_e4m3 | fp8_e5m2 fp8_e4m3",
            "fp8_e4m3 fp8_e4m3 | fp8_e5m2 fp8_e4m3 | fp8_e5m2 fp8_e4m3"},
        Row{"fp8_block", "fp8_1x128 fp8_128x128 | fp8_1x128 fp8_128x128 | fp8_1x128 fp8_1x128",
            "fp8_1x128 fp8_128x128 | fp8_1x128 fp8_128x128 | fp8_1x128 fp8_1x128"},
        Row{"mxfp8", "mxfp8 mxfp8 | mxfp8 mxfp8 | mxfp8 mxfp8",
            "mxfp8 mxfp8 | mxfp8 mxfp8 | mxfp8 mxfp8"},
        Row{"nvfp4", "nvfp4 nvfp4_2d | nvfp4+sr nvfp4_2d | nvfp4+sr+rht nvfp4+rht",
            "nvfp4 nvfp4_2d | nvfp4+sr nvfp4_2d | nvfp4+sr+rht nvfp4+rht"},
        Row{"mxfp8_nmoe", plain.c_str(), "mxfp8 mxfp8 | bf16 bf16 | bf16 bf16"},
        Row{"mxfp4_nmoe", plain.c_str(), "mxfp4 mxfp4 | bf16 bf16 | bf16 bf16"}}) {
    CAPTURE(row.recipe);
    const PrecisionTable table = table_of(row.recipe);
    REQUIRE(shown(table.of(ProductRole::kAttention)) == row.attention);
    REQUIRE(shown(table.of(ProductRole::kExperts)) == row.experts);
    REQUIRE(resolve_recipe(row.recipe) == Recipe::kBf16);
    REQUIRE(resolved_recipe(row.recipe) == row.recipe);
  }
}

TEST_CASE("an override changes the operands that match its pattern, and the last one wins") {
  const PrecisionTable table = table_of(
      "nvfp4",
      {"weight=nvfp4", "experts.wgrad=bf16", "attention=mxfp8", "attention.dgrad.gradient=bf16"});
  REQUIRE(shown(table.of(ProductRole::kDenseFfn)) ==
          "nvfp4 nvfp4 | nvfp4+sr nvfp4 | nvfp4+sr+rht nvfp4+rht");
  REQUIRE(shown(table.of(ProductRole::kExperts)) == "nvfp4 nvfp4 | nvfp4+sr nvfp4 | bf16 bf16");
  REQUIRE(shown(table.of(ProductRole::kAttention)) == "mxfp8 mxfp8 | bf16 mxfp8 | mxfp8 mxfp8");
  REQUIRE(shown(table_of("bf16", {"experts.fprop=mxfp4"}).of(ProductRole::kExperts)) ==
          shown(table_of("mxfp4_nmoe").of(ProductRole::kExperts)));
}

TEST_CASE("an override of products that the model lacks is idle") {
  PrecisionConfig c;
  c.override_ = {"experts.wgrad=bf16", "weight=mxfp8", "dense_ffn=mxfp8",
                 "wgrad.shared_experts=mxfp8"};
  ModelConfig model = model_of_64();
  REQUIRE(idle_overrides(c, model).empty());
  using Lines = std::vector<std::string>;
  model.moe->first_dense_layers = 0;
  REQUIRE(idle_overrides(c, model) == Lines{"dense_ffn=mxfp8"});
  model.moe.reset();
  REQUIRE(idle_overrides(c, model) == Lines{"experts.wgrad=bf16", "wgrad.shared_experts=mxfp8"});
}

TEST_CASE("layers that stay in bf16") {
  PrecisionConfig c;
  c.recipe = "nvfp4";
  const ModelConfig model = model_of_64();
  const auto quantised = [&](int64_t layer) {
    return formats_of(precision_table(c, model), ProductRole::kExperts, layer, model.layers).any();
  };
  // The last 15% of the 8 layers, rounded up, stay in bf16.
  REQUIRE((quantised(0) && quantised(5) && !quantised(6) && !quantised(7)));
  c.bf16_first_layers = 1;
  c.bf16_last_layers = 0;
  REQUIRE((!quantised(0) && quantised(1) && quantised(7)));
  c.recipe = "mxfp8";
  c.bf16_last_layers = -1;
  REQUIRE(quantised(7));
}

TEST_CASE(
    "one copy of a weight serves both products where its blocks are the same along both axes") {
  REQUIRE(table_of("nvfp4").of(ProductRole::kExperts).one_weight());
  REQUIRE(table_of("fp8_block").of(ProductRole::kExperts).one_weight());
  REQUIRE(table_of("fp8_tensor").of(ProductRole::kExperts).one_weight());
  REQUIRE_FALSE(table_of("mxfp8").of(ProductRole::kExperts).one_weight());
  REQUIRE_FALSE(table_of("mxfp4_nmoe").of(ProductRole::kExperts).one_weight());
}

TEST_CASE("impossible formats are refused by name") {
  struct Row {
    const char *recipe, *change, *error;
  };
  for (const Row& row :
       {Row{"bf16", "expert=mxfp8", "no role, product or operand 'expert'"},
        Row{"bf16", "head=mxfp8", "the head is not quantised by any recipe"},
        Row{"bf16", "experts.fprop=fp4", "no format 'fp4'"},
        Row{"bf16", "experts.fprop=mxfp8+srr", "no format 'mxfp8+srr'"},
        Row{"bf16", "experts.fprop=bf16+sr", "no format 'bf16+sr'"},
        Row{"bf16", "experts.fprop", "is not ROLE.PRODUCT.OPERAND=FORMAT"},
        Row{"bf16", "experts.fprop.gradient=mxfp8", "names no operand of any product"},
        Row{"bf16", "experts.fprop.fprop=mxfp8", "no role, product or operand 'fprop'"},
        Row{"bf16", "experts.wgrad.input=nvfp4+rht", "only one operand is rotated"},
        Row{"bf16", "experts.fprop=nvfp4+rht", "+rht on a product of experts that is not wgrad"},
        Row{"nvfp4", "weight=nvfp4+sr", "+sr on the weight of attention"},
        Row{"fp32", "experts.fprop=mxfp8", "precision.override with recipe fp32"}}) {
    CAPTURE(row.change);
    REQUIRE_THROWS_WITH(table_of(row.recipe, {row.change}),
                        Catch::Matchers::ContainsSubstring(row.error));
  }
}

TEST_CASE("a width that is not a multiple of the block is named with its product") {
  const ModelConfig model = model_of_64();
  REQUIRE_NOTHROW(require_whole_blocks(table_of("nvfp4"), model));
  REQUIRE_NOTHROW(require_whole_blocks(table_of("mxfp8"), model));
  REQUIRE_THROWS_WITH(
      require_whole_blocks(table_of("fp8_block"), model),
      Catch::Matchers::ContainsSubstring(
          "attention.fprop in fp8_1x128 needs blocks of 128 along model.hidden = 64"));
  ModelConfig narrow = model;
  narrow.moe->expert_ffn = 24;
  REQUIRE_THROWS_WITH(
      require_whole_blocks(table_of("mxfp4_nmoe"), narrow),
      Catch::Matchers::ContainsSubstring("blocks of 32 along model.moe.expert_ffn = 24"));
  REQUIRE_NOTHROW(
      require_whole_blocks(table_of("mxfp8", {"experts=bf16", "shared_experts=bf16"}), narrow));

  // A role whose blocks are all kept in bf16 has no blocks of numbers.
  ModelConfig one_dense = model;
  one_dense.ffn = 24;
  one_dense.moe->first_dense_layers = 1;
  PrecisionConfig first_kept;
  first_kept.recipe = "mxfp8";
  REQUIRE_THROWS(require_whole_blocks(precision_table(first_kept, one_dense), one_dense));
  first_kept.bf16_first_layers = 1;
  REQUIRE_NOTHROW(require_whole_blocks(precision_table(first_kept, one_dense), one_dense));
}

}  // namespace assay::test_precision
