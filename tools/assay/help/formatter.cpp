#include "tools/assay/help/formatter.h"

#include "tools/assay/help/description.h"
#include "tools/assay/help/layout.h"

namespace assay {
namespace {

std::string called(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : called(app->get_parent()) + " " + app->get_name();
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = char(text[0] - 'a' + 'A');
  return text.back() == '.' ? text : text + ".";
}

std::string options_text(const char* title, const std::vector<OptionDescription>& options,
                         int width) {
  if (options.empty()) return "";
  std::string text = std::string("\n") + title + "\n";
  for (const OptionDescription& option : options) {
    text += two_columns(heading_of(option), explained(option), width);
  }
  return text;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  const CommandDescription command = describe(*app, called(app));
  const int width = help_columns();
  std::string text = wrapped(sentence(command.text), width, 0) + "\n";
  text += "\n" + wrapped("Usage: " + command.name + usage_of(command), width, 7) + "\n";
  text += options_text("Arguments:", command.arguments, width);
  if (!command.commands.empty()) {
    text += "\nCommands:\n";
    for (const CommandDescription& sub : command.commands) {
      text += two_columns(sub.word(), sub.text, width, 14);
    }
  }
  text += options_text("Options:", command.options, width);
  if (!command.footer.empty()) text += "\n" + text_block(command.footer, width);
  return text;
}

}  // namespace assay
