#!/usr/bin/env python3
"""tools/get_gpt2.sh, get_anchor_log.sh and get_core.sh with a server of this machine in place of the public ones. Usage:
test_get_files.py"""
import hashlib
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from file_server import FileServer
from refusals import is_refusal

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
DATA = pathlib.Path(os.environ.get("ASSAY_TEST_DATA", ROOT / ".." / "shared" / "data"))
LOG = "f66d43d7-e449-4029-8adf-e8537bab49ea.log"
NEW, OLD = "records/track_1_short/2024-06-06_AdamW", "records/060624_AdamW"
if shutil.which("curl") is None:
    print("not run: curl is not installed")
    sys.exit(0)
holder = tempfile.TemporaryDirectory()
work = pathlib.Path(holder.name)
served, tools, out = work / "served", work / "tools", work / "deep" / "out"
served.mkdir()
shutil.copytree(TOOLS, tools)
http = FileServer(served)
failures, not_run = [], []


def run(script, *arguments, **options):
    return subprocess.run(["bash", str(script), *arguments], capture_output=True, text=True, **options)


def fetch(script, *arguments, **options):
    return run(script, "-o", str(out), "--base", http.base, *arguments, **options)


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, hint, done):
    check(f"wants {error!r}, {hint!r}", is_refusal(done, error, hint, said_before=True, printed=True), done)


def pin(script, files):
    """The copy of a script with the hashes of files of the test in place of the public ones."""
    text = (tools / script).read_text()
    found = re.findall(r"\b[0-9a-f]{64}\b", text)
    for public, data in zip(found, files, strict=True):
        text = text.replace(public, hashlib.sha256(data).hexdigest())
    (tools / script).write_text(text)
    return found


def left():
    return sorted(p.name for p in out.iterdir()) if out.exists() else []


def gpt2():
    script = tools / "get_gpt2.sh"
    for name, data in (("vocab.json", vocab), ("merges.txt", merges)):
        (served / name).write_bytes(data)
    http.cut = {"vocab.json": 30000}
    http.no_ranges = {"merges.txt"}
    http.hashes = {"merges.txt": ""}
    out.mkdir(parents=True)
    (out / "merges.txt.part").write_bytes(merges[:10])
    done = fetch(script)
    check("gpt2", done.returncode == 0 and left() == ["merges.txt", "vocab.json"], done)
    check("the bytes", (out / "vocab.json").read_bytes() == vocab and (out / "merges.txt").read_bytes() == merges, done)
    check("cut connections resume", [at for name, at in http.gets if name == "vocab.json"] == [0, 30000, 60000, 90000], done)
    check("a server without ranges", [at for name, at in http.gets if name == "merges.txt"][-1] == 0, done)
    check("the line of the configuration", f"data: {{tokenizer: {out}}}" in done.stdout and "CORE" in done.stdout, done)
    http.cut, http.no_ranges, http.hashes = {}, set(), {}
    http.gets.clear()
    done = fetch(script)
    check("again", done.returncode == 0 and done.stdout.count("already there") == 2 and not http.gets, done)

    (out / "vocab.json").write_bytes(merges)
    refused(f"vocab.json has SHA-256 {hashlib.sha256(merges).hexdigest()}", "move it away", fetch(script))
    check("it is not removed", (out / "vocab.json").read_bytes() == merges, done)
    (out / "vocab.json").unlink()
    (served / "vocab.json").write_bytes(vocab[:-1] + b" ")
    refused("vocab.json has SHA-256", "not kept", fetch(script))
    check("a wrong file is not kept", left() == ["merges.txt"], done)
    (served / "vocab.json").write_bytes(vocab)
    for part in (vocab, vocab + b"more"):
        (out / "vocab.json.part").write_bytes(part)
        http.gets.clear()
        done = fetch(script)
        check("a whole or too long .part", done.returncode == 0 and http.gets == ([] if part == vocab else [("vocab.json", 0)]), done)
        (out / "vocab.json").unlink()

    # As on a full disk: nothing can be written beyond 50,000 bytes.
    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50000, resource.RLIM_INFINITY))

    refused("cannot write", "free some space", fetch(script, preexec_fn=full, restore_signals=False))
    check("what came is kept", (out / "vocab.json.part").stat().st_size == 50000, done)
    http.gets.clear()
    done = fetch(script)
    check("resumed", done.returncode == 0 and http.gets == [("vocab.json", 50000)], done)

    (served / "merges.txt").unlink()
    (out / "merges.txt").unlink()
    refused(f"there is no {http.base}/merges.txt", "address", fetch(script))
    http.busy = {"vocab.json": 1}
    (out / "vocab.json").unlink()
    refused("merges.txt", "address", fetch(script))
    check("a busy server is asked again", (out / "vocab.json").exists() and http.busy["vocab.json"] == 0, done)
    (out.parent / "file").write_text("")
    refused("cannot create the folder", "-o", run(script, "-o", str(out.parent / "file"), "--base", http.base))
    shutil.rmtree(out)


