// Compiled for any x86-64 CPU, whatever the rest is compiled for (base/CMakeLists.txt). So nothing
// of the standard library is used whose inline functions another unit may have compiled: the linker
// keeps one copy of each.
#include "base/instruction_sets.h"

#include <unistd.h>

#if defined(__SSE3__) || defined(__AVX__)
#error "base/instruction_sets.cpp must be compiled for any x86-64 CPU"
#endif

namespace assay {
namespace {

class Text {
 public:
  Text(char* begin, size_t size) : begin_(begin), size_(size) {}
  void add(const char* text) {
    for (; *text != 0 && length_ < size_; ++text) begin_[length_++] = *text;
  }
  size_t length() const { return length_; }

 private:
  char* const begin_;
  const size_t size_;
  size_t length_ = 0;
};

}  // namespace

InstructionSets present_sets() {
  __builtin_cpu_init();  // before static objects are made nobody else has
  InstructionSets bits = 0;
  int bit = 0;
#define ASSAY_BIT(name, builtin, macro, use) \
  bits |= InstructionSets{__builtin_cpu_supports(builtin) != 0} << bit++;
  ASSAY_INSTRUCTION_SETS(ASSAY_BIT)
#undef ASSAY_BIT
  return bits;
}

size_t absent_sets_error(InstructionSets compiled, InstructionSets present, char* text,
                         size_t size) {
#define ASSAY_NAME(name, builtin, macro, use) name,
  constexpr const char* kNames[] = {ASSAY_INSTRUCTION_SETS(ASSAY_NAME)};
#undef ASSAY_NAME
  static_assert(sizeof kNames / sizeof kNames[0] <= 8 * sizeof(InstructionSets));
  const InstructionSets absent = compiled & ~present;
  if (absent == 0) return 0;
  Text all(text, size);
  all.add("error: this program was compiled for a CPU with ");
  bool first = true;
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; ++i) {
    if ((absent >> i & 1) == 0) continue;
    if (!first) all.add(", ");
    all.add(kNames[i]);
    first = false;
  }
  all.add(
      ", which this CPU has not\n"
      "hint: build it on this machine, or for any x86-64 CPU: cmake --preset portable && cmake "
      "--build build-portable\n");
  return all.length();
}

void require_instruction_sets() {
  char text[1024];
  const size_t length = absent_sets_error(kCompiledSets, present_sets(), text, sizeof text);
  if (length == 0) return;
  const ssize_t written = write(STDERR_FILENO, text, length);
  static_cast<void>(written);
  _exit(1);
}

// g++ drops the priority of a function that was declared without it. 101: the first that a program
// may have.
[[gnu::constructor(101)]] static void require_them_first() {
  require_instruction_sets();
}

}  // namespace assay
