#!/usr/bin/env python3
"""Ranks on GPUs without a GPU: every rank of build/assay_on_executor runs the CUDA kernels on the SIMT emulator, and a
library of the tests stands for NCCL (tests/comm/fake_nccl.cpp). Ranks have the bits of one, also where they share the
experts.
usage: test_ranks_executor.py [--full]: over 60 steps instead of 4, for the acceptance table."""
import json
import os
import re
import sys
import time

from harness import ASSAY, Workplace, assay, at_once, check, first_difference, merge, mpirun, rows

SMALL = ["--device", "cuda", "--set", "model.layers=1", "--set", "run.steps=4", "--set", "run.batch_tokens=128",
         "--set", "run.micro_batch=1", "--set", "run.checkpoint_every=2", "--set", "eval.every=2",
         "--set", "eval.tokens=128", "--set", "telemetry.probe_tokens=64", "--set", "schedule.warmup=1",
         "--set", "schedule.warmdown=1", "--set", "precision.recipe=bf16"]
if sys.argv[1:] == ["--full"]:
    SMALL += ["--set", "run.steps=60", "--set", "run.checkpoint_every=20", "--set", "eval.every=20"]
RANKS = ["--ranks", "2", "--share-gpu"]


def with_stream(place, name, schedule, *more):
    os.environ["SIMT_STREAM"] = schedule
    place.train(name, *SMALL, *more)
    del os.environ["SIMT_STREAM"]


def check_equal(moe, *more):
    with Workplace(moe=moe) as place:
        place.train("one", *SMALL, *more, "--set", "parallel.parts=2")
        place.train("two", *SMALL, *more, *RANKS)
        with_stream(place, "late", "late", *more, *RANKS)
        place.train("stopped", *SMALL, *more, *RANKS, "--stop-after", "2")
        place.train("stopped", *SMALL, *more, "--set", "parallel.parts=2")  # goes on with one rank
        for name in ("two", "late"):
            merge(place.run(name))
        for name in ("two", "late", "stopped"):
            difference = first_difference(place.run("one"), place.run(name))
            check(difference is None, f"moe {moe} {more}: {difference}")
        meta = (place.run("two") / "meta.json").read_text()
        check('"ranks": 2' in meta and '"device": "cuda' in meta, meta)


# One micro-batch a rank and step, and shares of the experts of whole pieces, so that the bits are those of one rank.
WIDE = ["--set", "model.moe.expert_ffn=128", "--set", "parallel.expert_rows=4"]
SHARED = [*WIDE, "--set", "parallel.expert_ranks=2", "--share-gpu"]


def rounds(place, name):
    return rows(place.run(name), "SELECT max(value) FROM scalar WHERE name = 'exchange_rounds_max'")[0][0]


def check_shared():
    """Two ranks that share the experts have the bits of one, in one round; more rounds give the same bits whatever the
    order of streams; a run that two began goes on with one."""
    two = ["--set", "run.micro_batch=2", "--set", "parallel.parts=2"]
    with Workplace(moe=True) as place:
        place.train("one", *SMALL, *WIDE, *two)
        place.train("two", *SMALL, *SHARED, *two, "--ranks", "2")
        with_stream(place, "late", "late", *SHARED, *two, "--ranks", "2", "--stop-after", "2")
        place.train("late", *SMALL, *WIDE, *two)
        few = ["--set", "parallel.expert_rows=0.3", "--ranks", "2"]
        place.train("rounds", *SMALL, *SHARED, *two, *few)
        with_stream(place, "rounds-late", "late", *SHARED, *two, *few)
        for name in ("two", "rounds", "rounds-late"):
            merge(place.run(name))
        for one, other in (("one", "two"), ("one", "late"), ("rounds", "rounds-late")):
            difference = first_difference(place.run(one), place.run(other))
            check(difference is None, f"shared experts: {difference}")
        check(rounds(place, "two") == 1 and rounds(place, "rounds") >= 4, f"{rounds(place, 'rounds')} rounds")
        check_loss_near(place, "one", "rounds")
        check_planned(place, "two", *SHARED, *two)


def check_loss_near(place, one, other):
    of_one, of_other = (rows(place.run(name), "SELECT value FROM scalar WHERE name = 'train_loss_nats' AND step <= 4 ORDER BY step") for name in (one, other))
    apart = max(abs(a[0] - b[0]) for a, b in zip(of_one, of_other))
    check(len(of_one) == len(of_other) == 4 and apart < 2e-3, f"losses of {one} and {other}: {of_one}, {of_other}")


def check_planned(place, name, *more):
    """Each rank has planned, and allocated, what --plan says without starting one."""
    done = assay("train", place.config, "--plan", "--json", *SMALL, *more, "--ranks", "2")
    check(done.returncode == 0, done.stderr)
    launched = []
    for log in (place.run(name) / "log.txt", place.run(name) / "ranks" / "rank-00001.log"):
        launched.append(int(re.search(r"memory planned .*\(([0-9,]+) bytes\)", log.read_text()).group(1).replace(",", "")))
    check(json.loads(done.stdout)["total_bytes_by_rank"] == launched, f"planned {done.stdout}, launched {launched}")


def check_replicas():
    """Four ranks: two copies of the experts, each on two ranks."""
    with Workplace(moe=True) as place:
        place.train("one", *SMALL, *WIDE, "--set", "parallel.parts=4")
        place.train("four", *SMALL, *SHARED, "--ranks", "4")
        merge(place.run("four"))
        difference = first_difference(place.run("one"), place.run("four"))
        check(difference is None, f"replicas: {difference}")


