// The step of a router's selection bias: a number, or `auto`.
#pragma once

namespace assay {

// auto: a step's rate is the router's lead at that step / (2 * bias_steps), so that an expert that
// no token chooses and one that comes first in all of them change places within bias_steps steps
// (ops/router.h: RouterMargin, RouterBiasUpdate).
struct BiasRate {
  double number = 0;  // per optimizer step; not with automatic
  bool automatic = false;

  constexpr BiasRate() = default;
  constexpr BiasRate(double rate) : number(rate) {}
  static constexpr BiasRate measured() {
    BiasRate rate;
    rate.automatic = true;
    return rate;
  }
  // The router has a selection bias.
  constexpr bool on() const { return automatic || number > 0; }
  friend constexpr bool operator==(const BiasRate&, const BiasRate&) = default;
};

}  // namespace assay
