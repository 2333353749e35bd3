#!/usr/bin/env python3
"""tools/fuzz.sh with a build and a fuzzer that only pretend: what it counts, and its exit codes.
Usage: test_fuzz_script.py FUZZ_SEEDS"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-fuzz-script-")
work = pathlib.Path(holder.name)

FUZZER = """#!/usr/bin/env bash
echo "of a crash" >"$TMPDIR/left-$ASSAY_FUZZ_TARGET"
echo "$TMPDIR" >>written-to
case $ASSAY_FUZZ_TARGET in
  absent) echo "no such corpus" >&2; exit 3 ;;
  idle) echo "#0: cov: 0 ft: 0"; exit 0 ;;
  ends) echo "#5000: cov: 12 ft: 30"; exit 77 ;;
  weak) for a; do case $a in -artifact_prefix=*) echo bad >"${a#*=}crash-1" ;; esac; done ;;
esac
echo "#100: cov: 7 ft: 9"
echo "#5000: cov: 12 ft: 30"
"""
SEEDS = """#!/usr/bin/env bash
if [[ $1 == --list ]]; then printf 'good\\nother\\nabsent\\nidle\\nends\\nweak\\n'; fi
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


program(work / "path/cmake", "#!/usr/bin/env bash\n")
program(work / "path/clang++", "#!/usr/bin/env bash\n")
program(work / "build-fuzz/tests/fuzz_parsers", FUZZER)
program(work / "build-fuzz/tests/fuzz_seeds", SEEDS)
(work / "tools").mkdir()
(work / "tmp").mkdir()
shutil.copy(ROOT / "tools/fuzz.sh", work / "tools")


def fuzz(*arguments):
    return subprocess.run(["bash", str(work / "tools/fuzz.sh"), *arguments], capture_output=True, text=True,
                          env={**os.environ, "TMPDIR": str(work / "tmp"), "PATH": f"{work / 'path'}:{os.environ['PATH']}"})


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


done = fuzz("good", "other", "--jobs", "1")
check("nothing found", done.returncode == 0 and done.stdout.endswith("fuzz: nothing found\n") and not done.stderr and
      [line.split()[:6] for line in done.stdout.splitlines()[1:-1]] ==
      [[name, "0", "CPU", "s", "5000", "runs"] for name in ("good", "other")], done)
# An input that fails again has the name of before.
for call in ("first", "second"):
    done = fuzz("weak", "good")
    check(f"a find, the {call} time", done.returncode == 2 and "1 found" in done.stdout and
          "error: 1 inputs made a parser fail" in done.stdout, done)
(work / "build-fuzz/found/weak/crash-1").unlink()
done = fuzz("absent", "good", "idle", "--jobs", "1")
check("what did not run", done.returncode == 1 and "nothing found" not in done.stdout and "5000 runs" in done.stdout and
      done.stderr == "error: 2 of 3 targets did not run\n"
                     "hint: see build-fuzz/log/absent.txt, build-fuzz/log/idle.txt\n", done)
done = fuzz("ends")
check("a fuzzer that fails and finds nothing", done.returncode == 1 and "nothing found" not in done.stdout, done)
check("its log", (work / "build-fuzz/log/absent.txt").read_text() == "no such corpus\nexit code 3\n", done)
done = fuzz("absent", "weak")
check("a find beside it", done.returncode == 2 and "1 of 2 targets did not run" in done.stderr, done)
written = (work / "written-to").read_text().splitlines()
check("what a crash leaves", not list((work / "tmp").iterdir()) and len(set(written)) == len(written) > 4 and
      all(folder.startswith(f"{work}/tmp/assay-fuzz-") for folder in written), done)
done = fuzz("good", "--minutes", "08", "--jobs", "09")
check("08 minutes", done.returncode == 0 and "1 targets, 8 min each, 9 at a time" in done.stdout, done)
done = fuzz("good", "--minutes", "00")
check("00 minutes", done.returncode == 1 and "--minutes wants a whole number above 0" in done.stderr, done)
done = fuzz("nothing")
check("no such target", done.returncode == 1 and "error: no target is called nothing" in done.stderr, done)
with open(work / "build-fuzz/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = fuzz("good")
check("two calls", done.returncode == 1 and "another call of tools/fuzz.sh" in done.stderr, done)

# The names are those of the program, without a build.
(work / "no-build").mkdir()
(work / "no-build/cmake").write_text("#!/bin/sh\nexit 3\n")
(work / "no-build/cmake").chmod(0o755)
done = subprocess.run(["bash", str(ROOT / "tools/fuzz.sh"), "--list"], capture_output=True, text=True,
                      env={**os.environ, "PATH": f"{work / 'no-build'}:{os.environ['PATH']}"})
known = subprocess.run([sys.argv[1], "--list"], capture_output=True, text=True, check=True).stdout.split()
check("the list", done.returncode == 0 and known and sorted(done.stdout.split()) == sorted(known), done)

print("\n".join(failures) if failures else "fuzz_script: ok")
sys.exit(1 if failures else 0)
