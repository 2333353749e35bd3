// A loop over lines typed on a terminal, for `assay sample --interactive`. Lines are edited as the
// terminal does it. Ctrl-C ends the answer to a line, or drops the line that is being typed; Ctrl-D
// or an empty line ends the loop.
#pragma once

#include <functional>
#include <string>

namespace assay {

// Whether Ctrl-C was pressed since the line was read. A second Ctrl-C, before the first was
// noticed, ends the program.
using StopRequested = std::function<bool()>;

// True when both standard input and standard output are a terminal.
bool on_terminal();

// Calls `answer` with every line until the loop ends. A UserError of `answer` is printed, and the
// loop continues.
void run_prompt_loop(
    const std::function<void(const std::string& line, const StopRequested& stop)>& answer);

}  // namespace assay
