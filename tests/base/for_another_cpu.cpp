// A program that says it is compiled for instruction sets that no CPU has. It ends with the error,
// before its static objects are made: they would end it with 0.
#include <cstdlib>

#include "base/instruction_sets.h"

namespace assay {
extern const InstructionSets kCompiledSets = ~InstructionSets{0};
}

namespace {
struct Early {
  Early() { std::_Exit(0); }
} early;
}  // namespace

int main() {
  assay::require_instruction_sets();
}
