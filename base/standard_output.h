// Errors of standard output, for the end of main(): what a program prints is buffered, so a full
// disk shows only when the buffer is written.
#pragma once

#include <cstdio>
#include <string>

namespace assay {

// Opens the closed ones of descriptors 0 to 2, so that no file of the program gets their numbers
// and with them what is printed. Reading and writing them fails. Call first in main().
void hold_standard_descriptors();

// Whether this descriptor is a terminal that obeys escape sequences, and so can have a bar or a
// screen: not where TERM is `dumb` or not set.
bool can_move_cursor(int descriptor);

// From here on stdout and stderr, where they are terminals, show control characters but \n and \t
// as \x1b and the like, also those of U+0080 to U+009F and those that turn the order of a text
// (\u202e): names in files that others wrote and a model's text may hold them. What std::cout
// prints is not guarded.
void guard_terminals();
// Writes a sequence of our own, which the terminal is to obey, after what was printed before.
void control_terminal(std::FILE* stream, const std::string& sequence);

// Writes what is buffered and returns `exit_code`. If anything printed was lost: one line `error:`
// and one line `hint:` on stderr, and 1 instead of 0. A reader that closed the pipe (`| head`)
// wanted no more: that ends quietly with 141, as SIGPIPE does.
int finish_standard_output(int exit_code);

}  // namespace assay
