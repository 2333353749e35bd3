#!/usr/bin/env python3
"""`assay train --plan --ranks N` starts no rank, and plans for each one what it allocates in a launch, to the byte. What
the first rank sends in each logged step is what the plan says. Of a model of some size each rank's peak of resident memory
is near its plan, and the optimizer's share is a quarter on four ranks.
usage: test_ranks_plan.py [--large]: the latter for larger models, with and without experts, for the acceptance table."""
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import CACHE, ROOT, Workplace, assay, check, rows
from refusals import is_refusal

# Eight micro-batches a step, and texts written while training: they have buffers too.
SETTINGS = ("--set", "run.micro_batch=2", "--set", "eval.samples={prompts: ['Once'], tokens: 8}")
SHORT = ("--steps", "2", "--set", "telemetry.probe_every=2", "--set", "run.checkpoint_every=0")


def plan(place, ranks, *more):
    done = assay("train", place.config, "--plan", "--json", "--ranks", ranks, *SETTINGS, *more)
    check(done.returncode == 0, done.stdout + done.stderr)
    return json.loads(done.stdout)


def planned_bytes(log):
    found = re.search(r"memory planned [0-9.]+ MiB \(([0-9,]+) bytes\)", log.read_text())
    check(found, f"{log} names no planned memory")
    return int(found.group(1).replace(",", ""))


def check_launch(place, ranks, *more):
    name = f"ranks-{ranks}{''.join(more).replace('.', '-').replace('=', '-')}"
    place.train(name, "--ranks", str(ranks), *SETTINGS, *SHORT, *more)
    run = place.run(name)
    launched = [planned_bytes(run / "log.txt")]
    launched += [planned_bytes(run / "ranks" / f"rank-{rank:05d}.log") for rank in range(1, ranks)]
    planned = plan(place, ranks, *more)
    check(planned["total_bytes_by_rank"] == launched, f"{name}: {planned['total_bytes_by_rank']}, launched {launched}")
    check(planned["total_bytes"] == max(launched), f"{name}: the fullest rank is listed")
    check(planned["total_bytes_by_rank"][planned["fullest_rank"]] == max(launched), f"{name}: {planned['fullest_rank']}")
    sent = [planned["sent_bytes_by_rank"][kind][0] for kind in ("step", "sampled_step")]
    counted = [value for _, value in rows(run, "SELECT step, value FROM scalar WHERE name = 'sent_bytes' ORDER BY step")]
    check(counted == sent and sent[1] > sent[0] > 0, f"{name}: sent {counted}, planned {sent}")


# Of 28 million parameters in 4 blocks most are in experts; 18 million without.
SPARSE = {"model.moe.experts": 16, "model.moe.expert_ffn": 512, "parallel.expert_rows": 4}
DENSE = {"model.ffn": 4096}
LARGE = {"model.hidden": 256, "model.layers": 4, "model.heads": 4, "model.vocab_size": 4096, "data.synth.vocab_size": 4096,
         "run.steps": 3, "run.micro_batch": 4, "run.threads": 1, "run.checkpoint_every": 1, "schedule.warmup": 1,
         "schedule.warmdown": 1, "eval.every": 2, "telemetry.probe_every": 2, "parallel.parts": 4}


def check_memory(place, name, fields, ranks, expert_ranks=1):
    """Saved twice before the last step, whose rows have the peaks."""
    fields = {**LARGE, **fields, "parallel.expert_ranks": expert_ranks}
    words = [word for key, value in fields.items() for word in ("--set", f"{key}={value}")]
    place.train(name, *words, "--ranks", str(ranks))
    run = place.run(name)
    logs = [run / "log.txt", *(run / "ranks" / f"rank-{rank:05d}.log" for rank in range(1, ranks))]
    planned = [planned_bytes(log) for log in logs]
    peaks = [peak for _, peak in rows(run, "SELECT rank, peak_rss_bytes FROM rank_step WHERE step = 3 ORDER BY rank")]
    most = [1.15 * plan + (64 << 20) for plan in planned]
    check(len(peaks) == ranks and min(planned) > 64 << 20, f"{name}: {len(peaks)} ranks, planned {planned}")
    check(all(plan / 2 < peak <= limit for plan, peak, limit in zip(planned, peaks, most)), f"{name}: planned {planned}, peaks {peaks}")

    def section(*more):
        done = assay("train", place.config, "--plan", "--json", *words, *more)
        check(done.returncode == 0, done.stderr)
        return json.loads(done.stdout)

    one = section("--set", "parallel.expert_ranks=1")["section_bytes"]["optimizer"]
    largest = section("--ranks", ranks)["section_bytes_over_ranks"]["optimizer"]["largest"]
    check(largest <= 0.26 * one, f"{name}: {largest} bytes of the optimizer's {one}")
    print(f"{name}: planned {', '.join(f'{b / 2**20:.1f}' for b in planned)} MiB, peaks {', '.join(f'{b / 2**20:.1f}' for b in peaks)} MiB, "
          f"optimizer {largest / one:.4f} of one rank's")


