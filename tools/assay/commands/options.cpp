// Options that several commands share.
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

CLI::Option* add_set_option(CLI::App* subcommand, std::vector<std::string>& sets) {
  return subcommand
      ->add_option("--set", sets,
                   "override one configuration field: SECTION.KEY=VALUE; may be repeated")
      ->allow_extra_args(false);
}

}  // namespace assay
