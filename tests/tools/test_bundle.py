#!/usr/bin/env python3
"""tools/bundle.sh and tools/gpu_check.sh --prebuilt: errors reported before anything is built, and
that no program links a CUDA library. Making a bundle would compile everything again; bundle.sh
tests the bundle itself; here it makes one of programs that do nothing.

Usage: test_bundle.py PROGRAM..."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
failures = []
folder = tempfile.TemporaryDirectory(prefix="assay-bundle-")
work = pathlib.Path(folder.name).resolve()
(work / "full").mkdir()
(work / "full" / "letter.txt").write_text("mine")
(work / "file").write_text("mine")
(work / "torn" / "bin").mkdir(parents=True)
(work / "torn" / "bin" / "bench_step").write_text("of another day")
(work / "torn" / "bin" / "bench_step").chmod(0o755)
(work / "torn" / "MANIFEST").write_text(f"# assay bundle\n{64 * '0'}  bin/bench_step\n")
(work / "bare").mkdir()
for tool in ("bash", "dirname", "realpath", "grep", "uname", "cmake"):
    (work / "bare" / tool).symlink_to(subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip())

BUNDLE, GPU_CHECK = "bundle.sh", "gpu_check.sh"
REFUSED = [
    (BUNDLE, [], "--out is not given", "--out bundle"),
    (BUNDLE, ["--out"], "--out needs a value", "--help"),
    (BUNDLE, ["--out", work / "b", "--bogus"], "unknown argument --bogus", "--help"),
    (BUNDLE, ["--out", work / "full"], f"{work}/full exists and is not a bundle", "another --out"),
    (BUNDLE, ["--out", work / "file"], f"{work}/file exists and is not a bundle", "another --out"),
    (BUNDLE, ["--out", work / "file" / "b"], f"{work}/file cannot be written", "another --out"),
    (BUNDLE, ["--out", work / "b", "--also", work / "full"], f"--also {work}/full is not FOLDER:NAME", "--also ../before/bundle:before"),
    (BUNDLE, ["--out", work / "b", "--also", f"{work}/full:before"], f"{work}/full is not a bundle", "tools/bundle.sh --out"),
    (BUNDLE, ["--out", work / "b", "--also", f"{work}/torn:before"], f"{work}/torn is not as its MANIFEST says", "again"),
    (GPU_CHECK, ["--prebuilt", work / "full"], f"{work}/full has no op_check_cuda", "--prebuilt bin"),
]


def check(what, error, hint, done):
    if not is_refusal(done, error, hint):
        failures.append(f"{what} wants {error!r}, {hint!r}: exit {done.returncode}\n{done.stdout}{done.stderr}")


for script, arguments, error, hint in REFUSED:
    done = subprocess.run(["bash", TOOLS / script, *arguments], capture_output=True, text=True)
    check([script, *arguments], error, hint, done)
done = subprocess.run([work / "bare" / "bash", TOOLS / BUNDLE, "--out", work / "b"], capture_output=True, text=True,
                      env={"PATH": str(work / "bare")})
check("without ldd", "ldd was not found", "tools/setup.sh", done)
# The build has the tests' programs too, in the folder that the caller names.
(work / "path").mkdir()
(work / "path" / "cmake").write_text('#!/bin/sh\necho "$*"\nexit 1\n')
(work / "path" / "cmake").chmod(0o755)
done = subprocess.run(["bash", TOOLS / BUNDLE, "--out", "b", "--build", "built"], capture_output=True, text=True, cwd=work,
                      env={**os.environ, "PATH": f"{work / 'path'}:{os.environ['PATH']}"})
log = work / "built" / "bundle.log"
if done.returncode != 1 or not log.exists() or "-DASSAY_TESTS=ON" not in log.read_text() or not done.stderr.endswith(
        f"error: the build failed\nhint: all of its output is in {log}\n"):
    failures.append(f"a build that fails: exit {done.returncode}\n{done.stdout}{done.stderr}")
if not (work / "full" / "letter.txt").exists() or (work / "b").exists():
    failures.append("a refusal changed something")

# A build of programs that do nothing, with and without MPI: what `assay` opens for ranks comes along.
NOTHING = """#!/bin/bash
if [[ $1 == --build ]]; then
  shift
  for target in "${@:2}"; do if [[ $target == [a-z]* ]]; then cp "$NOTHING" "$1/$target"; fi; done
  if [[ -n $FAKE_MPI ]]; then cp "$NOTHING" "$1/libassay_mpi.so"; fi
