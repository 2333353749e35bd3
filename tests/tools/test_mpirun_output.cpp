// Blocks as Open MPI 4.1 printed them, and where it says so 5.0.
#include <sstream>
#include <string>
#include <vector>

#include "engine/run/interrupt.h"
#include "tests/catch.h"
#include "tools/assay/mpirun_output.h"

namespace assay {
namespace {

const std::string kDashes(74, '-');

// What is printed of these lines.
std::string printed(MpirunOutput& output, const std::string& text, bool asked = false) {
  std::istringstream in(text);
  std::string all;
  for (std::string line; std::getline(in, line);) all += output.take(line, asked);
  return all;
}

std::string block(const std::string& text) {
  return kDashes + "\n" + text + kDashes + "\n";
}

const std::string kTerminated = block(
    "Primary job  terminated normally, but 1 process returned\n"
    "a non-zero exit code. Per user-direction, the job has been aborted.\n");

TEST_CASE("a killed rank") {
  MpirunOutput output;
  const std::string text = "step 24/60 loss 4.1\nstep 25/60 loss 4.0\n" + kTerminated +
                           block(
                               "mpirun noticed that process rank 2 with PID 0 on node vm exited on "
                               "signal 9 (Killed).\n");
  REQUIRE(printed(output, text) == "step 24/60 loss 4.1\nstep 25/60 loss 4.0\n");
  REQUIRE(output.dead());
  REQUIRE(output.dead()->rank == 2);
  REQUIRE(output.dead()->pid == 0);
  REQUIRE(output.dead()->node == "vm");
  REQUIRE(output.dead()->signal == 9);
  REQUIRE(!output.said_error());
}

TEST_CASE("a killed rank, by Open MPI 5") {
  const std::string from = "[vm:11461] [prterun-vm-11461@0,0] [1796063788.054005] ";
  const auto state = [&](const std::string& what, const std::string& where) {
    return from + "ACTIVATE " + what + " AT " + where + "\n" + from + "ACTIVATING " + what + "\n";
  };
  const std::string file =
      "/openmpi-5.0.8/3rd-party/prrte/src/mca/odls/base/odls_base_default_fns.c";
  const std::string states =
      state("JOB prterun-vm-11461@1 STATE RUNNING", "state_base_fns.c:493") +
      state("PROC [prterun-vm-11461@1,0] STATE RUNNING", file + ":1089") +
      state("PROC [prterun-vm-11461@1,1] STATE IOF COMPLETE", "iof_hnp_read.c:159") +
      state("PROC [prterun-vm-11461@1,1] STATE ABORTED BY SIGNAL", file + ":1866") +
      state("PROC [prterun-vm-11461@1,0] STATE ABORTED BY SIGNAL", file + ":1866");
  MpirunOutput output;
  REQUIRE(printed(output, "step 24/60 loss 4.1\n" + states) == "step 24/60 loss 4.1\n");
  REQUIRE(output.dead());
  REQUIRE(output.is_ending());
  REQUIRE(output.dead()->rank == 1);
  REQUIRE(output.dead()->signal == 0);
  const std::string words =
      "prterun noticed that process rank 1 with PID 11466 on node vm exited on\n"
      "signal 9 (Killed).\n";
  REQUIRE(printed(output, block(words)).empty());
  REQUIRE(output.dead()->rank == 1);
  REQUIRE(output.dead()->pid == 11466);
  REQUIRE(output.dead()->node == "vm");
  REQUIRE(output.dead()->signal == 9);
  REQUIRE(output.library_words().empty());
  REQUIRE(output.own_words() == words);
}

TEST_CASE("the end of all ranks, by Open MPI 5") {
  MpirunOutput output;
  printed(output,
          "[vm:11461] [prterun-vm-11461@0,0] [1796063788.567046] ACTIVATE JOB NULL STATE DAEMONS "
          "TERMINATED AT /openmpi-5.0.8/3rd-party/prrte/src/prted/prted_comm.c:415\n");
  REQUIRE(output.is_ending());
  REQUIRE(!output.dead());
}

TEST_CASE("a killed rank that mpirun does not name in the end") {
  MpirunOutput output;
  const std::string from = "[vm:08782] [[20144,0],0] ACTIVATE ";
  const std::string states =
      from + "JOB [20144,1] STATE RUNNING AT state_base_fns.c:692\n" + from +
      "PROC [[20144,1],0] STATE RUNNING AT odls_base_default_fns.c:1056\n" + from +
      "PROC [[20144,1],2] STATE IOF COMPLETE AT iof_hnp_read.c:306\n" + from +
      "PROC [[20144,1],2] STATE ABORTED BY SIGNAL AT odls_base_default_fns.c:1746\n" + from +
      "PROC [[20144,1],1] STATE ABORTED BY SIGNAL AT odls_base_default_fns.c:1746\n" + from +
      "JOB NULL STATE DAEMONS TERMINATED AT orted_comm.c:382\n";
  REQUIRE(printed(output, states + kTerminated).empty());
  REQUIRE(output.dead());
  REQUIRE(output.is_ending());
  REQUIRE(output.dead()->rank == 2);
  REQUIRE(output.dead()->signal == 0);
  REQUIRE(output.library_words().empty());
  printed(output, block("mpirun noticed that process rank 2 with PID 0 on node vm exited on signal "
                        "9 (Killed).\n"));
  REQUIRE(output.dead()->signal == 9);
  REQUIRE(output.dead()->node == "vm");
}

TEST_CASE("the first dead rank counts") {
  MpirunOutput output;
  const std::string noticed = "mpirun noticed that process rank ";
  printed(output, block(noticed + "3 with PID 4242 on node node07 exited on signal 11 "
                                  "(Segmentation fault).\n"));
  printed(output, block(noticed + "1 with PID 4240 on node node07 exited on signal 9 (Killed).\n"));
  REQUIRE(output.dead()->rank == 3);
  REQUIRE(output.dead()->pid == 4242);
  REQUIRE(output.dead()->signal == 11);
}

TEST_CASE("a rank that prints mpirun's words is not believed") {
  MpirunOutput output;
  const std::string line =
      "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).\n";
  REQUIRE(printed(output, line) == line);
  REQUIRE(!output.dead());
}

TEST_CASE("an exit code of a rank") {
  MpirunOutput output;
  const std::string text =
      "error: cannot write model.00001.safetensors: File too large\nhint: free space\n" +
      kTerminated +
      block(
          "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
          "the job to be terminated. The first process to do so was:\n\n"
          "  Process name: [[1903,1],1]\n  Exit code:    1\n");
  REQUIRE(printed(output, text) ==
          "error: cannot write model.00001.safetensors: File too large\nhint: free space\n");
  REQUIRE(output.said_error());
  REQUIRE(!output.dead());
  REQUIRE(output.own_words().find("Exit code:    1\n") != std::string::npos);
  REQUIRE(output.own_words().find("-----") == std::string::npos);
}

TEST_CASE("an abort, and words of MPI's library") {
  MpirunOutput output;
  const std::string abort =
      "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 4.\n\n"
      "NOTE: invoking MPI_Abort causes Open MPI to kill all MPI processes.\n"
      "You may or may not see output from other processes, depending on\n"
      "exactly when Open MPI kills them.\n";
  const std::string library =
      "[vm:09004] [[20434,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file "
      "../../../orte/util/show_help.c at line 501\n"
      "[vm:09010] Read -1, expected 140800, errno = 3\n"
      "[vm:00012] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n";
  REQUIRE(printed(output, block(abort) + library + "[not a host] stays\n") ==
          "[not a host] stays\n");
  REQUIRE(output.library_words() == library);
  REQUIRE(output.own_words() == abort);
}

TEST_CASE("too few slots, no executable, an unknown option") {
  for (const std::string& words :
       {block(
            "There are not enough slots available in the system to satisfy the 30\nslots that were "
            "requested by the application:\n\n  assay\n\nEither request fewer slots\n"),
        block("mpirun was unable to launch the specified application as it could not access\nor "
              "execute an executable:\n\nExecutable: /nonexistent\nNode: vm\n\nwhile attempting to "
              "start process rank 0.\n"),
        std::string("mpirun: Error: unknown option \"--foo\"\n")}) {
    MpirunOutput output;
    REQUIRE(printed(output, words).empty());
    REQUIRE(!output.own_words().empty());
    REQUIRE(!output.dead());
    REQUIRE(!output.said_error());
  }
}

TEST_CASE("a rank's message within a block, and a cut line before it") {
  MpirunOutput output;
  REQUIRE(printed(output, kDashes + "\nPrimary job\nerror: rank 1 is silent\nhint: look there\n" +
                              kDashes + "\n") == "error: rank 1 is silent\nhint: look there\n");
  REQUIRE(output.said_error());
  REQUIRE(printed(output, "step 25/6" + kDashes + "\nPrimary job\n" + kDashes + "\nstep 26/60\n") ==
          "step 25/6\nstep 26/60\n");
  const std::string table = "| a |\n" + std::string(30, '-') + "\n";  // fewer dashes
  REQUIRE(printed(output, table) == table);
}

TEST_CASE("several ranks say the same") {
  MpirunOutput output;
  const std::string message = "error: no MPI\nhint: install one\n";
  REQUIRE(printed(output, message + message + "error: another\n") == message + "error: another\n");
}

TEST_CASE("that ranks stop is said when they were asked") {
  const std::string stopping = "\n" + std::string(kStopping) + "\n";
  const std::string text = "step 1/60\n\nstep 2/60\n" + stopping + "step 3/60\n";
  MpirunOutput asked, not_asked;
  REQUIRE(printed(asked, text, true) == text);
  REQUIRE(asked.said_stopping());
  REQUIRE(printed(not_asked, text) == "step 1/60\n\nstep 2/60\nstep 3/60\n");
  MpirunOutput forwarded;
  REQUIRE(printed(forwarded, "mpirun: Forwarding signal 10 to job\n" + stopping, true) == stopping);
}

}  // namespace
}  // namespace assay
