#include <map>
#include <string>
#include <vector>

#include "ops/instruction_path.h"
#include "tests/catch.h"
#include "tools/assay/instruction_facts.h"

namespace assay::test_instruction_facts {
namespace {

using nlohmann::ordered_json;

TEST_CASE("doctor lists what is used, what is not, and what the CPU lacks") {
  ordered_json facts;
  std::vector<Advice> advice;
  add_instruction_sets({{"avx2", true, true},
                        {"avx512f", true, false},
                        {"avx512_bf16", false, false},
                        {"amx_bf16", false, true}},
                       facts, advice);
  REQUIRE(facts["used"] == ordered_json::array({"avx2"}));
  REQUIRE(facts["unused"] == ordered_json::array({"avx512f"}));
  REQUIRE(facts["absent"] == ordered_json::array({"amx_bf16"}));
  REQUIRE(advice.size() == 2);
  REQUIRE(advice[0].what == "the CPU has avx512f, but this program was compiled without it");
  REQUIRE(advice[1].what == "this program was compiled for amx_bf16, which the CPU has not");
}

TEST_CASE("doctor says where the system does not give AMX") {
  ordered_json facts;
  std::vector<Advice> advice;
  add_instruction_sets({{"amx_bf16", true, true, false}}, facts, advice);
  REQUIRE(facts["used"].empty());
  REQUIRE(facts["unused"] == ordered_json::array({"amx_bf16"}));
  REQUIRE(!facts.contains("absent"));
  REQUIRE(advice.size() == 1);
  REQUIRE(advice[0].what.find("(AMX)") != std::string::npos);
  add_instruction_sets({{"amx_bf16", true, true}}, facts, advice);
  REQUIRE(facts["used"] == ordered_json::array({"amx_bf16"}));
  REQUIRE(advice.size() == 1);
}

TEST_CASE("doctor's sets are those by which the ops choose their path") {
  std::vector<std::string> names;
  std::string path = "base";
  for (const InstructionSet& set : instruction_sets()) {
    names.emplace_back(set.name);
    if (set.here && set.compiled && set.granted) path = set.name;
  }
  REQUIRE(names == std::vector<std::string>{"avx2", "avx512f", "avx512_bf16", "amx_bf16"});
  const std::map<std::string, std::string> other = {{"avx512f", "avx512"}, {"amx_bf16", "amx"}};
  REQUIRE((other.contains(path) ? other.at(path) : path) == instruction_path());
}

}  // namespace
}  // namespace assay::test_instruction_facts
