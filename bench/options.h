// Options and help of the bench programs, in the style of `assay COMMAND --help`. Standard library
// only: the benches of the kernels are built without CLI11 too.
//
//   BenchOptions options("bench_ops", "Time of each op. Needs no GPU.");
//   options.add("--op", "TEXT", op, "only this op");
//   if (const auto status = options.parse(argc, argv)) return *status;
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace assay {

class BenchOptions {
 public:
  // `about` says what is measured, and at its end whether that needs a GPU.
  BenchOptions(std::string program, std::string about)
      : program_(std::move(program)), about_(std::move(about)) {}

  // A text; `what` stands for it in the help. "{a,b}" lists the texts that are allowed. Refused if
  // it is empty, but for --filter, or given twice with different texts; of a number the last
  // counts.
  void add(const char* name, const char* what, std::string& value, std::string help);
  // A number of at least `least`.
  void add(const char* name, int& value, std::string help, int64_t least = 1);
  void add(const char* name, int64_t& value, std::string help, int64_t least = 1);
  // --threads; 0 leaves `value` as it is: all cores, or 0 where those are counted later.
  void add_threads(int& value);
  void add(const char* name, double& value, std::string help);  // above 0
  void add(const char* name, bool& value, std::string help);    // true if the option is given
  // Options added from here on are listed below this title.
  void section(std::string title);

  // Reads the command line; ends a program that is for another CPU (base/instruction_sets.h). The
  // exit status if the program is not to run: 0 after --help, 1 after an error, which is printed.
  std::optional<int> parse(int argc, char** argv);
  bool given(const std::string& name) const;
  std::string help() const;

 private:
  // Returns what is wrong with the value; empty: nothing.
  using Read = std::function<std::string(const std::string& value)>;
  struct Option {
    std::string name, what, help;
    Read read;  // empty: an option without a value
    bool* flag = nullptr;
    size_t section = 0;
    bool given = false;
  };
  void add_number(const char* name, int64_t least, std::string help,
                  std::function<void(int64_t)> set, int64_t most);
  Option* find(const std::string& name);
  int fail(const std::string& error, const std::string& hint) const;

  std::string program_, about_;
  std::vector<Option> options_;
  std::vector<std::string> sections_ = {"Options"};
};

// Prints an exception as `error:` and `hint:`; the exit status.
int print_bench_error(const std::exception& error);

}  // namespace assay
