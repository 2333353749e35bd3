// Errors of standard output, for the end of main(): what a program prints is buffered, so a full
// disk shows only when the buffer is written.
#pragma once

namespace assay {

// Opens the closed ones of descriptors 0 to 2, so that no file of the program gets their numbers
// and with them what is printed. Reading and writing them fails. Call first in main().
void hold_standard_descriptors();

// Writes what is buffered and returns `exit_code`. If anything printed was lost: one line `error:`
// and one line `hint:` on stderr, and 1 instead of 0. A reader that closed the pipe (`| head`)
// wanted no more: that ends quietly with 141, as SIGPIPE does.
int finish_standard_output(int exit_code);

}  // namespace assay
