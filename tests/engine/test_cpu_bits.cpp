#include "engine/cpu_bits.h"
#include "ops/instruction_path.h"
#include "tests/catch.h"

namespace assay::test_cpu_bits {
namespace {

Config config_of(const std::string& recipe, OptimizerKind kind = OptimizerKind::kAdamW) {
  Config config;
  config.precision.recipe = recipe;
  config.optimizer.kind = kind;
  return config;
}

std::string deciding(const Config& config, const std::string& path,
                     CpuWork work = CpuWork::kTraining) {
  return deciding_instructions(path, config, work);
}

}  // namespace

TEST_CASE("products of bf16 are those of every recipe but fp32, and of Muon's training") {
  for (const CpuWork work : {CpuWork::kTraining, CpuWork::kEvaluation}) {
    for (const char* recipe : {"bf16", "auto", "mxfp8", "nvfp4"}) {
      CAPTURE(recipe);
      REQUIRE(multiplies_bf16(config_of(recipe), work));
    }
    REQUIRE(!multiplies_bf16(config_of("fp32"), work));
    Config tail = config_of("fp32");
    tail.precision.bf16_tail = 0.5;
    REQUIRE(!multiplies_bf16(tail, work));
  }
  const Config muon = config_of("fp32", OptimizerKind::kMuon);
  REQUIRE(multiplies_bf16(muon, CpuWork::kTraining));
  REQUIRE(!multiplies_bf16(muon, CpuWork::kEvaluation));
}

TEST_CASE("only the width of floats decides the bits without products of bf16") {
  const Config wide = config_of("fp32"), half = config_of("bf16");
  for (const char* path : {"amx", "avx512_bf16", "avx512"}) {
    REQUIRE(deciding(wide, path) == "AVX-512");
    REQUIRE(deciding(half, path) == instruction_path_text(path));
  }
  for (const char* path : {"avx2", "base", "of a later version", ""}) {
    REQUIRE(deciding(wide, path) == instruction_path_text(path));
  }
  const Config muon = config_of("fp32", OptimizerKind::kMuon);
  REQUIRE(deciding(muon, "amx") == "AMX");
  REQUIRE(deciding(muon, "amx", CpuWork::kEvaluation) == "AVX-512");
}

}  // namespace assay::test_cpu_bits
