#include "session/training_warnings.h"

#include <thread>

#include "base/check.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

bool is_balanced(const RouterConfig& router) {
  return router.bias_rate.on() || (router.aux != RouterAux::kNone && router.aux_alpha > 0);
}

}  // namespace

std::vector<std::string> training_warnings(const Config& config) {
  std::vector<std::string> warnings;
  if (const auto& moe = config.model.moe) {
    if (moe_blocks(config.model) == 0) {
      warnings.push_back(strprintf(
          "model.moe.first_dense_layers = %ld of %ld layers: no block has experts, this is a dense "
          "model",
          long(moe->first_dense_layers), long(config.model.layers)));
    } else if (!is_balanced(moe->router) && moe->experts > moe->top_k) {
      warnings.push_back(
          "the routers are not balanced: model.moe.router has bias_rate 0 and no auxiliary loss; a "
          "few experts may get all tokens (router: {bias_rate: 0.001}, or {aux: switch, aux_alpha: "
          "0.01})");
    }
    const RouterConfig& router = moe->router;
    if (moe_blocks(config.model) > 0 && has_constant_gates(*moe)) {
      warnings.push_back(
          "model.moe.top_k is 1 and the gates are normalised, so every gate is 1: the routers "
          "learn from their auxiliary losses alone, not from the loss (router: {normalize_gates: "
          "false} multiplies by the expert's score)");
    }
    if (router.score == RouterScore::kSoftmax && router.route_scale != 1) {
      warnings.push_back(
          strprintf("model.moe.router.route_scale = %g is not used: it is a factor inside of the "
                    "sigmoid, and "
                    "score is softmax",
                    router.route_scale));
    }
    if (router.bias_steps && !router.bias_rate.automatic) {
      warnings.push_back(strprintf(
          "model.moe.router.bias_steps = %g is not used: bias_rate is %g (bias_rate: auto uses it)",
          *router.bias_steps, router.bias_rate.number));
    }
  }
  const int cores = int(std::thread::hardware_concurrency());
  if (cores > 0 && config.run.threads > cores) {
    warnings.push_back(strprintf("run.threads = %ld on %d cores: this is slower than %d threads",
                                 long(config.run.threads), cores, cores));
  }
  return warnings;
}

}  // namespace assay
