#!/usr/bin/env python3
"""Ranks on GPUs without a GPU: every rank of build/assay_on_executor runs the CUDA kernels on the SIMT emulator, and a
library of the tests stands for NCCL (tests/comm/fake_nccl.cpp). Two ranks have the bits of one."""
import os
import sys

from harness import ASSAY, Workplace, check, first_difference, merge

SMALL = ["--device", "cuda", "--set", "model.layers=1", "--set", "run.steps=4", "--set", "run.batch_tokens=256",
         "--set", "run.micro_batch=1", "--set", "run.checkpoint_every=2", "--set", "eval.every=2",
         "--set", "eval.tokens=128", "--set", "telemetry.probe_tokens=64", "--set", "schedule.warmup=1",
         "--set", "schedule.warmdown=1", "--set", "precision.recipe=bf16"]
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


def check_refused():
    with Workplace() as place:
        done = place.train("no", *SMALL, "--ranks", "2", expect=1)
        check("error: 2 ranks on this machine, but 1 GPU\n" in done.stderr, done.stderr)
        library = os.environ.pop("ASSAY_NCCL_LIBRARY")
        os.environ["ASSAY_NCCL_LIBRARY"] = "/nowhere/libnccl.so.2"
        done = place.train("no", *SMALL, *RANKS, expect=1)
        os.environ["ASSAY_NCCL_LIBRARY"] = library
        check("error:" in done.stderr and "NCCL" in done.stderr and "hint:" in done.stderr, done.stderr)


check_equal(False)
check_equal(True, "--set", "data.mask_eos=true")
check_refused()
print(f"{ASSAY.name} on ranks: ok")
