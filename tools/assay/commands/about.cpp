// assay version, completion, man: what the program says of itself, for shells and packages.
#include <cstdio>
#include <memory>

#include "base/build_info.h"
#include "tools/assay/commands.h"
#include "tools/assay/help/completion.h"
#include "tools/assay/help/man_page.h"

namespace assay {
namespace {

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitDone;
}

}  // namespace

std::string version_text() {
  const BuildInfo build = build_info();
  return "assay " + build.version + " (commit " + build.commit.substr(0, 12) +
         (build.dirty ? ", modified" : "") + ", " + build.compiler + ", " + build.flags + ")";
}

void add_about_commands(Commands& commands) {
  CLI::App* version =
      commands.app.add_subcommand("version", "print the version, the commit and the compiler");
  commands.on_chosen(version, [] { return print(version_text() + "\n"); });

  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      commands.app.add_subcommand("completion", "print a completion script for bash or zsh");
  completion->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->footer(
      "Examples:\n"
      "  source <(assay completion bash)                            for this shell\n"
      "  assay completion bash > ~/.local/share/bash-completion/completions/assay\n"
      "  assay completion zsh > ~/.zfunc/_assay                     a folder of $fpath\n"
      "Completes commands, options and their choices, files, folders of runs, and after --set the "
      "fields of a configuration. cmake --install puts both scripts in their places.");
  commands.on_chosen(completion, [shell, &commands] {
    const CommandDescription program = describe(commands.app, "assay");
    return print(*shell == "bash" ? bash_completion(program) : zsh_completion(program));
  });

  CLI::App* man = commands.app.add_subcommand("man", "print the man page, for man -l");
  man->footer(
      "Examples:\n"
      "  assay man | man -l -                                       read it\n"
      "  assay man > ~/.local/share/man/man1/assay.1                then: man assay");
  commands.on_chosen(man, [&commands] {
    return print(man_page(describe(commands.app, "assay"), build_info().version));
  });
}

}  // namespace assay