else
  echo "CMAKE_CXX_COMPILER:STRING=c++" >"$4/CMakeCache.txt"
fi
"""
subprocess.run(["c++", "-x", "c++", "-", "-o", work / "nothing", "-Wl,--no-as-needed,--disable-new-dtags,-rpath,$ORIGIN/../lib"],
               input="int main() {}", text=True, check=True)
(work / "path" / "cmake").write_text(NOTHING)


def make(out, *arguments, mpi=""):
    environment = {"NOTHING": str(work / "nothing"), "FAKE_MPI": mpi, "PATH": f"{work / 'path'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", TOOLS / BUNDLE, "--out", out, *arguments], capture_output=True, text=True, cwd=work,
                          env={**os.environ, **environment})


for mpi in ("", "yes"):
    done = make(f"made{mpi}", "--build", f"built{mpi}", mpi=mpi)
    made = work / f"made{mpi}"
    listed = done.returncode == 0 and "  lib/assay/libassay_mpi.so\n" in (made / "MANIFEST").read_text()
    if done.returncode != 0 or [listed, (made / "lib/assay/libassay_mpi.so").exists()] != 2 * [bool(mpi)]:
        failures.append(f"a bundle, MPI {mpi or 'no'}: exit {done.returncode}\n{done.stdout}{done.stderr}")

# Paths with blanks, also of another bundle's libraries, which differ here.
(work / "other bundle").mkdir()
done = make("other bundle/made", "--build", "other built")
library = next((work / "other bundle/made/lib").glob("libstdc++*"), work / "absent")
if done.returncode == 0:
    library.write_bytes(library.read_bytes() + b"of another commit")
    manifest = work / "other bundle/made/MANIFEST"
    sums = subprocess.run("sha256sum $(find bin lib -type f)", shell=True, cwd=manifest.parent, capture_output=True, text=True, check=True)
    manifest.write_text(f"# assay bundle\n{sums.stdout}")
    done = make("with other/made", "--build", "other built", "--also", "other bundle/made:before")
    also = work / "with other/made/also/before/lib" / library.name
if done.returncode != 0 or also.read_bytes() != library.read_bytes():
    failures.append(f"paths with blanks: exit {done.returncode}\n{done.stdout}{done.stderr}")

for script, word in ((BUNDLE, "--with-cublas"), (GPU_CHECK, "--prebuilt")):
    done = subprocess.run(["bash", TOOLS / script, "--help"], capture_output=True, text=True)
    if done.returncode != 0 or word not in done.stdout:
        failures.append(f"{script} --help: {done.stdout}{done.stderr}")

# Neither a refusal nor a dry run leaves temporary files.
(work / "tmp").mkdir()
for arguments in (["--dry-run"], ["--bogus"], ["--prebuilt", str(work / "full")]):
    subprocess.run(["bash", TOOLS / GPU_CHECK, *arguments], capture_output=True, env={**os.environ, "TMPDIR": str(work / "tmp")})
    if list((work / "tmp").iterdir()):
        failures.append(f"gpu_check.sh {arguments} leaves {list((work / 'tmp').iterdir())}")

# If a CUDA library were linked, the program could not start on machines without it.
for program in sys.argv[1:]:
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    for line in needed.splitlines():
        if "(NEEDED)" in line and any(f"[lib{name}" in line for name in ("cuda", "cublas", "nccl", "nv")):
            failures.append(f"{program}: {line.strip()}")

print("\n".join(failures) if failures else "bundle: ok")
sys.exit(1 if failures else 0)