def check_table(place):
    done = assay("train", place.config, "--plan", "--ranks", 4, *SETTINGS)
    optimizer = plan(place, 4)["section_bytes_over_ranks"]["optimizer"]
    expected = f"  optimizer          {optimizer['smallest'] / 2**20:12.1f} {optimizer['largest'] / 2**20:12.1f}\n"
    check(re.search(r"rank \d of 4 has the most memory", done.stdout) and expected in done.stdout, done.stdout)
    one = json.loads(assay("train", place.config, "--plan", "--json", *SETTINGS).stdout)
    check("ranks" not in one and "sent_bytes_by_rank" not in one, "one rank is planned as without --ranks")
    check(optimizer["largest"] <= 0.4 * one["section_bytes"]["optimizer"], f"{optimizer} of {one['section_bytes']}")
    check(not place.run("ranks").exists() and not (place.path / "runs").exists(), "a plan writes no run")


def check_refused(place):
    for ranks, more in ((3, ()), (4, ("--set", "parallel.parts=2")), (2**40, ())):
        planned = assay("train", place.config, "--plan", "--ranks", ranks, *SETTINGS, *more)
        launched = assay(*place.command("no", "--ranks", str(ranks), *SETTINGS, *more)[1:])
        check(is_refusal(planned), f"{ranks}: {planned.stderr}")
        check(planned.stderr.replace("2147483647", str(ranks)) == launched.stderr, f"{planned.stderr}{launched.stderr}")


def documented():
    """Every command with --ranks of a preset for the CPU in README.md, docs/scale-out.md and the help of train."""
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "scale-out.md").read_text()
    help_text = assay("train", "--help", env={**os.environ, "COLUMNS": "100"}).stdout
    lines = text.splitlines() + help_text.replace("\\\n", " ").splitlines()
    found = [re.search(r"assay train (models/presets/cpu/\S+(?: --\S+(?: (?!-)[\w.=-]+)?)*)", line) for line in lines]
    return [match[1].split() for match in found if match and "--ranks" in match[1]]


def check_documented(place):
    """They are planned as they stand, but for a smaller corpus."""
    commands = documented()
    check(len(commands) >= 6, f"commands: {commands}")
    corpus = f"{{cache: {CACHE}, synth: {{train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}}}"
    small = ("--set", f"data={corpus}", "--set", "eval.tokens=2048", "--run", place.run("no"))
    for words in commands:
        plan = [] if "--plan" in words else ["--plan"]
        done = assay("train", *words, *plan, *small)
        check(done.returncode == 0, f"{' '.join(words)}: {done.stderr}")
    bare = ("train", "models/presets/cpu/moe.yaml", *small, "--plan", "--ranks", "4")
    done = assay(*bare)
    hint = re.search(r"--set (run\.micro_batch=\d+)$", done.stderr.strip())
    check(done.returncode == 1 and hint and assay(*bare, "--set", hint[1]).returncode == 0, done.stderr)


def main():
    if sys.argv[1:] == ["--large"]:
        for name, fields, expert_ranks in (("dense", DENSE, 1), ("sparse", SPARSE, 1), ("shared", SPARSE, 2)):
            with Workplace(moe=name != "dense") as place:
                check_memory(place, name, fields, 4, expert_ranks)
        return
    with Workplace(moe=True) as place:
        check_launch(place, 2)
        check_launch(place, 4)
        check_launch(place, 2, "--set", "parallel.parts=8")
        check_launch(place, 2, "--set", "model.moe.router.bias_rate=auto")
        check_table(place)
        check_refused(place)
        check_documented(place)
        check_memory(place, "shared", {**SPARSE, "model.layers": 1, "model.vocab_size": 512, "data.synth.vocab_size": 512}, 4, 2)
    with Workplace() as place:
        check_launch(place, 4, "--set", "optimizer.kind=muon")
    print("plans of ranks: ok")


main()
