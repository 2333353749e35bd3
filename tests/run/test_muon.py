#!/usr/bin/env python3
"""optimizer.kind muon in whole runs: a killed run resumes to the same bits, the checkpoint has one
momentum per hidden matrix, an exported run is imported again and trains, and neither kind continues
a run of the other."""
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, check_resumes, checkpoints
from refusals import is_refusal

MUON = ("--set", "optimizer.kind=muon")


def names(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return set(json.loads(file.read(length))) - {"__metadata__"}


def check_names(place):
    held = names(checkpoints(place.run("whole"))[-1] / "optimizer.safetensors")
    for name in ("blocks.0.attn.qkv", "blocks.1.moe.down", "blocks.1.moe.shared.gate_up"):
        check(f"{name}.momentum" in held and f"{name}.v" not in held, f"{name}: {sorted(held)}")
    for name in ("embed.weight", "blocks.1.moe.router", "final.norm"):
        check(f"{name}.v" in held and f"{name}.momentum" not in held, f"{name}: {sorted(held)}")


def check_refused(place):
    done = place.train("whole", expect=1)
    check(is_refusal(done, "optimizer.kind: muon -> adamw"), f"muon to adamw: {done.stderr}")
    place.train("other", "--stop-after", "3")
    done = place.train("other", *MUON, expect=1)
    check(is_refusal(done, "optimizer.kind: adamw -> muon"), f"adamw to muon: {done.stderr}")


def check_round_trip(place):
    exported, imported, config = (place.path / name for name in ("exported", "imported", "muon.yaml"))
    done = assay("export", place.run("whole"), "--out", exported)
    check(done.returncode == 0, f"assay export: {done.stderr}")
    config.write_text(f"include: {place.config}\noptimizer: {{kind: muon}}\n")
    done = assay("import", exported, "-o", imported, "--config", config)
    check(done.returncode == 0, f"assay import: {done.stderr}")
    done = assay("train", imported / "config.yaml", "--run", imported, "--stop-after", "2")
    check(done.returncode == 0, f"training what was imported: {done.stderr}")


def main():
    with Workplace(moe=True) as place:
        place.train("whole", *MUON)
        check_names(place)
        check_resumes(place, *MUON)
        check_refused(place)
    with Workplace() as place:
        place.train("whole", *MUON)
        check_round_trip(place)
    print("muon: ok")


main()
