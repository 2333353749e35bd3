// Options that several commands share.
#include <algorithm>

#include "base/check.h"
#include "base/joined.h"
#include "base/suggest.h"
#include "engine/config/scalar.h"
#include "models/audit/horizon.h"
#include "tools/assay/commands.h"

namespace assay {

namespace {

template <typename Holds>
CLI::Validator number_that(Holds holds, const std::string& is_not, const std::string& name) {
  const auto problem = [holds, is_not](std::string& text) {
    double number = 0;
    const bool ok = CLI::detail::lexical_cast(text, number) && holds(number);
    return ok ? std::string() : text + is_not;
  };
  return CLI::Validator(problem, name);
}

}  // namespace

CLI::Validator above_zero() {
  return number_that([](double n) { return n > 0; }, " is not a number > 0", "POSITIVE");
}

CLI::Validator zero_or_more() {
  return number_that([](double n) { return n >= 0; }, " is not a number >= 0", "NONNEGATIVE");
}

CLI::Validator share_up_to(double most) {
  return number_that([most](double n) { return n > 0 && n <= most; },
                     strprintf(" is not a number > 0 and <= %g", most), "SHARE");
}

CLI::Validator whole_between(int64_t low, int64_t high) {
  const std::string is_not =
      " is not a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  const auto problem = [=](std::string& text) {
    int64_t number = 0;
    const bool ok = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
    return ok ? std::string() : text + is_not;
  };
  return {problem, "INT in [" + std::to_string(low) + " - " + std::to_string(high) + "]"};
}

CLI::Validator number_between(double low, double high) {
  return number_that([=](double n) { return n >= low && n <= high; },
                     strprintf(" is not a number from %g to %g", low, high),
                     strprintf("FLOAT in [%g - %g]", low, high));
}

CLI::Validator whole_number() {
  const auto read = [](std::string& text) {
    const ReadInt number = read_int(text);
    if (!number.problem.empty()) return text + " is not a whole number";
    text = std::to_string(number.value);
    return std::string();
  };
  return {read, ""};
}

CLI::Option* add_set_option(CLI::App* subcommand, std::vector<std::string>& sets) {
  return subcommand
      ->add_option("--set", sets,
                   "override one configuration field: SECTION.KEY=VALUE; may be repeated")
      ->allow_extra_args(false);
}

CLI::Option* add_contract_option(CLI::App* subcommand, std::string& contract) {
  return subcommand->add_option(
      "--contract", contract,
      "what the comparison holds fixed, if the configurations do not say: steps, active-width, "
      "activeDN, totalDN, flops, seconds");
}

void require_contract_kind(const std::string& contract) {
  const std::vector<std::string>& kinds = contract_kinds();
  if (contract.empty() || std::find(kinds.begin(), kinds.end(), contract) != kinds.end()) return;
  const std::string near = nearest_name(contract, kinds);
  throw UserError(
      "--contract " + contract + " is unknown",
      (near.empty() ? "" : "did you mean " + near + "? ") + "choose one of " + joined(kinds, ", "));
}

}  // namespace assay
