#include "session/resolve_run.h"

#include <filesystem>

#include "comm/agree.h"
#include "engine/config/check.h"
#include "engine/config/differences.h"
#include "engine/config/run_files.h"
#include "engine/config/spelling.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "engine/run/run_dir.h"
#include "models/audit/contract.h"
#include "session/measure_step.h"
#include "session/run_products.h"

namespace assay {
namespace {

// Whether the configuration in the folder is not that of the newest checkpoint's steps, as far as
// it can be read: somebody edited it.
bool is_edited(const std::string& run, const Config& in_folder) {
  const std::optional<std::string> newest = Checkpoints(run, 1, {}).newest_by_name();
  if (!newest) return false;
  try {
    const TrainingState state = load_state(*newest);
    const Config made_with = parse_run_config_text(state.config_yaml, *newest, *newest);
    return !result_changing_differences(made_with, in_folder, state.step).empty();
  } catch (const UserError&) {
    return false;
  }
}

// Before data is read or made: what no step of the run may differ in. The rest, when its checkpoint
// is known.
void require_run_of_folder(const Session& session, const TrainingRunOptions& options) {
  const bool first = session.ranks == nullptr || session.ranks->first();
  if (!first || session.use == SessionOptions::Use::kPlan || !is_run(options.folder)) return;
  const std::optional<Config> begun = configuration_before(options);
  if (!begun || !horizon_is_known(session.config) || is_edited(options.folder, *begun)) return;
  require_same_run(options.folder, *begun, session.config, 0);
}

}  // namespace

std::optional<Config> configuration_before(const TrainingRunOptions& options) {
  const std::string file = options.folder + "/config.yaml";
  const bool goes_on = options.start == TrainingRunOptions::Start::kContinue;
  if (!goes_on || !std::filesystem::exists(file)) return std::nullopt;
  return load_config(file);
}

void follow_tokenizer(const TrainingRunOptions& options, Config& config) {
  const std::optional<Config> begun = configuration_before(options);
  if (!begun) return;
  keep_spelling(*begun, config);
  if (config.data.tokenizer != begun->data.tokenizer) return;
  config.data.tokenizer = present_tokenizer(options.folder, begun->data);
}

void resolve_by_run(Session& session, const TrainingRunOptions& options, int ranks) {
  Config& config = session.config;
  follow_tokenizer(options, config);
  if (const std::optional<Config> begun = configuration_before(options)) {
    if (config.parallel.parts == 0) config.parallel.parts = begun->parallel.batch_parts();
    const ProductsMode products = begun->precision.products;
    if (session.automatic_products && products != ProductsMode::kAuto) {
      config.precision.products = products;
    }
  }
  require_ranks(config, ranks);
  if (config.parallel.parts == 0) config.parallel.parts = ranks;
}

void take_products(Session& session, const TrainingRunOptions& options) {
  const bool goes_on = configuration_before(options).has_value();
  use_products_for_training(session, options.folder, options.tune, goes_on);
}

Session resolved_session(Session session, const TrainingRunOptions& options) {
  Config& config = session.config;
  resolve_by_run(session, options, session.place().ranks);
  resolve_reference(config);
  if (horizon_is_known(config)) resolve_steps(config);
  require_run_of_folder(session, options);
  take_products(session, options);
  return session;
}

void resolve_seconds(Session& session, const RunData& data, const TrainingRunOptions& options) {
  double& seconds = session.config.contract.step_seconds;
  if (const std::optional<Config> begun = configuration_before(options)) {
    seconds = begun->contract.step_seconds;
  }
  if (seconds == 0) {
    seconds = of_first_rank(session.host_group(), measured_step_seconds(session, data));
  }
  std::string& from = session.config.contract.derived_from;
  from += std::string(from.empty() ? "" : "; ") + kMeasuredStepSeconds;
  resolve_steps(session.config);
}

}  // namespace assay
