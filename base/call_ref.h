// A call without arguments or a result, by reference: for parameters, since it is valid as long as
// what it refers to. Unlike std::function it keeps no copy, and its header is short: every file of
// kernels reads it.
#pragma once

namespace assay {

class CallRef {
 public:
  template <typename Call>
  CallRef(const Call& call)
      : call_(&call), run_([](const void* c) { (*static_cast<const Call*>(c))(); }) {}
  void operator()() const { run_(call_); }

 private:
  const void* call_;
  void (*run_)(const void* call);
};

}  // namespace assay
