#!/usr/bin/env python3
"""Three ranks under mpirun, one of which is lost: what the others say, how soon, with which exit code the launch ends,
and that no process is left. usage: test_control_ranks.py PROGRAM"""
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
RUN_RANKS = pathlib.Path(__file__).with_name("run_ranks.sh")
RANKS, SILENCE_S, STUCK_S = 3, 2, 3
RANK_LOST_EXIT = 4


def processes_with(text):
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if text.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass  # it has ended
    return found


# Stops every rank of the run in this folder, and goes on after so many seconds.
def pause(folder, seconds):
    ranks = []
    while len(ranks) < RANKS or not pathlib.Path(folder, "ranks", "last.txt").exists():
        time.sleep(0.05)
        ranks = [pid for pid in processes_with(folder) if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(PROGRAM)]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)


class Launch:
    def __init__(self, how, rank, pause_s=0):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.time()
            with subprocess.Popen(["bash", RUN_RANKS, str(RANKS), PROGRAM, how, str(rank), folder],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
                if pause_s > 0:
                    pause(folder, pause_s)
                try:
                    stdout, stderr = run.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    run.terminate()  # the launcher, which ends the ranks
                    sys.exit(f"FAILED: {how} of rank {rank} hangs")
            self.took = time.time() - begin
            # Whom the launcher kills may need a moment to be gone.
            for _ in range(50):
                self.left = processes_with(folder)
                if not self.left:
                    break
                time.sleep(0.1)
            words = pathlib.Path(folder, "ranks", "last.txt")
            self.words = [line.split("\t") for line in words.read_text().splitlines() if not line.startswith("#")]
        self.how, self.rank, self.code = how, rank, run.returncode
        self.output = stdout + stderr
        lines = [line.split("\t") for line in stdout.splitlines() if line.count("\t") == 3]
        self.lines = [(float(at), what, int(rank), text) for at, what, rank, text in lines]

    def fail(self, why):
        sys.exit(f"FAILED: {self.how} of rank {self.rank}: {why}\nexit code {self.code}, {self.took:.1f} s, left "
                 f"{self.left}, last words {self.words}\n{self.output}")

    def require(self, holds, why):
        if not holds:
            self.fail(why)

    def texts(self, kind):
        return {rank: text for _, what, rank, text in self.lines if what == kind}

    def when(self, kind):
        return [at for at, what, _, _ in self.lines if what == kind]

    # Every rank in `ranks` says this, within so many seconds of the loss.
    def require_message(self, ranks, begin, within, end=""):
        errors = self.texts("error")
        if self.how == "stop":
            errors.pop(self.rank, None)  # the launcher wakes a stopped process to end it, and it may hear why
        self.require(set(errors) == set(ranks), f"ranks {sorted(errors)} print an error, not {sorted(ranks)}")
        for rank, text in errors.items():
            self.require(text.startswith(begin) and text.endswith(end), f"rank {rank} says: {text}")
        delay = max(at for at, what, rank, _ in self.lines if what == "error" and rank in ranks) - self.when("lost")[0]
        self.require(delay <= within, f"said after {delay:.2f} s, later than {within} s")
        return delay

    def require_end(self, code, within):
        self.require(self.code == code, f"not exit code {code}")
        self.require(not self.left, "processes are left")
        gone = self.took  # from the start: the loss comes after about a second
        self.require(gone <= within, f"gone after {gone:.1f} s, later than {within} s")

    def require_last_words(self, rank):
        self.require(len(self.words) == RANKS, "not one last word a rank")
        word = self.words[rank]
        self.require(len(word) == 7 and word[0] == str(rank) and word[5].startswith("pid "), "no last word of the lost rank")


def name(rank):
    return f"rank {rank} (pid "


def report(launch, text):
    print(f"{launch.how} of rank {launch.rank}: {text}, all gone {launch.took:.1f} s after the start")


def check_end():
    launch = Launch("end", 0)
    launch.require(set(launch.texts("through")) == set(range(RANKS)), "not every rank came through")
    launch.require_end(0, 30)
    launch.require(all(word[4] == "leaving" for word in launch.words), "not every last word is of the end")
    report(launch, "through")


def check_pause():
    launch = Launch("end", 0, pause_s=SILENCE_S + 2)
    launch.require(set(launch.texts("through")) == set(range(RANKS)), "not every rank came through a pause of all")
    launch.require(launch.took > SILENCE_S + 2, "there was no pause")
    launch.require_end(0, 30)
    report(launch, "through after a pause")


def check_stop(rank):
    launch = Launch("stop", rank)
    delay = launch.require_message([r for r in range(RANKS) if r != rank], name(rank), SILENCE_S + 2)
    for text in launch.texts("error").values():
        launch.require("has said nothing for 2 s; its last word: step " in text, "no last word")
    launch.require_end(RANK_LOST_EXIT, 20)
    if rank != 0:
        launch.require_last_words(rank)
    report(launch, f"said after {delay:.2f} s")


def check_give_up(rank):
    launch = Launch("give-up", rank)
    delay = launch.require_message(range(RANKS), name(rank), 1,
                                   ") gave up: cannot write model.safetensors: no space left")
    launch.require(set(launch.texts("hint").values()) == {"free space"}, "another hint")
    launch.require(launch.when("passed-on")[0] - launch.when("lost")[0] <= 1, "passed on late")
    launch.require_end(RANK_LOST_EXIT, 20)
    report(launch, f"said after {delay:.2f} s")


def check_stuck(rank):
    launch = Launch("stuck", rank)
    delay = launch.require_message(range(RANKS), name(rank), STUCK_S + 2)
    for text in launch.texts("error").values():
        launch.require("is stuck: it has begun no call for 3 s; its last word: step 50, compute; rank " in text
                       and text.endswith("waits for it: step 50, exchange"), f"says: {text}")
    launch.require_end(RANK_LOST_EXIT, 20)
    report(launch, f"said after {delay:.2f} s")


def check_kill():
    """The launcher notices by itself, and ends the others: what rank 0 kept is all that is said."""
    launch = Launch("kill", 2)
    launch.require_end(137, 20)
    launch.require_last_words(2)
    report(launch, f"last word: step {launch.words[2][2]}, {launch.words[2][6]}")


def check_throw():
    launch = Launch("throw", 1)
    errors = launch.texts("error")
    launch.require(errors.pop(1) == "it throws as planned", "rank 1 says something else")
    launch.require(len(errors) == 2 and all(text.endswith("gave up: it ended by an error") for text in errors.values()),
                   "the others say something else")
    launch.require_end(RANK_LOST_EXIT, 20)
    report(launch, "said")


def at_once(most, cases):
    with concurrent.futures.ThreadPoolExecutor(most) as several:
        for done in [several.submit(*case) for case in cases]:
            done.result()


def main():
    # Those that wait for a limit, three at a time: nearly all of them sleep. Then those that are told at once.
    at_once(3, [(check_pause,), *((check, rank) for check in (check_stuck, check_stop) for rank in range(RANKS))])
    at_once(2, [*((check_give_up, rank) for rank in range(RANKS)), (check_end,), (check_kill,), (check_throw,)])


if __name__ == "__main__":
    main()
