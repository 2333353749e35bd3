#!/usr/bin/env python3
"""tools/get_fineweb.sh with a folder in place of the server. Usage: test_get_fineweb.py"""
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

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


def run(*arguments):
    return subprocess.run(["bash", SCRIPT, *arguments, "-o", str(out), "--base", f"file://{server}"],
                          capture_output=True, text=True)


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, hint, *arguments):
    done = run(*arguments)
    lines = done.stderr.splitlines()[-2:]
    check(f"{arguments} wants {error!r}, {hint!r}", done.returncode == 1 and len(lines) == 2 and error in lines[0]
          and lines[0].startswith("error: ") and lines[1].startswith("hint: ") and hint in lines[1], done)


done = run("--help")
check("--help", done.returncode == 0 and "--dry-run" in done.stdout, done)
done = run("103", "--dry-run")
check("all names", done.returncode == 0 and [line.rsplit("/", 1)[1] for line in done.stdout.splitlines()] == names, done)
check("a dry run writes nothing", not out.exists(), done)

done = run("2")
check("two shards", done.returncode == 0 and sorted(p.name for p in out.iterdir()) == sorted(names[:3]), done)
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

refused("failed", "again", "4")  # the server has no fourth shard
for content, error in ((shard(10, magic=7), "magic 7"), (shard(10, version=7), "version 7"),
                       (shard(10) + b"x", "1045 bytes"), (b"<html>" * 1000, "magic")):
    (server / names[4]).write_bytes(content)
    refused(error, "address", "4")
    check("no bad file is kept", not list(out.glob(names[4] + "*")), done)
(server / names[4]).write_bytes(shard(10)[:-1])
refused("fewer than its header says", "again", "4")
(out / names[1]).write_bytes(shard(10)[:-1])
refused("is damaged", "remove it", "1")
refused("0 is not a possible number", "1 to 103", "0")
refused("104 is not a possible number", "1 to 103", "104")
refused("x is not a possible number", "1 to 103", "x")
refused("unknown option --bsae", "--help", "--bsae")

print("\n".join(failures) or "get_fineweb: ok")
sys.exit(1 if failures else 0)
