#!/usr/bin/env python3
"""assay eval as a user calls it: a run, a checkpoint, and refusals. CORE has test_eval_core_cli.py."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from eval_calls import evaluated, expect, failures, no_file_grows, refused, without_seconds, write_bundle
from harness import ASSAY, ROOT, Workplace, assay, edit_tensors, mpirun, rows, write_corpus
from refusals import is_refusal

def check_loss(w):
    """The figures equal those of the run's last evaluation."""
    said = evaluated(w.run("moe"))
    for metric in ("loss_nats", "bits_per_byte"):
        trained = rows(w.run("moe"), "SELECT value FROM eval WHERE task = 'val' AND step = 60 AND metric = "
                                     f"'{metric}'")[0][0]
        expect(said.get("val_" + metric) == trained, f"{metric}: {said} is not {trained}")
    shown = assay("eval", w.run("moe")).stdout
    for metric, count, unit in (("loss_nats", "val_loss_tokens", "tokens"), ("bits_per_byte", "val_bytes", "bytes")):
        line = f"val {metric} {said['val_' + metric]:.4f} over {said[count]:,} {unit}\n"
        expect(line in shown, f"{line!r} is not in {shown}")
    meta = json.loads((w.run("moe") / "meta.json").read_text())
    expect((said["device"], said["recipe"]) == (meta["device"], meta["recipe"]), f"{said}, {meta}")
    kept = json.loads((w.run("moe") / "evals" / "step-00000060.json").read_text())
    expect({name: kept.get(name) for name in said} == said, f"{kept} without {said}")
    at40 = evaluated(w.run("moe") / "checkpoints" / "step-00000050", "--tasks", "loss")
    expect(at40.get("step") == 50 and "val_bits_per_byte" not in at40 and "val_bytes" not in at40, at40)


def check_not_recorded(w):
    """What was measured is printed with exit code 0, and a warning, if the run cannot be written: a
    file where a folder should be, a full disk (no file may grow), a read-only file system."""
    shown = assay("eval", w.run("moe"))
    expect("val loss_nats " in shown.stdout and " over 4,096 tokens\n" in shown.stdout and
           shown.stdout.splitlines()[-1].startswith("recorded in "), shown.stdout)
    measured = [line for line in shown.stdout.splitlines() if line.startswith("val ")]
    expect(len(measured) == 2 and measured[1].endswith(" bytes"), measured)

    blocked = w.run("blocked")
    shutil.copytree(w.run("moe"), blocked)
    shutil.rmtree(blocked / "evals")
    full = {"preexec_fn": no_file_grows}
    for cause, options in (("File too large", full), ("evals", {})):
        for as_json in ((), ("--json",)):
            done = assay("eval", blocked, *as_json, **options)
            lines = done.stderr.splitlines()
            expect(done.returncode == 0 and len(lines) == 2 and
                   lines[0].startswith("warning: not recorded in the run: ") and cause in lines[0] and
                   lines[1].startswith("hint: "), f"{cause}: {done}")
            if as_json:
                expect(json.loads(done.stdout).keys() == evaluated(w.run("moe")).keys(), done.stdout)
            else:
                expect(done.stdout.splitlines()[1:] == measured, done.stdout)
        if options:
            expect(list((blocked / "evals").iterdir()) == [], "something was left in evals")
            (blocked / "evals").rmdir()
            (blocked / "evals").write_text("not a folder")
    refused("evals", blocked, "--tasks", "core", "--part", "1/2", "--bundle", w.path)  # before anything is scored


def check_read_only(w):
    """Every command that reads a run works on a file system that is mounted read-only."""
    run, out = w.run("moe"), w.path / "out"
    out.mkdir()
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-c",
             'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"', str(run)]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
        print("eval: no read-only mounts on this machine, not tested")
        return
    commands = [["eval", run], ["sample", run, "--tokens", "3"], ["export", run, "-o", out / "exported"], ["router", run],
                ["compare", run], ["report", run, "-o", out / "page.html"], ["receipt", "verify", run],
                ["audit", run / "config.yaml"]]
    for command in commands:
        done = subprocess.run([*mount, str(ASSAY), *map(str, command)], capture_output=True, text=True, check=False,
                              cwd=ROOT, stdin=subprocess.DEVNULL)
        warned = "Read-only file system" in done.stderr
        expect(done.returncode == 0 and warned == (command[0] == "eval"), f"read-only, {command}: {done}")


