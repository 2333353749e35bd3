#!/usr/bin/env python3
"""tools/get_fineweb.sh with a folder, and with a server of this machine, in place of the public one. Usage:
test_get_fineweb.py"""
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from comma_locale import comma_locale
from file_server import FileServer
from refusals import is_refusal

SCRIPT = str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "get_fineweb.sh")
if shutil.which("curl") is None:
    print("not run: curl is not installed")
    sys.exit(0)
folder = tempfile.TemporaryDirectory()
work = pathlib.Path(folder.name)
server, out = work / "server", work / "out"
server.mkdir()


def shard(tokens, magic=20240520, version=1):
    header = struct.pack("<256i", magic, version, tokens, *[0] * 253)
    return header + bytes(i % 251 for i in range(2 * tokens))


names = ["fineweb_val_000000.bin"] + [f"fineweb_train_{i:06d}.bin" for i in range(1, 104)]
for i, name in enumerate(names[:4]):
    (server / name).write_bytes(shard(5000 + i))
failures = []


base = f"file://{server}"


def run(*arguments, **options):
    return subprocess.run(["bash", SCRIPT, *arguments, "-o", str(out), "--base", base], capture_output=True, text=True,
                          **options)


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, hint, *arguments, **options):
    done = run(*arguments, **options)
    check(f"{arguments} wants {error!r}, {hint!r}", is_refusal(done, error, hint, said_before=True, printed=True), done)


def listed(done):
    return [line.rsplit("/", 1)[1] for line in done.stdout.splitlines() if line.startswith("would download ")]


def put(name, data):
    (out / name).write_bytes(data)


def sums():
    """SHA256SUMS as {name: hash}; every line is a hash or a comment."""
    lines = [line.split() for line in (out / "SHA256SUMS").read_text().splitlines()]
    return {line[1]: line[0] for line in lines if line[0] != "#"}


done = run("--help")
check("--help", done.returncode == 0 and "--dry-run" in done.stdout, done)
done = run("103", "--dry-run")
check("all names", done.returncode == 0 and listed(done) == names, done)
check("a dry run writes nothing", not out.exists(), done)

# How many shards a run needs.
for arguments, shards in ((["--tokens", "1"], 1), (["--tokens", "100M"], 1), (["--tokens", "100000001"], 2),
                          (["--tokens", "5e9"], 50), (["--tokens", "5B"], 50), (["--tokens", "5.0001b"], 51),
                          (["--tokens", "10255324043"], 103), (["--steps", "190"], 1), (["--steps", "191"], 2),
                          (["--steps", "9536"], 51), (["--steps", "19380"], 102), (["--steps", "19485"], 103),
                          (["--steps", "1525", "--tokens-per-step", "65536"], 1), (["--steps", "1526", "--tokens-per-step", "65536"], 2)):
    done = run(*arguments, "--dry-run")
    check(f"{arguments} are {shards} shards", f": {shards} of 103 training shards" in done.stdout.splitlines()[0], done)
done = run("--steps", "9536", "--dry-run")
check("the plan", "9,536 steps of 524,288 tokens, 190 in a shard: 51 of 103 training shards and the validation shard, 10.40 GB"
      in done.stdout and "has 0 of 52 files; 10.40 GB to download" in done.stdout, done)
comma = comma_locale(work)
if comma is None:
    print("not run: a decimal comma, localedef cannot make de_DE.UTF-8")
else:
    done = run("--tokens", "1.5B", "--dry-run", env={**os.environ, **comma})
    check("1.5B where numbers have a comma", ": 15 of 103 training shards and the validation shard, 3.20 GB" in done.stdout, done)
refused("10,255,324,044 is more than the 10,255,324,043 training tokens", "reads them again", "--tokens", "10255324044")
refused("1e99 is more than the 10,255,324,043", "103", "--tokens", "1e99")
refused("37,813 steps of 524,288 tokens are more than the 19,485", "103", "--steps", "37813")
refused("200,000,000 tokens does not fit in a shard", "--tokens", "--steps", "2", "--tokens-per-step", "2e8")
for wrong in ("0", "x", "1e", "5T", "-3", "1.", "7,000"):
    refused(f"--tokens {wrong} is not a number", "5B", "--tokens", wrong)
refused("more than one size is given: number of shards, --tokens", "one", "3", "--tokens", "5B")
refused("more than one size is given: --tokens, --steps", "one", "--steps", "3", "--tokens", "5B")
refused("without --steps", "--steps", "--tokens-per-step", "5")

