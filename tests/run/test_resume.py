#!/usr/bin/env python3
"""A run that is restarted after Ctrl-C, kill -9 or with a damaged checkpoint has the same bits as
one that was never stopped: last checkpoint, losses, hashes, router figures and loads in
telemetry.db."""
import json
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints, first_difference, rows, stop_at, struck_in_time


def steps_of(place, name):
    return [int(folder.name[5:]) for folder in checkpoints(place.run(name))]


def check_same(place, name, what):
    difference = first_difference(place.run("whole"), place.run(name))
    check(difference is None, f"{what}: {difference}")


def check_interrupted(place):
    code, said = stop_at(place.command("interrupted"), 15, signal.SIGINT)
    check(code == 130, f"Ctrl-C exits 130, not {code}: {said}")
    last = steps_of(place, "interrupted")[-1]
    check(15 <= last < 60 and f"interrupted at step {last}/60" in said, f"a checkpoint at once, not at {last}: {said}")
    check("run the same command to resume" in said, f"and how to resume: {said}")
    done = place.train("interrupted")
    check(f"resumes after step {last}" in done.stderr, f"prints where it resumes: {done.stderr}")
    check_same(place, "interrupted", "Ctrl-C")


def with_signals(*signals):
    def strike(process):
        for number in signals:
            process.send_signal(number)
            time.sleep(0.05)
        return process.communicate()[1]
    return strike


def check_signals(place):
    """Ctrl-C whose key bounces, `timeout`, which sends SIGTERM twice, and Ctrl-\\ end with a checkpoint."""
    for name, signals in (("bounced", (signal.SIGINT, signal.SIGINT)), ("timeout", (signal.SIGTERM, signal.SIGTERM)),
                          ("quit", (signal.SIGQUIT,))):
        code, said = struck_in_time(place.command(name), 15, with_signals(*signals))
        check(code == 130, f"{name}: exits 130, not {code}: {said}")
        check(said.count("to stop now press Ctrl-C again after a second") == 1, f"{name}: says how to stop at once: {said}")
        last = steps_of(place, name)[-1]
        check(15 <= last < 60 and f"interrupted at step {last}/60" in said, f"{name}: a checkpoint at once, not at {last}: {said}")
        done = place.train(name)
        check(f"resumes after step {last}" in done.stderr, f"{name}: {done.stderr}")
        check_same(place, name, name)


