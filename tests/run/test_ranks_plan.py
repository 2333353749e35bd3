#!/usr/bin/env python3
"""`assay train --plan --ranks N` starts no rank, and plans for each one what it allocates in a launch, to the byte. What
the first rank sends in each logged step is what the plan says."""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, rows

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
        check(planned.returncode == 1 and "hint:" in planned.stderr, f"{ranks}: {planned.stderr}")
        check(planned.stderr.replace("2147483647", str(ranks)) == launched.stderr, f"{planned.stderr}{launched.stderr}")


def main():
    with Workplace(moe=True) as place:
        check_launch(place, 2)
        check_launch(place, 4)
        check_launch(place, 2, "--set", "parallel.parts=8")
        check_table(place)
        check_refused(place)
    with Workplace() as place:
        check_launch(place, 4, "--set", "optimizer.kind=muon")
    print("plans of ranks: ok")


main()
