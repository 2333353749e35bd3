#include "base/instruction_sets.h"

namespace assay {

// A macro that the compiler has for an instruction set is 1; any other word stays as it is.
#define ASSAY_IS_ONE_(word) (#word[0] == '1')
#define ASSAY_IS_ONE(word) ASSAY_IS_ONE_(word)
#define ASSAY_BIT(name, builtin, macro, use) bits |= InstructionSets{ASSAY_IS_ONE(macro)} << bit++;

namespace {
constexpr InstructionSets compiled_sets() {
  InstructionSets bits = 0;
  int bit = 0;
  ASSAY_INSTRUCTION_SETS(ASSAY_BIT)
  return bits;
}
}  // namespace

#undef ASSAY_BIT
#undef ASSAY_IS_ONE
#undef ASSAY_IS_ONE_

constinit const InstructionSets kCompiledSets = compiled_sets();

}  // namespace assay
