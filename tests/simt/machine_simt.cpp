#include <map>

#include "cuda/simt/context.h"
#include "tests/catch.h"
#include "tests/simt/machine.h"
#include "tests/simt/run.h"

namespace assay::test {

Exec machine() {
  static gpu::Context context = simt::make_context(90);
  return {.gpu = &context};
}

gpu::Context* emulated(int capability) {
  static std::map<int, gpu::Context> contexts;
  return &contexts.try_emplace(capability, simt::make_context(capability)).first->second;
}

void under_schedules(const std::function<void()>& body) {
  for (const simt::Schedule schedule : some_schedules()) {
    INFO("schedule " << simt::to_string(schedule));
    simt::set_schedule(schedule);
    body();
  }
  simt::set_schedule({});
}

}  // namespace assay::test