def check_failed_exchange():
    """A failure of NCCL shows while the host waits for the numbers of rows; it ends both ranks, and is said once."""
    with Workplace(moe=True) as place:
        os.environ["ASSAY_FAKE_NCCL_FAULT"] = "1 ncclGroupEnd 8 remote"
        done = place.train("failed", *SMALL, *SHARED, "--set", "run.micro_batch=2", "--ranks", "2", expect=1)
        check(done.stderr.count("error: ") == 1 and "NCCL on rank 1 of 2: ncclGroupEnd was the latest call" in done.stderr, done.stderr)
        os.environ["ASSAY_FAKE_NCCL_FAULT"] = "1 ncclGroupEnd 8 abort-blocks"  # the memory of that GPU cannot be freed
        began = time.monotonic()
        done = place.train("blocked", *SMALL, *SHARED, "--set", "run.micro_batch=2", "--ranks", "2", expect=1)
        seconds = time.monotonic() - began
        del os.environ["ASSAY_FAKE_NCCL_FAULT"]
        check(done.stderr.count("error: ") == 1 and "NCCL on rank 1 of 2: ncclGroupEnd was the latest call" in done.stderr
              and "; NCCL could not be ended\n" in done.stderr and seconds < 60, f"{seconds:.0f} s\n{done.stderr}")


STUCK = "no rank has begun a call for 3 s, and none is behind: probably a GPU or NCCL hangs; the last word of rank 0 "


def check_hung():
    """What never ends, on a GPU, in NCCL, or in a call of the driver, ends the ranks, and may be started again."""
    def hangs(case):
        fault, said, doing = case
        with Workplace() as place:
            done = assay(*place.command("hung", *SMALL, *RANKS, "--set", "parallel.stuck_s=3")[1:], timeout=100,
                         env={**os.environ, "ASSAY_FAKE_NCCL_FAULT": fault})
            check(done.returncode == 4 and done.stderr.count("error: ") == 1, f"{fault}: exit {done.returncode}\n{done.stderr}")
            check(said in done.stderr and doing in done.stderr and "the same command begins again" in done.stderr, f"{fault}\n{done.stderr}")

    at_once(hangs, [
        ("1 ncclCommInitRankConfig 1 stays", STUCK, "connecting the ranks"),
        ("1 ncclGroupEnd 1 hangs", STUCK, "connecting the ranks"),
        ("1 ncclGroupEnd 2 hangs", STUCK, "training step"),
        ("-1 ncclGroupEnd 2 blocks", STUCK, "training step"),  # nobody looks
        ("1 ncclGroupEnd 2 blocks", "is stuck: it has begun no call for 3 s; its last word: ", "waits for it"),
    ], most=2)


def check_refused():
    with Workplace() as place:
        done = place.train("no", *SMALL, "--ranks", "2", expect=1)
        check("error: ranks 0 and 1 have the same GPU; 2 ranks on this machine see 1 GPU\n" in done.stderr, done.stderr)
        library = os.environ.pop("ASSAY_NCCL_LIBRARY")
        os.environ["ASSAY_NCCL_LIBRARY"] = "/nowhere/libnccl.so.2"
        done = place.train("no", *SMALL, *RANKS, expect=1)
        os.environ["ASSAY_NCCL_LIBRARY"] = library
        other = mpirun(place.command("no", *SMALL, "--share-gpu"), place.command("no", *SMALL[2:], "--device", "cpu"))
        check(other.returncode == 1 and "error: rank 1 differs in its device: cuda on rank 0, cpu there\nhint: " in other.stderr
              and other.stderr.count("error:") == 1 and not (place.run("no") / "config.yaml").exists(), other.stderr)
        check("error:" in done.stderr and "NCCL" in done.stderr and "hint:" in done.stderr, done.stderr)
        # A GPU that has room for one of them.
        plan = json.loads(assay("train", place.config, "--plan", "--json", *SMALL, "--ranks", "2").stdout)
        os.environ["SIMT_FREE_BYTES"] = str(2 * (256 << 20) + plan["total_bytes_by_rank"][0] * 5 // 4)
        done = place.train("no", *SMALL, *RANKS, expect=1)
        del os.environ["SIMT_FREE_BYTES"]
        check("error: the 2 ranks on the GPU of rank 0 need" in done.stderr, done.stderr)
        # One that NCCL has filled with its first call, which comes before memory is planned.
        os.environ["ASSAY_FAKE_NCCL_FAULT"] = "1 ncclAllGather 1 full"
        done = place.train("no", *SMALL, *RANKS, expect=1)
        del os.environ["ASSAY_FAKE_NCCL_FAULT"]
        check("ncclAllGather failed" in done.stderr and "hint: the GPU's memory may be full: reduce" in done.stderr
              and "memory planned" not in done.stderr, done.stderr)


def check_own_gpus():
    """A launcher that shows every rank one GPU, each another one: nobody shares."""
    with Workplace() as place:
        done = mpirun(*(["env", f"SIMT_UUID=gpu-{rank}", *place.command("own", *SMALL)] for rank in range(2)))
        check(done.returncode == 0 and "finished step 4/4" in done.stderr, done.stderr)


check_equal(False)
check_own_gpus()
check_equal(True, "--set", "data.mask_eos=true")
check_shared()
check_replicas()
check_failed_exchange()
check_hung()
check_refused()
print(f"{ASSAY.name} on ranks: ok")