def check_plan(w):
    """The table and the object of --json have the same bytes."""
    table = assay("eval", w.run("moe"), "--plan").stdout
    plan = evaluated(w.run("moe"), "--plan")
    expect(sum(plan["section_bytes"].values()) == plan["total_bytes"] > 0 and plan["buffers"], plan)
    expect(f"{plan['total_bytes'] / (1 << 20):.1f}" in table, f"{plan['total_bytes']} is not in {table}")


def check_set(w):
    """Another measure of the same weights is printed and not recorded."""
    usual = evaluated(w.run("moe"), "--tasks", "loss")
    kept = (w.run("moe") / "evals" / "step-00000060.json").read_text()
    fewer = evaluated(w.run("moe"), "--tasks", "loss", "--set", "eval.tokens=1024")
    expect(fewer["set"] == ["eval.tokens=1024"] and fewer["val_loss_nats"] != usual["val_loss_nats"], fewer)
    shown = assay("eval", w.run("moe"), "--set", "precision.recipe=fp32")
    expect(shown.returncode == 0 and "val loss_nats " in shown.stdout and "recorded" not in shown.stdout, shown)
    expect((w.run("moe") / "evals" / "step-00000060.json").read_text() == kept, "--set is recorded")
    refused("--set changes the model, which ", w.run("moe"), "--set", "model.norm_eps=1e-3")


def check_places(w):
    """A result goes into the run that the path names, also where its checkpoints are on another disk; of a copy elsewhere it
    is only printed."""
    run, disk, name = w.run("linked"), w.path / "disk", "step-00000060"
    shutil.copytree(w.run("moe"), run)
    shutil.rmtree(run / "evals")
    disk.mkdir()
    (run / "checkpoints").rename(disk / "linked")
    (run / "checkpoints").symlink_to(disk / "linked")
    (disk / "linked" / "best").symlink_to(name)
    record, want = run / "evals" / f"{name}.json", evaluated(w.run("moe"), "--tasks", "loss")["val_loss_nats"]
    for path in (run, run / "checkpoints" / name, run / "checkpoints" / "best"):
        said = evaluated(path, "--tasks", "loss")
        expect(said["val_loss_nats"] == want and said["checkpoint"] == str(run / "checkpoints" / name), said)
        expect(record.exists(), f"{path} is not recorded in its run")
        record.unlink(missing_ok=True)
    done = assay("dissect", "used", run / "checkpoints" / name)
    expect(done.returncode == 0 and (run / "dissect" / "used.json").exists(), done)
    copy = w.path / "copies" / "of" / name
    shutil.copytree(disk / "linked" / name, copy)
    for path in (copy, disk / "linked" / name):
        done = assay("eval", path, "--tasks", "loss")
        expect(done.returncode == 0 and f"note: not recorded: {path} is in no run (RUN/checkpoints/step-N)" in done.stderr and
               "recorded in" not in done.stdout and f"val loss_nats {want:.4f}" in done.stdout, done)
    refused(f"{copy} is in no run, whose folder has the part", copy, "--tasks", "core", "--part", "1/2", "--bundle", w.path / "bundle")
    done = assay("dissect", "used", copy)
    expect(done.returncode == 1 and f"error: {copy} is in no run, whose folder has its telemetry" in done.stderr, done)
    refused("no run", w.path / "none")
    left = [w.path / place for place in ("evals", "dissect", "copies/evals", "copies/dissect", "copies/of/evals", "disk/evals")]
    expect(not any(place.exists() for place in left), f"written beside a copy: {left}")


def check_many_ranks(w):
    """A number that would hold the machine starts nothing; nor could it here, without an mpirun."""
    many = max(32, 4 * os.cpu_count()) + 1
    batch = ["--set", f"run.batch_tokens={many * 64}", "--set", "run.micro_batch=1"]
    for command in (["eval", w.run("moe")], w.command("many", *batch)[1:]):
        done = assay(*command, "--ranks", str(many), env={**os.environ, "PATH": str(w.path / "nothing")})
        expect(is_refusal(done, f"error: --ranks {many} is more than the ", "hint: give --ranks "),
               f"{command[0]}: {done}")
    expect(not w.run("many").exists(), "a refused launch leaves no folder")


