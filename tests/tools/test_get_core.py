#!/usr/bin/env python3
"""tools/get_core.sh with a local archive. Usage: test_get_core.py"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

SCRIPT = str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "get_core.sh")
if shutil.which("curl") is None:
    print("not run: curl is not installed")
    sys.exit(0)
holder = tempfile.TemporaryDirectory()
work = pathlib.Path(holder.name)
archive, out = work / "eval_bundle.zip", work / "deep" / "bundle"
failures = []


def pack(names):
    with zipfile.ZipFile(archive, "w") as z:
        for name in names:
            z.writestr(name, f"text of {name}\n" * 50)


def run(*arguments, folder=None, **options):
    return subprocess.run(["bash", SCRIPT, "-o", folder or str(out), "--url", f"file://{archive}", *arguments],
                          capture_output=True, text=True, **options)


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, *arguments):
    done = run(*arguments)
    check(f"wants {error!r}", is_refusal(done, error, said_before=True, printed=True), done)


GOOD = ["eval_bundle/core.yaml", "eval_bundle/eval_meta_data.csv", "eval_bundle/eval_data/a/x.jsonl",
        "__MACOSX/eval_bundle/core.yaml"]
refused("failed")  # there is no archive yet
pack(GOOD)
done = run()
check("fetched", done.returncode == 0 and "1 task files" in done.stdout, done)
check("the files", sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) ==
      ["core.yaml", "eval_data/a/x.jsonl", "eval_meta_data.csv"], done)
check("no other file is left", [p.name for p in out.parent.iterdir()] == ["bundle"], done)
done = run()
check("again", done.returncode == 0 and "already there" in done.stdout, done)

# A folder that is not there, with a slash at its end; an empty folder, also by its shortest name.
(work / "empty").mkdir()
(work / "here").mkdir()
for given, place, cwd in (("new/", work / "new", work), ("new//", work / "new", work), ("empty", work / "empty", work),
                          (".", work / "here", work / "here")):
    done = run(folder=given, cwd=cwd)
    check(f"-o {given}", done.returncode == 0 and ("already there" in done.stdout) == (given == "new//") and
          sorted(p.name for p in place.iterdir()) == ["core.yaml", "eval_data", "eval_meta_data.csv"], done)
check("nothing is left beside them", sorted(p.name for p in work.iterdir()) ==
      ["deep", "empty", "eval_bundle.zip", "here", "new"], done)

# An interrupted download is resumed.
shutil.rmtree(out)
pathlib.Path(f"{out}.zip.part").write_bytes(archive.read_bytes()[:100])
done = run()
check("resumed", done.returncode == 0 and (out / "core.yaml").exists(), done)

# A second one would write to the files of the first.
shutil.rmtree(out)
part = pathlib.Path(f"{out}.zip.part")
part.write_bytes(b"of the first")
first = os.open(out.parent, os.O_RDONLY)
fcntl.flock(first, fcntl.LOCK_EX)
refused(f"another download into {out.parent} is still running")
check("the first one's file", part.exists() and part.read_bytes() == b"of the first" and not out.exists(), done)
os.close(first)
part.unlink(missing_ok=True)
done = run()
check("after it", done.returncode == 0 and (out / "core.yaml").exists(), done)

(out / "core.yaml").unlink()
refused("not a complete bundle")
shutil.rmtree(out)
pack(GOOD[1:3])
refused("has no core.yaml")
archive.write_bytes(b"<html>not here</html>" * 100)
refused("not a good archive")
pack(GOOD)
data = bytearray(archive.read_bytes())
data[60] ^= 0xFF
archive.write_bytes(data)
refused("not a good archive")
check("nothing of it is left", not list(out.parent.iterdir()), done)
refused("unknown argument --soon", "--soon")
done = subprocess.run(["bash", SCRIPT, "--help"], capture_output=True, text=True)
check("--help", done.returncode == 0 and "--url" in done.stdout, done)
if failures:
    sys.exit("\n".join(failures))
print("get_core: ok")