# The disk is too small: nothing is downloaded.
(work / "bin").mkdir()
(work / "bin" / "df").write_text("#!/bin/sh\necho Avail\necho 300000000\n")
(work / "bin" / "df").chmod(0o755)
small = {**os.environ, "PATH": f"{work / 'bin'}:{os.environ['PATH']}"}
refused("needs 10.20 GB, but only 300.0 MB are free", "free 9.90 GB", "50", env=small)
check("a refused download writes nothing", not out.exists(), done)
done = run("50", "--dry-run", env=small)
check("a dry run says so too", done.returncode == 0 and "9.90 GB of disk space are missing" in done.stdout, done)

done = run("2")
check("two shards", done.returncode == 0 and sorted(p.name for p in out.iterdir()) == sorted(["SHA256SUMS", *names[:3]]), done)
check("the bytes", (out / names[2]).read_bytes() == (server / names[2]).read_bytes(), done)
check("the tokens", f"{names[2]}: 5002 tokens" in done.stdout, done)
done = run("2")
check("again", done.returncode == 0 and done.stdout.count("already there") == 3, done)

# An interrupted download is resumed; a complete one is only renamed.
for cut in (0, 500, 4000, None):
    (out / names[1]).unlink()
    (out / (names[1] + ".part")).write_bytes((server / names[1]).read_bytes()[:cut])
    done = run("1")
    check(f"resumed at {cut}", done.returncode == 0 and not (out / (names[1] + ".part")).exists()
          and (out / names[1]).read_bytes() == (server / names[1]).read_bytes(), done)

refused("failed: there is no", "address", "4")  # the server has no fourth shard
for content, error in ((shard(10, magic=7), "magic 7"), (shard(10, version=7), "version 7"),
                       (shard(10) + b"x", "1045 bytes"), (b"<html>" * 1000, "magic")):
    (server / names[4]).write_bytes(content)
    refused(error, "address", "4")
    check("no bad file is kept", not list(out.glob(names[4] + "*")), done)
(server / names[4]).write_bytes(shard(10)[:-1])
refused("fewer than its header says", "again", "4")
(out / names[1]).write_bytes(shard(10)[:-1])
refused("is damaged", "remove it", "1")
(out / names[1]).unlink()

# Hashes are recorded and compared.
shutil.rmtree(out)
done = run("2")
right = {name: hashlib.sha256((server / name).read_bytes()).hexdigest() for name in names[:4]}
check("recorded", sums() == {name: right[name] for name in names[:3]}, done)
checked = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True)
check("sha256sum reads the list", checked.returncode == 0 and checked.stdout.count(": OK") == 3, checked)
done = run("--verify")
check("--verify", done.returncode == 0 and done.stdout.count(": ok") == 3 and "3 shards are as recorded" in done.stdout, done)
refused("1 of 4 shards", "without --verify", "3", "--verify")
os.utime(out / names[1])  # another time, the same bytes
done = run("1")
check("read again", done.returncode == 0 and f"{names[1]}: already there, SHA-256 {right[names[1]][:16]}" in done.stdout, done)
done = run("1")
check("not read again", "SHA-256 " not in done.stdout.split("plan:")[1].split("every")[0], done)
bad = bytearray((server / names[1]).read_bytes())
bad[-1] ^= 1
put(names[1], bad)
refused(f"SHA256SUMS says {right[names[1]]}", "remove it", "1")
check("a damaged file is not removed", (out / names[1]).exists(), done)
refused("1 of 3 shards", "remove those", "--verify")
stamp = (out / names[1]).stat()
(out / "SHA256SUMS").write_text("".join(f"# {stamp.st_size} {os.stat(out / n).st_mtime_ns / 1e9:.9f} {n}\n{right[n]}  {n}\n" for n in names[:3]))
refused("1 of 3 shards", "remove those", "--verify")  # whatever the stamps say
(out / names[1]).unlink()
(server / names[1]).write_bytes(bad)
refused("SHA256SUMS says", "remove the line", "1")  # the server's file changed
check("another file is not kept", not list(out.glob(names[1] + "*")), done)
(server / names[1]).write_bytes(shard(5001))
done = run("1")
check("fetched again", done.returncode == 0 and sums()[names[1]] == right[names[1]] and len(sums()) == 3, done)
(out / "SHA256SUMS").unlink()  # shards from before there was a list
done = run("2")
check("recorded later", done.returncode == 0 and len(sums()) == 3, done)