def check_ranks(w):
    """Two processes share the work: the figures of one, printed once."""
    if not (ASSAY.parent / "libassay_mpi.so").exists():
        print("not run: eval --ranks (this build has no MPI)")
        return
    options = [w.run("moe"), "--tasks", "loss,bpb,core", "--bundle", w.path / "bundle"]
    one, two = evaluated(*options), evaluated(*options, "--ranks", "2")
    for result in (one, two):
        result["core"] = without_seconds(result["core"])
        result["core"].pop("rows_computed", None)  # a shared beginning is computed on both ranks
    expect(one == two, f"two ranks: {two} instead of {one}")
    refused("no run", w.path / "none", "--ranks", "2")
    run = [str(ASSAY), "eval", str(w.run("moe"))]
    other = mpirun(run, [*run, "--tasks", "bpb"])
    expect(other.returncode == 1 and re.search(r"^error: rank 1 \(.*\) differs in its command: eval .* on rank 0, eval .* --tasks bpb there\n"
                                               r"hint: ", other.stderr, re.M), f"{other.returncode}: {other.stderr}")


def check_without_training_data(w):
    """Only the validation shards are read: the training shards of a run that is done may be gone."""
    write_corpus(w, "text", "the small cat sat on a red mat and saw two big dogs run home".split(), 300)
    text, run = w.path / "text", w.run("of-text")
    data = ["data.synth=null", f"data.tokenizer={w.path}/tokenizer.json", f"data.train=[{text}/*_train_*.bin]",
            f"data.val=[{text}/*_val_*.bin]", "eval.tokens=64", "run.steps=2", "schedule.warmup=0",
            "schedule.warmdown=0"]
    w.train("of-text", *(word for one in data for word in ("--set", one)))
    before = evaluated(run)
    shards = list(text.glob("*_train_*.bin"))
    expect(shards, "no training shard")
    for shard in shards:
        shard.unlink()
    expect(evaluated(run) == before, "eval without the training shards")
    for command in (("dissect", "used", run), ("sample", run, "--prompt", "the cat", "--tokens", "2"),
                    ("export", run, "--format", "hf", "-o", w.path / "exported")):
        done = assay(*command)
        expect(done.returncode == 0, f"{command} without the training shards: {done.stderr}")
    other = evaluated(w.run("moe"), "--tasks", "loss", "--set", "data.synth=null",
                      "--set", f"data.val=[{text}/*_val_*.bin]", "--set", "eval.tokens=64")
    expect(other["val_loss_tokens"] == 64, other)
    val = next(iter(text.glob("*_val_*.bin"))).rename(w.path / "val.bin")
    refused("data.val: no file matches", run)
    done = assay("dissect", "used", run, "--shards", val)
    expect(done.returncode == 0, f"dissect --shards without the run's own: {done.stderr}")


def check_not_finite(w):
    """Weights that are finite and overflow: the loss is no number, which is said."""
    w.train("large", "--steps", "1", "--set", "precision.recipe=bf16")

    def edit(tensors):
        values, _ = tensors["head.weight"]
        values[:] = [3e38 if i % 2 else -3e38 for i in range(len(values))]
    edit_tensors(w.run("large") / "checkpoints" / "step-00000001", edit)
    done = assay("eval", w.run("large"))
    expect(done.returncode == 0 and "\nval loss_nats nan over " in done.stdout and "-nan" not in done.stdout, done)
    lines = done.stderr.splitlines()[-2:]
    expect(lines == ["warning: the validation loss is NaN or infinite in bf16",
                     "hint: an earlier checkpoint of the run may be sound, or this one with --set precision.recipe=fp32"], done)
    done = assay("eval", w.run("large"), "--set", "precision.recipe=fp32", "--json")
    expect(json.loads(done.stdout)["val_loss_nats"] is None and done.stderr.endswith("checkpoint of the run may be sound\n"), done)


def main():
    with Workplace(moe=True, sequence=64) as w:
        w.train("moe")
        write_bundle(w.path / "bundle")
        check_loss(w)
        check_not_recorded(w)
        check_read_only(w)
        check_plan(w)
        check_set(w)
        check_places(w)
        check_many_ranks(w)
        check_ranks(w)
        check_without_training_data(w)
        check_not_finite(w)
    if failures:
        sys.exit("\n".join(failures))
    print("eval: ok")


if __name__ == "__main__":
    main()
