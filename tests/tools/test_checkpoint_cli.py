#!/usr/bin/env python3
"""assay checkpoint, and every reader of checkpoints on one of several ranks. The files of ranks are
written here, from the description of the format in engine/run/checkpoint_slices.h."""
import hashlib
import json
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import ASSAY, Workplace, assay, check, checkpoints, first_difference
from refusals import is_refusal

BYTES = {"F32": 4, "BF16": 2, "I64": 8}


def works(*arguments):
    done = assay(*arguments)
    check(done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def refused(error, *arguments):
    done = assay(*arguments)
    check(is_refusal(done, error), f"{arguments}: wanted {error!r}\n{done.stderr}")


def tensors(path):
    """(name, type, shape, bytes) in the order of the file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    found = [(entry["data_offsets"], name, entry) for name, entry in header.items()]
    return [(name, e["dtype"], e["shape"], data[begin + at:begin + end]) for (at, end), name, e in sorted(found, key=lambda f: f[0])]


def write(path, entries, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, dtype, shape, data in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(e[3] for e in entries))


def cut(checkpoint, ranks):
    """Makes a checkpoint of format 1 one of several ranks; every rank has every ranks-th run of 1000 elements."""
    manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
    manifest.update(format=2, ranks=ranks, tensors={})
    files = {"state.json": manifest["files"]["state.json"]}
    for kind in ("model", "optimizer"):
        whole = tensors(checkpoint / f"{kind}.safetensors")
        manifest["tensors"][kind] = [t[0] for t in whole]
        for rank in range(ranks):
            entries, metadata = [], {}
            for number, (name, dtype, shape, data) in enumerate(whole):
                width = BYTES[dtype]
                for run, first in enumerate(range(0, len(data) // width, 1000)):
                    part = data[first * width:(first + 1000) * width]
                    if (run + number) % ranks != rank:
                        continue
                    if len(part) == len(data):
                        entries.append((name, dtype, shape, data))
                    else:
                        entries.append((f"{name}#{first}", dtype, [len(part) // width], part))
                        metadata[f"slice:{name}#{first}"] = json.dumps(shape)
            path = checkpoint / f"{kind}.{rank:05}.safetensors"
            write(path, entries, metadata)
            files[path.name] = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        (checkpoint / f"{kind}.safetensors").unlink()
    manifest["files"] = files
    (checkpoint / "MANIFEST.json").write_text(json.dumps(manifest))


def tree(folder):
    return {f.name: f.read_bytes() for f in folder.iterdir()}


def check_readers(w, whole, sliced):
    """The same answers from both formats."""
    for command in (["eval", "--json"], ["sample", "--prompt", "Once", "--tokens", "8", "--temperature", "0", "--json"]):
        said = [json.loads(works(command[0], run, *command[1:])) for run in (whole, sliced)]
        for one in said:
            for changing in ("checkpoint", "run", "seconds", "tokens_per_s"):
                one.pop(changing, None)
        for field in ("val_loss_nats", "texts"):
            check(said[0].get(field) == said[1].get(field), said)
        check(said[0].get("val_loss_nats") or said[0].get("texts"), said)
    works("export", whole, "-o", w.run("hf1"), "--dtype", "fp32")
    works("export", sliced, "-o", w.run("hf2"), "--dtype", "fp32")
    check((w.run("hf1") / "model.safetensors").read_bytes() == (w.run("hf2") / "model.safetensors").read_bytes(), "exported weights")


def check_list(run):
    listed = json.loads(works("checkpoint", "list", run, "--json"))
    newest = listed["checkpoints"][-1]
    check([c["step"] for c in listed["checkpoints"]] == [20, 30] and newest["format"] == 2 and newest["ranks"] == 3 and newest["valid"]
          and newest["problem"] is None and listed["checkpoints"][0]["format"] == 1, listed)
    folder = checkpoints(run)[-1]
    check(newest["bytes"] == sum(f.stat().st_size for f in folder.iterdir()), newest)
    check("valid" in works("checkpoint", "list", run), "the table")
    shard = folder / "model.00001.safetensors"
    kept = shard.read_bytes()
    shard.unlink()
    done = assay("checkpoint", "list", run, "--json")
    listed = json.loads(done.stdout)["checkpoints"]
    check([c["valid"] for c in listed] == [True, False] and listed[1]["problem"] == "model.00001.safetensors is missing", listed)
    check(done.returncode == 2, f"a damaged checkpoint: exit {done.returncode}, not 2")
    done = assay("checkpoint", "list", run)
    check(done.returncode == 2 and "model.00001.safetensors is missing" in done.stdout, f"the table: {done}")
    done = assay("eval", run, "--json")
    check(json.loads(done.stdout)["step"] == 20 and "ignoring the checkpoint" in done.stderr, done)
    refused("is damaged: model.00001", "checkpoint", "merge", folder)
    shard.write_bytes(kept)


def check_merge(whole, sliced):
    before = checkpoints(whole)[-1]
    folder = checkpoints(sliced)[-1]
    works("receipt", "make", sliced)
    verified = json.loads(works("receipt", "verify", sliced, "--json"))
    checked = [c["what"] for c in verified["checks"] if "model.00002.safetensors" in c["what"] and c["finding"] == "same"]
    check(len(checked) == 1, verified)
    said = assay("checkpoint", "merge", sliced)
    check(said.returncode == 0 and "3 ranks are merged" in said.stdout and "assay receipt make" in said.stderr, said)
    check(tree(folder) == tree(before), "merged files differ from those of one rank")
    check(assay("receipt", "verify", sliced).returncode == 2, "the receipt lists files that are gone")
    works("receipt", "make", sliced)
    works("receipt", "verify", sliced)
    check("nothing to merge" in works("checkpoint", "merge", sliced), "a second merge")
    said = json.loads(works("checkpoint", "merge", folder, "--json"))
    check(said == {"checkpoint": str(folder), "step": 30, "ranks": 1, "merged": False, "bytes": sum(map(len, tree(before).values()))}, said)


def check_locked(w, run):
    """Not while the run is trained; a copy of the folder can be merged."""
    copy = w.path / checkpoints(run)[-1].name
    shutil.copytree(checkpoints(run)[-1], copy)
    training = subprocess.Popen([str(ASSAY), "train", str(w.config), "--run", str(run)], stderr=subprocess.PIPE, text=True)
    for line in training.stderr:
        if line.startswith("step 31/"):
            break
    training.send_signal(signal.SIGSTOP)
    refused("is in use by another process", "checkpoint", "merge", run)
    training.send_signal(signal.SIGCONT)
    check(json.loads(works("checkpoint", "merge", copy, "--json"))["merged"], "a copy")
    training.stderr.read()
    check(training.wait() == 0, "training goes on from slices")


with Workplace(moe=True) as w:
    w.train("whole", "--stop-after", "30")
    whole, sliced, trained = w.run("whole"), w.run("sliced"), w.run("trained")
    shutil.copytree(whole, sliced)
    cut(checkpoints(sliced)[-1], 3)
    shutil.copytree(sliced, trained)
    check_readers(w, whole, sliced)
    check_list(sliced)
    check_merge(whole, sliced)
    check_locked(w, trained)
    w.train("whole")
    difference = first_difference(whole, trained)
    check(difference is None, f"trained on from slices: {difference}")
    refused("no run at", "checkpoint", "list", w.run("nowhere"))
    empty = w.run("empty")
    empty.mkdir()
    (empty / "config.yaml").write_text("model: {}\n")
    (empty / "meta.json").write_text('{"config_sha256": "0"}')
    check("has no checkpoint" in works("checkpoint", "list", empty), "a run without checkpoints")
    refused("has no checkpoint yet", "checkpoint", "merge", empty)
print("checkpoint_cli: ok")