# A real server.
http = FileServer(server)
base = http.base
shutil.rmtree(out)
http.hashes = dict.fromkeys(names[:4], "")
http.cut = {names[1]: 4000}
http.busy = {names[2]: 1}
done = run("2")
check("cut connections", done.returncode == 0 and [f for f in http.gets if f[0] == names[1]] ==
      [(names[1], at) for at in (0, 4000, 8000)], done)
check("the bytes of the server", all((out / n).read_bytes() == (server / n).read_bytes() for n in names[:3]), done)
named = json.loads((out / "reference.json").read_text())
check("the text has a name", named == {"name": "kjj0/fineweb10B-gpt2", "from": base, "sha256": {names[0]: right[names[0]]}}, done)
check("compared with the server", done.stdout.count("as the server says") == 3 and "of 600.0 MB" in done.stdout, done)
http.gets.clear()
done = run("2")
check("what is there is not requested", done.returncode == 0 and not http.gets, done)
(out / "reference.json").unlink()  # as versions before it left the folder
done = run("2")
check("named afterwards", done.returncode == 0 and not http.gets and (out / "reference.json").exists(), done)
(out / names[1]).unlink()
(out / (names[1] + ".part")).write_bytes((server / names[1]).read_bytes()[:3000])
done = run("2")
check("resumed by a range", done.returncode == 0 and http.gets[0] == (names[1], 3000), done)

http.cut = {}
http.hashes[names[3]] = "0" * 64
for whole_only in (set(), {names[3]}):
    http.no_ranges = whole_only
    (out / (names[3] + ".part")).write_bytes((server / names[3]).read_bytes()[:100])
    refused(f"came with SHA-256 {right[names[3]]}, the server says 0000", "not kept", "3")
    check("a wrong hash", not list(out.glob(names[3] + "*")), done)
http.hashes = {}
(out / (names[3] + ".part")).write_bytes(b"z" * 100000)  # longer than the file
done = run("3")
(out / "reference.json").unlink()
nameless = run("3")
check("no name without the server's hash", not (out / "reference.json").exists() and "data.reference" in nameless.stdout, nameless)
check("no hash from the server", done.returncode == 0 and f"SHA-256 {right[names[3]][:16]} recorded" in done.stdout, done)
(server / names[4]).unlink()
refused("failed: there is no", "address", "4")
(out / names[2]).write_bytes(shard(5002)[:-1] + b"!")
(out / "SHA256SUMS").unlink()
http.hashes = dict.fromkeys(names[:4], "")
refused("the server's has " + right[names[2]], "remove it", "2")

# Killed in the middle: a second download waits for the first one's curl; afterwards it resumes.
shutil.rmtree(out)
(server / names[1]).write_bytes(shard(5001))
http.hold[names[1]] = threading.Event()
part = out / (names[1] + ".part")
size = (server / names[1]).stat().st_size
for stop in (signal.SIGKILL, signal.SIGTERM):
    terminal, side = pty.openpty()
    with subprocess.Popen(["bash", SCRIPT, "1", "-o", str(out), "--base", base], stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        shown = b""
        while not re.search(rb"1[2-9]\.\d kB of [24]00\.0 MB", shown):  # the first file has 11.0 kB
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                sys.exit(f"the script ended: {shown}")
        process.send_signal(stop)
    os.close(terminal)
    if stop == signal.SIGKILL:
        refused("another download into", "wait", "1")
        http.hold[names[1]].set()
        while part.stat().st_size < size:
            time.sleep(0.05)
        time.sleep(0.3)  # curl ends
    else:
        http.hold[names[1]].set()
    done = run("1")
    check(f"after {stop.name}", done.returncode == 0 and (out / names[1]).read_bytes() == (server / names[1]).read_bytes(), done)
    (out / names[1]).unlink()
    http.hold[names[1]].clear()
http.gets.clear()
base = "http://127.0.0.1:9"  # nobody answers there
refused("failed", "again", "1")

base = f"file://{server}"
refused("0 is not a possible number", "1 to 103", "0")
refused("104 is not a possible number", "1 to 103", "104")
refused("x is not a possible number", "1 to 103", "x")
refused("unknown option --bsae", "--help", "--bsae")

print("\n".join(failures) or "get_fineweb: ok")
sys.exit(1 if failures else 0)