def check_hung_up(place):
    def closed(process):
        process.send_signal(signal.SIGHUP)  # a closed terminal sends it more than once
        process.send_signal(signal.SIGHUP)
        process.stderr.close()  # the terminal is gone: what is written there must not end the run

    code, _ = struck_in_time(place.command("hung-up"), 15, closed)
    check(code == 130, f"SIGHUP exits 130, not {code}")
    last, said = steps_of(place, "hung-up")[-1], (place.run("hung-up") / "log.txt").read_text()
    check(15 <= last < 60 and f"interrupted at step {last}/60" in said, f"and leaves a checkpoint, not at {last}: {said}")
    place.train("hung-up")
    check_same(place, "hung-up", "SIGHUP")
    # As a script starts it with `nohup ... &`.
    ignoring = subprocess.Popen(["nohup", *place.command("nohup", "--stop-after", "20")], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    for line in ignoring.stderr:
        if line.startswith("step 5/"):
            break
    for number in (signal.SIGHUP, signal.SIGINT):
        ignoring.send_signal(number)
    said = ignoring.communicate()[1]
    check(ignoring.returncode == 0 and "stopped by --stop-after at step 20/60" in said, f"nohup is respected: {said}")


def check_saved_by_time(place):
    done = place.train("timed", "--set", "run.checkpoint_every=0", "--set", "run.checkpoint_minutes=1e-9", "--set",
                       "run.keep_best=true", "--quiet")
    saved = [int(pathlib.Path(path).name[5:]) for (path,) in
             rows(place.run("timed"), "SELECT detail FROM event WHERE kind = 'checkpoint' ORDER BY step")]
    check(len(saved) > 3 and saved[-1] == 60, f"checkpoints by time: {saved}")
    losses = rows(place.run("timed"), "SELECT value, step FROM eval WHERE task = 'val' AND metric = 'loss_nats' AND step > 0")
    best = place.run("timed") / "checkpoints" / "best"
    check(best.resolve().name == f"step-{min(losses)[1]:08d}", f"best is {best.resolve().name} of {losses}")
    check("step 1/60" not in done.stderr and "finished step 60/60" in done.stderr, f"--quiet: {done.stderr}")
    check("SHA-256" not in done.stderr and "SHA-256" in (place.run("timed") / "log.txt").read_text(), f"--quiet: {done.stderr}")
    check("step 1/60" in (place.run("timed") / "log.txt").read_text(), "log.txt has every line")
    check_same(place, "timed", "checkpoints by time")


def check_killed(place):
    # Killed before the first checkpoint, between two, and while one is written.
    for step, delay in ((7, 0), (13, 0), (30, 0.005), (40, 0.01)):
        code, said = stop_at(place.command("killed"), step, signal.SIGKILL, delay)
        check(code == -signal.SIGKILL, f"killed at step {step}, exit {code}: {said}")
    place.train("killed")
    check_same(place, "killed", "kill -9")


def check_best_not_marked(place):
    # Killed when the best checkpoint was there but not yet marked.
    best = ("--set", "run.keep_best=true", "--quiet", "--stop-after")
    place.train("best", *best, "20")
    link = place.run("best") / "checkpoints" / "best"
    check(link.resolve().name == "step-00000020", f"best is {link.resolve().name}")
    link.unlink()
    place.train("best", *best, "1")
    check(link.is_symlink() and link.resolve().name == "step-00000020", "the best checkpoint is marked when the run goes on")


def check_killed_at_start(place):
    # The window between the lock and config.yaml is short, so the remains of such a kill are first
    # made by hand; real kills follow.
    run = place.run("start")
    (run / "checkpoints").mkdir(parents=True)
    resolved = (place.run("whole") / "config.yaml").read_text()
    for name, text in ((".lock", "1"), ("log.txt", ""), ("telemetry.db", ""), ("config.yaml.part", resolved[:300])):
        (run / name).write_text(text)
    for i in range(12):
        process = subprocess.Popen(place.command("start"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(0.02 + 0.015 * i)
        process.kill()
        said = process.communicate()[1]
        check("error:" not in said, f"a run killed {i} times at its start continues: {said}")
    place.train("start")
    check_same(place, "start", "kill -9 at the start")


def check_damaged(place):
    stop_at(place.command("damaged"), 33, signal.SIGKILL)
    newest = checkpoints(place.run("damaged"))[-1]
    with open(newest / "model.safetensors", "r+b") as file:
        file.seek(-5, 2)
        byte = file.read(1)
        file.seek(-5, 2)
        file.write(bytes([byte[0] ^ 1]))
    done = place.train("damaged")
    check(f"warning: ignoring the checkpoint {newest}" in done.stderr, f"the damage is named: {done.stderr}")
    check(f"resumes after step {int(newest.name[5:]) - 10}" in done.stderr, f"the previous checkpoint is used: {done.stderr}")
    check_same(place, "damaged", "damaged checkpoint")


def check_edited(place):
    """What the run's own config.yaml says may be edited, but the steps were made with what it said then."""
    place.train("edited", "--stop-after", "15")
    config = place.run("edited") / "config.yaml"
    command = ("train", config, "--run", place.run("edited"), "--stop-after", "1")
    made_with = config.read_text()
    for field, before, after in (("optimizer.lr: 0.003 -> 0.001", "\n  lr: 0.003\n", "\n  lr: 0.001\n"),
                                 ("optimizer.beta2: 0.95 -> 0.9", "\n  beta2: 0.95\n", "\n  beta2: 0.9\n"),
                                 ("schedule.warmup: 5 -> 4", "\n  warmup: 5\n", "\n  warmup: 4\n")):
        check(made_with.count(before) == 1, f"{before} in {made_with}")
        config.write_text(made_with.replace(before, after))
        done = assay(*command)
        check(done.returncode == 1 and f"{config} was edited: the 15 steps of the run were made with other values: {field}" in
              done.stderr and "hint: put the first values back there" in done.stderr, done.stderr)
        check(config.read_text() == made_with.replace(before, after), "the file stays as it is")
        # The command that the run was made with, which has the first values.
        done = place.train("edited", "--stop-after", "1", expect=1)
        check(f"{config} was edited: " in done.stderr and field in done.stderr and "was started with" not in done.stderr, done.stderr)
    # What changes no step made: the interval of the evaluations, and a longer run.
    config.write_text(made_with.replace("\n  every: 20\n", "\n  every: 30\n").replace("\n  steps: 60\n", "\n  steps: 70\n"))
    check(config.read_text() != made_with, made_with)
    done = assay(*command)
    check(done.returncode == 0 and "resumes after step 15" in done.stderr, done.stderr)


def check_finished(place):
    before = {file: file.read_bytes() for file in checkpoints(place.run("whole"))[-1].iterdir()}
    done = place.train("whole", "--json")
    check(json.loads(done.stdout)["tokens_per_s"] is None, f"and no speed, since it trained no step: {done.stdout}")
    config = (place.run("whole") / "config.yaml").read_bytes()
    place.train("whole", "--set", "model.kv_heads=2", "--set", "model.head_dim=32")
    check(config == (place.run("whole") / "config.yaml").read_bytes(), "a default that is written out changes no configuration")
    check("step 60, which is its last: there is nothing left" in done.stderr, f"and what is left: {done.stderr}")
    check("finished step 60/60" in done.stderr, f"a finished run reports that it is finished: {done.stderr}")
    check(before == {file: file.read_bytes() for file in before}, "a finished run stays as it is")


def main():
    for moe in (False, True):
        with Workplace(moe, threads=2) as place:
            place.train("whole")
            check(steps_of(place, "whole")[-1] == 60, "the last step has a checkpoint")
            check_interrupted(place)
            check_signals(place)
            check_hung_up(place)
            check_saved_by_time(place)
            check_killed(place)
            check_best_not_marked(place)
            check_killed_at_start(place)
            check_damaged(place)
            check_edited(place)
            check_finished(place)
    print("resume: ok")


main()
