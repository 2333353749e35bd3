#!/usr/bin/env python3
"""Scripts of the build and of checks, for sources without a git repository (also inside another one), ccache.cmake
without HOME, setup.sh without a place for Plotly.js, options of check_kernels.sh, tests whose programs are absent, what
tools/test.sh says was not run and where it lets tests write. Usage: test_build_scripts.py CMAKE"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = sys.argv[1]
if shutil.which("git") is None:
    print("not run: git is not installed")
    sys.exit(0)
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-scripts-")
work = pathlib.Path(holder.name)
sources = work / "around" / "sources"
for name in ("cmake", "tests/mutation"):
    shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.txt"))
for name in ("tests/format_check.sh", "tests/tidy_check.sh", "tests/run/waiting.py", "tools/mutate.sh", "tools/test.sh"):
    (sources / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, sources / name)
(sources / "ops").mkdir()
(sources / "ops/a.cpp").write_text("int  a ;\n")
BUG = "1 ops/a.cpp\nwhat: a bug\ntest: op_check\n- int  a ;\n+ int a = MUTANT;\n"
(sources / "tests/mutation/a.txt").write_text(BUG)


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)


def git(folder, *words):
    done = run("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words)
    if done.returncode != 0:
        sys.exit(f"git {words}: {done.stderr}")
    return done.stdout.strip()


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def commit_of(folder):
    """(commit, dirty) as the program would say."""
    output = work / "build_info.cpp"
    output.unlink(missing_ok=True)
    done = run(CMAKE, f"-DSOURCE={folder}", f"-DOUTPUT={output}", "-DVERSION=1", "-DCOMPILER=c", '-DFLAGS=-DA="b\\c"; d',
               "-P", folder / "cmake/build_info.cmake", cwd=work)
    check("build_info.cmake", done.returncode == 0 and not done.stderr, done)
    text = output.read_text()
    check("flags in build_info.cmake", r' .flags = "-DA=\"b\\c\"; d"};' in text, done)
    return text.split('.commit = "')[1].split('"')[0], text.split(".dirty = ")[1].split(",")[0]


def without_repository(where):
    found = commit_of(sources)
    if found != ("unknown", "false"):
        failures.append(f"{where}: the commit is {found}")
    done = run("bash", sources / "tests/format_check.sh")
    check(f"{where}: format", done.returncode == 0 and done.stdout == "not run: no git repository here\n", done)
    done = run("bash", sources / "tests/tidy_check.sh", sources)
    check(f"{where}: tidy", done.returncode == 0 and done.stdout.startswith("not run: "), done)
    done = run("bash", sources / "tools/mutate.sh")
    check(f"{where}: mutate", is_refusal(done) and
          done.stderr.startswith(f"error: {sources} is not a git repository\n"), done)


without_repository("alone")
git(work / "around", "init", "-q")
git(work / "around", "commit", "-q", "--allow-empty", "-m", "of another")
without_repository("inside another repository")

# A repository of their own, also through a link.
git(sources, "init", "-q")
git(sources, "add", ".")
if commit_of(sources) != ("unknown", "false"):
    failures.append(f"without a commit: {commit_of(sources)}")
git(sources, "commit", "-q", "-m", "first")
commit = git(sources, "rev-parse", "HEAD")
(work / "link").symlink_to(sources)
for folder in (sources, work / "link"):
    if commit_of(folder) != (commit, "false"):
        failures.append(f"{folder}: {commit_of(folder)}, not {commit}")
(sources / "ops/a.cpp").write_text("int  a ;  // changed\n")
if commit_of(sources) != (commit, "true"):
    failures.append(f"changed: {commit_of(sources)}")

# Where the objects of this CPU go; nowhere if that cannot be written.
(work / "say.cmake").write_text(f"include({ROOT}/cmake/ccache.cmake)\n"
                                "message(STATUS \"launcher: ${CMAKE_CXX_COMPILER_LAUNCHER}\")\n")
(work / "file").write_text("")
for native, given, wanted in (("ON", {"CCACHE_DIR": f"{work}/c"}, f"CCACHE_DIR={work}/c/native-"),
                              ("ON", {"HOME": f"{work}/h"}, f"CCACHE_DIR={work}/h/.cache/ccache/native-"),
                              ("ON", {"HOME": ""}, None), ("ON", {}, None), ("OFF", {"HOME": f"{work}/h"}, None),
                              ("ON", {"HOME": f"{work}/file"}, f"ccache: off, {work}/file/.cache/ccache/native-"),
                              ("OFF", {"OWN": f"{work}/file/own"}, f"ccache: off, {work}/file/own cannot be")):
    (work / "ccache").write_text("#!/bin/sh\necho $OWN\n")
    (work / "ccache").chmod(0o755)
    plain = {key: value for key, value in os.environ.items() if key not in ("HOME", "CCACHE_DIR")}
    done = run(CMAKE, f"-DASSAY_NATIVE={native}", "-DCMAKE_CXX_COMPILER_ID=GNU", "-DCMAKE_CXX_COMPILER=true",
               f"-DASSAY_CCACHE_PROGRAM={work}/ccache", "-P", work / "say.cmake", env={**plain, **given})
    is_off = wanted is not None and wanted.startswith("ccache: off")
    check(f"ccache with {given}", done.returncode == 0 and is_off == ("launcher: \n" in done.stdout) and
          (is_off or "CCACHE_SLOPPINESS" in done.stdout) and
          (wanted in done.stdout if wanted else "CCACHE_DIR" not in done.stdout), done)

# What cannot be built is refused at once.
for settings, wanted in ((("aarch64", "GNU", "14.2"), "Assay is for x86-64, and this is aarch64"),
                         (("x86_64", "GNU", "11.4.0"), "g++ is 11.4.0, and Assay needs 12 or later."),
                         (("x86_64", "GNU", "12.2.0"), ""), (("x86_64", "Clang", "11.0"), "")):
    names = ("CMAKE_SYSTEM_PROCESSOR", "CMAKE_CXX_COMPILER_ID", "CMAKE_CXX_COMPILER_VERSION")
    done = run(CMAKE, *(f"-D{name}={value}" for name, value in zip(names, settings)),
               "-P", ROOT / "cmake/supported.cmake")
    check(f"supported {settings}", (done.returncode != 0) == bool(wanted) and
          wanted in " ".join(done.stderr.split()) and (wanted or not done.stderr), done)
done = run(CMAKE, "-S", ROOT, "-B", work / "arm", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
check("another processor", done.returncode != 0 and "and this is aarch64" in done.stderr, done)

# Where programs of the tests' packages are absent, tests that need them do not run.
tools = work / "tools"
tools.mkdir()
for name in ("bash", "dirname", "git", "sed", "xargs", "awk"):
    (tools / name).symlink_to(shutil.which(name))
done = run("bash", sources / "tests/format_check.sh", env={**os.environ, "PATH": str(tools)})
check("format without clang-format", done.returncode == 0 and
      done.stdout.startswith("not run: clang-format is absent"), done)
(sources / "tests/run/test_a.py").write_text(
    "def check_one():\n    pass\n\n\ndef check_one_more():\n    pass\n\n\nfor part in (check_one_more,):\n    part()\n")
done = run("bash", sources / "tests/format_check.sh", env={**os.environ, "PATH": str(tools)})
check("a check that nothing calls", done.returncode != 0 and
      "tests/run/test_a.py:1: nothing calls check_one\n" in done.stdout and "check_one_more" not in done.stdout, done)
(sources / "tests/run/test_a.py").unlink()
(sources / "ops/a.cpp").write_text(f"// {'long ' * 20}\n")
done = run("bash", sources / "tests/format_check.sh", env={**os.environ, "PATH": str(tools)})
check("a long comment without clang-format", done.returncode != 0 and
      "ops/a.cpp:1: a comment of 103 columns" in done.stdout, done)
(work / "page.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT / 'tests/tools')!r})\nimport chromium\n")
hidden = work / "hidden"
hidden.mkdir()
(hidden / "selenium.py").write_text("raise ImportError\n")
for what, changes in (("Selenium", {"PYTHONPATH": str(hidden)}), ("(Selenium|chromium)", {"PATH": str(tools)})):
    done = run(sys.executable, work / "page.py", env={**os.environ, **changes})
    check(f"without {what}", done.returncode == 0 and
          re.fullmatch(rf"not run: pages in Chromium, {what} is absent .*\n", done.stdout), done)

# tools/setup.sh where third_party cannot be written, with packages and a pip that only pretend: a warning.
wheel = work / "plotly.whl"
with zipfile.ZipFile(wheel, "w") as z:
    z.writestr("plotly/package_data/plotly.min.js", "charts")
script = (ROOT / "tools/setup.sh").read_text()
for name, data in (("plotly_wheel_sha256", wheel.read_bytes()), ("plotly_sha256", b"charts")):
    script = re.sub(rf"^{name}=\w+", f"{name}={hashlib.sha256(data).hexdigest()}", script, flags=re.M)
(work / "setup" / "tools").mkdir(parents=True)
(work / "setup/tools/setup.sh").write_text(script)
PYTHON = f"""#!/usr/bin/env bash
if [[ $1 != -m ]]; then exec {sys.executable} "$@"; fi
while [[ $# -gt 0 ]]; do if [[ $1 == --dest ]]; then cp {wheel} "$2/plotly-7.whl"; fi; shift; done
"""
(work / "pretended").mkdir()
for name, text in (("python3", PYTHON), ("dpkg-query", "#!/bin/sh\necho installed\n"),
                   ("apt-get", "#!/bin/sh\nexit 1\n")):
    (work / "pretended" / name).write_text(text)
    (work / "pretended" / name).chmod(0o755)
pretended = {**os.environ, "PATH": f"{work / 'pretended'}:{os.environ['PATH']}", "LC_ALL": "C"}
third_party = work / "setup/third_party"
third_party.write_text("in its place")
done = run("bash", work / "setup/tools/setup.sh", env=pretended)
check("Plotly.js cannot be written", done.returncode == 0 and
      re.search(r"^setup: all \d+ packages are installed$", done.stdout, re.M) and
      re.match("warning: Plotly.js was not downloaded: mkdir: .*: Not a directory\nhint: ", done.stderr), done)
third_party.unlink()
(third_party / "plotly").mkdir(parents=True)
(third_party / "plotly/plotly.min.js").write_text("charts")
# --check --peers looks at what --peers downloads, too.
peers = work / "setup/.venv-peers"
for modules, wanted in (((), "missing"), (("numpy",), "missing"), (("numpy", "torch"), "ok")):
    if modules:
        (peers / "bin").mkdir(parents=True, exist_ok=True)
        (peers / "bin/python").write_text(f'#!/bin/sh\nPYTHONPATH={peers} exec {sys.executable} -S "$@"\n')
        (peers / "bin/python").chmod(0o755)
    for module in modules:
        (peers / f"{module}.py").write_text("")
    done = run("bash", work / "setup/tools/setup.sh", "--check", "--peers", env=pretended)
    check(f".venv-peers with {modules}", done.returncode == (wanted == "missing") and
          re.search(rf"^{wanted} +\.venv-peers ", done.stdout, re.M) and
          (wanted == "ok" or re.search(r"^setup: 1 of \d+ missing", done.stdout, re.M)), done)
done = run("bash", work / "setup/tools/setup.sh", "--check", env=pretended)
check("--check without --peers", done.returncode == 0 and ".venv-peers" not in done.stdout, done)
# Its help says all that --no-tests leaves out.
done = run("bash", work / "setup/tools/setup.sh", "--help", env=pretended)
for package in re.search('^test_packages="([^"]*)"', (ROOT / "tools/setup.sh").read_text(), re.M).group(1).split():
    word = {"chromium-driver": "Chromium with its driver"}.get(package, package.removeprefix("python3-"))
    check(f"setup.sh --help on {package}", word.lower() in done.stdout.lower(), done)
# Packages that are too old for the build; a compiler that CXX names.
for name, version, changes, wanted in (
        ("cmake", "cmake version 3.22.1", {}, "error: cmake is 3.22.1, and the build needs 3.25 or later\nhint: put a"),
        ("cmake", "cmake version 4.0.3", {}, ""), ("cmake", "cmake version 3.25.0", {}, ""),
        ("g++", "11.4.0", {}, "error: g++ is 11.4.0, and the build needs 12 or later\nhint: install a newer"),
        ("g++", "12.2.0", {}, ""), ("g++", "11.4.0", {"CXX": "other"}, ""),
        ("other", "9.5.0", {"CXX": "other"}, "error: other is 9.5.0, and")):
    (work / "old" / name).parent.mkdir(exist_ok=True)
    for tool, says in (("cmake", "cmake version 3.25.1"), ("g++", "12.2.0"), ("other", "12.2.0"), (name, version)):
        (work / "old" / tool).write_text(f"#!/bin/sh\necho {says}\n")
        (work / "old" / tool).chmod(0o755)
    plain = {key: value for key, value in pretended.items() if key != "CXX"}
    for option in ((), ("--check",)):
        done = run("bash", work / "setup/tools/setup.sh", *option,
                   env={**plain, "PATH": f"{work / 'old'}:{pretended['PATH']}", **changes})
        check(f"{name} {version} {changes} {option}", done.returncode == (1 if wanted else 0) and
              ("setup: all" in done.stdout) == (not wanted) and
              (done.stderr.startswith(wanted) if wanted else not done.stderr), done)
shutil.rmtree(third_party)
done = run("bash", work / "setup/tools/setup.sh", env=pretended)
check("Plotly.js", done.returncode == 0 and not done.stderr and
      (third_party / "plotly/plotly.min.js").read_text() == "charts", done)

# tools/check_kernels.sh: its options, a build folder as the caller names it, and lists of kernels.
REPORT = """ptxas info    : Compiling entry function 'double_kernel' for 'sm_90a'
ptxas info    : Function properties for double_kernel
    0 bytes stack frame, {0} bytes spill stores, {0} bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
"""
for built, spilled in (("built", 0), ("spills", 4)):
    (work / built).mkdir()
    (work / built / "double.o").write_text("")
    (work / built / "double.o.ptxas").write_text(REPORT.format(spilled))
    (work / built / "kernels.txt").write_text(f"{work / built / 'double.o'}\n")
(work / "empty").mkdir()
(work / "empty/kernels.txt").write_text("")
for arguments, code, words in ((["--help"], 0, "usage: bash tools/check_kernels.sh"),
                               (["--no-build", "built"], 0, "double_kernel\nkernels: none spills"),
                               (["--no-build", "spills"], 1, "8 bytes spilled on sm_90a: double_kernel"),
                               (["--no-build", "empty"], 1, "empty/kernels.txt names no kernels\nhint: "),
                               (["--nobuild"], 1, "error: unknown argument --nobuild\nhint: ")):
    done = run("bash", ROOT / "tools/check_kernels.sh", *arguments, cwd=work)
    check(f"check_kernels.sh {arguments}", done.returncode == code and words in done.stdout + done.stderr, done)

# tools/pre-commit.sh and tools/check_layers.py: --help only says what they do, and other arguments are refused.
for program, script in ((sys.executable, "check_layers.py"), ("bash", "pre-commit.sh")):
    done = run(program, ROOT / "tools" / script, "--help", cwd=work)
    check(f"{script} --help", done.returncode == 0 and not done.stderr and "usage:" in done.stdout and
          "layers" in done.stdout and "layers: ok" not in done.stdout, done)
    done = run(program, ROOT / "tools" / script, "--halp", cwd=work)
    check(f"{script} --halp", done.returncode != 0 and "--halp" in done.stderr, done)

# tools/test.sh with a build and tests that only pretend. Each call of ctest begins its log anew.
CTEST = """#!/usr/bin/env bash
mkdir -p build/Testing/Temporary
if [[ $* == *" -N "* ]]; then echo "listed" >build/Testing/Temporary/LastTest.log; echo "Total Tests: 3"; exit; fi
echo "not run: pages, no browser" >build/Testing/Temporary/LastTest.log
echo "not run: a part in $LC_ALL" >>build/Testing/Temporary/LastTest.log
echo "100% tests passed of those that write to $TMPDIR"
"""
for name, text in (("cmake", "#!/usr/bin/env bash\n"), ("ctest", CTEST)):
    (work / "path").mkdir(exist_ok=True)
    (work / "path" / name).write_text(text)
    (work / "path" / name).chmod(0o755)
plain = {key: value for key, value in os.environ.items() if key != "TMPDIR"}
plain.update(PATH=f"{work / 'path'}:{plain['PATH']}", LC_ALL="POSIX")
done = run("bash", sources / "tools/test.sh", "--quick", "--no-setup", env=plain)
check("what was not run", done.returncode == 0 and "  1 x not run: pages, no browser\n" in done.stdout and
      "not run: a part in C.UTF-8\n" in done.stdout and "label gpu: 3 tests" in done.stdout, done)
alone = ("unshare", "--user", "--map-root-user", "--mount", "bash", "-c")
# A /dev/shm of their own hides this folder if it is there.
mounted = 'mount --bind "$0" /mnt && mount -t tmpfs -o size=9G$1 tmpfs /dev/shm && PATH=/mnt/path:$PATH "${@:2}"'
if shutil.which("unshare") is None or run(*alone, mounted, work, ",noexec", "true").returncode != 0:
    print("not run: tools/test.sh in containers, this machine does not allow namespaces (unshare)")
else:
    for option, folder in (("", "/dev/shm/assay-tests-"), (",noexec", "/tmp\n")):
        done = run(*alone, mounted, work, option, "bash", "/mnt/around/sources/tools/test.sh", "--quick", "--no-setup",
                   env=plain)
        check(f"where tests write with{option or ',exec'}", done.returncode == 0 and
              f"write to {folder}" in done.stdout, done)

print("\n".join(failures) if failures else "build_scripts: ok")
sys.exit(1 if failures else 0)