def anchor():
    script = tools / "get_anchor_log.sh"
    refused(f"{http.base} has no {LOG} in {NEW}", "address", fetch(script))
    for place in (OLD, NEW):
        shutil.rmtree(served)
        (served / place).mkdir(parents=True)
        (served / place / LOG).write_bytes(log)
        done = fetch(script)
        check(place, done.returncode == 0 and left() == [LOG] and (out / LOG).read_bytes() == log, done)
        check("the command", f"assay compare RUN --anchor {out}/{LOG}" in done.stdout, done)
        done = fetch(script)
        check("again", done.returncode == 0 and "already there" in done.stdout, done)
        (out / LOG).unlink()
    (served / NEW / LOG).write_bytes(log + b"\n")
    refused("has SHA-256", "not kept", fetch(script))
    check("not kept", left() == [], done)
    shutil.rmtree(out)


def core():
    archive = served / "eval_bundle.zip"
    with zipfile.ZipFile(archive, "w") as z:
        for name in ("core.yaml", "eval_meta_data.csv", "eval_data/a/x.jsonl"):
            z.writestr(f"eval_bundle/{name}", os.urandom(20000))
    part = pathlib.Path(f"{out}.zip.part")
    for came in (b"", archive.read_bytes()[:10000], archive.read_bytes()):
        part.write_bytes(came)
        http.gets.clear()
        done = run(tools / "get_core.sh", "-o", str(out), "--url", f"{http.base}/eval_bundle.zip")
        check(f"core from byte {len(came)}", done.returncode == 0 and (out / "core.yaml").exists() and not part.exists() and
              http.gets == ([] if len(came) == archive.stat().st_size else [("eval_bundle.zip", len(came))]), done)
        shutil.rmtree(out)


vocab, merges, log = os.urandom(100000), os.urandom(40000), b"s:0 tel:11.0\n" * 1000
public = pin("get_gpt2.sh", (vocab, merges)) + pin("get_anchor_log.sh", (log,))
gpt2()
anchor()
core()
recipe = (ROOT / "lab" / "compare" / "anchor_recipe.cpp").read_text()
if f'"{public[2]}"' not in recipe:
    failures.append(f"get_anchor_log.sh pins {public[2]}, lab/compare/anchor_recipe.cpp another hash")
for hashed, file in zip(public, ("gpt2/vocab.json", "gpt2/merges.txt", f"anchor/{LOG}"), strict=True):
    if not (DATA / file).exists():
        not_run.append(f"data absent ({DATA / file})")
    elif hashlib.sha256((DATA / file).read_bytes()).hexdigest() != hashed:
        failures.append(f"{file} does not have the pinned SHA-256 {hashed}")
for name, word in (("get_gpt2.sh", "--base"), ("get_anchor_log.sh", "--anchor"), ("get_core.sh", "--url")):
    done = run(TOOLS / name, "--help")
    check(f"{name} --help", done.returncode == 0 and done.stdout.startswith(f"usage: bash tools/{name} ") and word in done.stdout
          and max(map(len, done.stdout.splitlines())) <= 120 and not done.stderr, done)
    refused("unknown argument --soon", "--help", run(TOOLS / name, "--soon"))
    refused("-o needs a folder", "--help", run(TOOLS / name, "-o"))
for reason in not_run:
    print(f"not run: {reason}")
print("\n".join(failures) or "get_files: ok")
sys.exit(1 if failures else 0)
