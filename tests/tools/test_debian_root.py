#!/usr/bin/env python3
"""The first commands of README.md on a bare Debian, and the Dockerfile, in roots made by debootstrap.

usage: test_debian_root.py [--release trixie|bookworm] [--steps STEPS] [--folder DIR] [--mirror URL]
  --release R   which Debian (default: trixie)
  --steps LIST  of setup, build, docker, separated by commas (default: all)
                setup   tools/setup.sh, configuration with and without Catch2
                build   assay and one test, a short training run
                docker  the lines of the Dockerfile, where it names this release: a portable build, and its
                        Debian package in a bare root, where a user without rights trains an installed preset
  --folder DIR  keep the roots there, and use those that are there: a build goes on where it was
  --mirror URL  of Debian's archive (default: the one of this machine's apt)

Needs root, debootstrap, the mirror, 4 GB of disk, and half an hour of two cores. Where one is absent it says
"not run:" and ends with 0. `bash tools/test.sh --systems` runs it for both releases."""
import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
               "OMP_WAIT_POLICY": "passive"}
RELEASES = {"bookworm": 12, "trixie": 13}
# A model that a step takes a second of, on a portable build too.
SHORT = ["--set", "run.steps=4", "--set", "run.batch_tokens=512", "--set", "run.micro_batch=2", "--set", "run.sequence=128",
         "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0", "--set", "eval.every=4", "--set", "eval.tokens=1024",
         "--set", "data.synth.train_tokens=200000", "--set", "data.synth.val_tokens=20000"]


def not_run(why):
    print(f"not run: Debian in a bare root, {why}")
    sys.exit(0)


def fail(what):
    sys.exit(f"FAILED: {what}")


def expect(condition, what):
    if not condition:
        fail(what)


def mirror_of_apt():
    """The first URL with deb packages in apt's sources."""
    for path in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]:
        text = path.read_text(errors="replace") if path.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[[^]]*\])?) +(https?://\S*/debian/?)(?:\s|$)", text, re.M)
        if found:
            return found.group(1)
    return None


# Two ranks, of which one is killed: the launcher says which, and ends with 4.
KILLED = ("assay train models/presets/tiny/moe.yaml --run runs/killed --ranks 2 {} --set run.steps=100000 > killed.txt 2>&1 & "
          "launcher=$!; until grep -q '^step 1/' killed.txt || ! kill -0 $launcher; do sleep 0.2; done; "
          "for rank in /proc/[0-9]*; do if grep -zqx OMPI_COMM_WORLD_RANK=1 $rank/environ && "
          "test $(readlink $rank/exe) = /usr/bin/assay; then kill -9 ${{rank#/proc/}}; fi; done 2> /dev/null; "
          "wait $launcher; echo code $?; cat killed.txt")


class Root:
    """A folder with a Debian. Commands run in it with a /proc of their own, and end with it."""

    def __init__(self, path):
        self.path = path

    def run(self, command, folder="/", user=None, expect_status=0, quiet=False):
        print(f"  {self.path.name}: {command}", flush=True)
        inner = f"cd {shlex.quote(folder)} && {command}"
        if user is not None:
            inner = f"export HOME=/home/{user}; {inner}"
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        outer = 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && chmod 1777 "$0/dev/shm" && exec chroot "$0" "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", outer, str(self.path), *words, "bash", "-c", inner],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        if done.returncode != expect_status:
            fail(f"{command}: exit {done.returncode} in {self.path}\n{done.stdout[-6000:]}")
        return done.stdout

    def put(self, source, place):
        """Copies a file, or what a folder has, to a place in the root."""
        target = self.path / place.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
        else:
            if place.endswith("/"):
                target = target / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


class Roots:
    def __init__(self, folder, release, mirror):
        self.folder, self.release, self.mirror = folder, release, mirror

    def bare(self, name):
        """A new bare root, or the one of that name from an earlier call."""
        root = Root(self.folder / f"{self.release}-{name}")
        base = self.folder / f"{self.release}-bare.tar"
        if root.path.exists():
            return root
        part = self.folder / f"{self.release}-{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        if base.exists():
            part.mkdir()
            subprocess.run(["tar", "-xpf", base, "-C", part], check=True)
        else:
            print(f"  debootstrap {self.release}", flush=True)
            done = subprocess.run(["debootstrap", "--variant=minbase", self.release, part, self.mirror],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            expect(done.returncode == 0, f"debootstrap: {done.stdout[-2000:]}")
            if pathlib.Path("/etc/resolv.conf").exists():
                shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
            subprocess.run(["tar", "-cf", f"{base}.part", "-C", part, "."], check=True)
            os.rename(f"{base}.part", base)
        os.rename(part, root.path)
        return root

    def fresh(self, name):
        shutil.rmtree(self.folder / f"{self.release}-{name}", ignore_errors=True)
        return self.bare(name)


def checkout(place):
    """The files that git knows, with Plotly.js if it is here, as a clone would have them."""
    shutil.rmtree(place, ignore_errors=True)
    names = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    for name in names.decode().split("\0")[:-1]:
        if (SOURCE / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, place / name)
    plotly = SOURCE / "third_party/plotly/plotly.min.js"
    if plotly.exists():
        (place / "third_party/plotly").mkdir(parents=True)
        shutil.copy2(plotly, place / "third_party/plotly")
    return place


def check_setup(root):
    root.run("bash tools/setup.sh --no-tests", folder="/assay")
    # Debian 12 has Catch2 all the same: its libspdlog-dev depends on it.
    hidden = "cmake --preset release -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON"
    text = root.run(f"{hidden} -DASSAY_TESTS=AUTO", folder="/assay")
    expect("Tests: off, Catch2 (2 or 3) was not found" in text, text)
    text = root.run(f"{hidden} -DASSAY_TESTS=ON", folder="/assay", expect_status=1)
    expect("ASSAY_TESTS is ON and Catch2" in text and "-DASSAY_TESTS=OFF" in text, text)
    root.run("bash tools/setup.sh", folder="/assay")
    text = root.run("bash tools/setup.sh --no-tests", folder="/assay")
    expect(re.search(r"^setup: all \d+ packages are installed$", text, re.M), text)
    text = root.run("cmake --preset release -DASSAY_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=OFF", folder="/assay")
    expect("Tests: off" not in text, text)
    expect("warning" not in text.lower(), text)


def check_build(root):
    text = root.run(f"cmake --build build --parallel {os.cpu_count()} --target assay test_base", folder="/assay")
    expect("warning:" not in text, text[-6000:])
    root.run("build/test_base", folder="/assay")
    expect("energy" in root.run("build/assay doctor --quick", folder="/assay"), "doctor")
    text = root.run("build/assay train models/presets/tiny/moe.yaml --run runs/short --fresh " + shlex.join(SHORT), folder="/assay")
    expect("step 4/4" in text or "4/4" in text, text)
    root.run("build/assay receipt verify runs/short", folder="/assay")


def run_dockerfile(roots, source):
    """Does what each line of the Dockerfile does. Returns the root of its last stage."""
    stages, root, folder, arguments = {}, None, "/", {}
    for line in (SOURCE / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if not line or line.startswith("#"):
            continue
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            expect(image == f"debian:{RELEASES[roots.release]}", f"{line}: this is {roots.release}")
            stage = name or "run"
            root = stages[stage] = roots.bare(f"docker-{stage}") if name else roots.fresh(f"docker-{stage}")
            folder, arguments = "/", {}
        elif word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "WORKDIR":
            folder = rest
            (root.path / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *names, target = rest.split()
            place = source
            if names[0].startswith("--from="):
                place = stages[names.pop(0).removeprefix("--from=")].path
            target = target if target.startswith("/") else str(pathlib.Path(folder, target)) + "/" * target.endswith("/")
            for name in names:
                found = list(place.glob(name.lstrip("/"))) if name != "." else [place]
                expect(found, f"{line}: no {name}")
                for file in found:
                    root.put(file, target)
        elif word == "RUN":
            settings = "".join(f"export {name}={shlex.quote(value)}; " for name, value in arguments.items())
            root.run(settings + rest, folder=folder)
        elif word == "ENTRYPOINT":
            root.run(f"command -v {shlex.join(eval(rest))}")
        else:
            fail(f"this test does not know {word} of the Dockerfile")
    return stages["build"], root


def check_package(root):
    text = root.run("dpkg -s assay")
    expect(re.search(r"^Depends: .*libc6 .*", text, re.M) and "libsqlite3-0" in text and "libgomp1" in text, text)
    print(re.search(r"^Depends: .*", text, re.M).group())
    expect("Maintainer: The Assay developers" in text, text)
    expect(re.search(r"^Suggests: .*openmpi-bin", text, re.M), text)
    root.run("test ! -e /usr/include/assay && test -s /usr/share/doc/assay/copyright && test -s /usr/share/doc/assay/train.md")
    root.run("useradd --create-home somebody")
    user = {"user": "somebody", "folder": "/home/somebody"}
    expect(root.run("assay --version", **user).startswith("assay "), "--version")
    root.run("assay doctor --quick", **user)
    text = root.run("assay train models/presets/tiny/moe.yaml --run runs/short " + shlex.join(SHORT), **user)
    expect("4/4" in text, text)
    root.run("ls /home/somebody/.cache/assay/*/tokenizer.json runs/short/receipt.json", **user)
    root.run("assay receipt verify runs/short && assay sample runs/short --prompt 'Once upon a' --tokens 8", **user)
    root.run("assay matrix models/presets/posts/tiny.yaml --dry-run", **user)
    # The Dockerfile adds openmpi-bin. More ranks than many machines have cores.
    text = root.run("assay train models/presets/tiny/moe.yaml --run runs/ranks --ranks 4 "
                    + shlex.join([*SHORT, "--set", "run.micro_batch=1"]), **user)
    expect("4/4" in text and root.run("assay receipt verify runs/ranks", **user), text)
    text = root.run(KILLED.format(shlex.join(SHORT)), **user)
    expect("code 4" in text and re.search(r"^error: rank 1 .* was ended by signal 9 \(Killed\)", text, re.M), text)
    root.run("apt-get purge -y -q assay && test ! -e /usr/share/assay")


def main():
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--release", choices=sorted(RELEASES), default="trixie")
    parser.add_argument("--steps", default="setup,build,docker")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--mirror", default=mirror_of_apt())
    a = parser.parse_args()
    steps = a.steps.split(",")
    for step in steps:
        if step not in ("setup", "build", "docker"):
            fail(f"--steps {step}: not setup, build or docker")

    if os.geteuid() != 0:
        not_run("which needs root")
    for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux")):
        if shutil.which(tool) is None:
            not_run(f"{tool} is not installed (apt-get install {package})")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        not_run("this machine does not allow namespaces (unshare)")
    if not a.mirror:
        not_run("apt names no mirror of Debian (--mirror URL)")
    try:
        urllib.request.urlopen(f"{a.mirror.rstrip('/')}/dists/{a.release}/Release", timeout=20).close()
    except OSError as error:
        not_run(f"{a.mirror} does not answer: {error}")

    folder = a.folder or pathlib.Path(tempfile.mkdtemp(prefix="assay-roots-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o755)
    try:
        roots = Roots(folder.resolve(), a.release, a.mirror)
        source = checkout(folder / f"{a.release}-checkout")
        ran = [step for step in steps if step != "docker"]
        if ran:
            root = roots.bare("build")
            root.put(source, "/assay")
            if "setup" in steps:
                check_setup(root)
            if "build" in steps:
                check_build(root)
        if "docker" in steps and f"FROM debian:{RELEASES[a.release]}" in (SOURCE / "Dockerfile").read_text():
            check_package(run_dockerfile(roots, source)[1])
            ran.append("docker")
    finally:
        if a.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"Debian {RELEASES[a.release]} in a bare root: ok ({', '.join(ran)})" if ran else
          f"not run: docker, the Dockerfile is not of Debian {RELEASES[a.release]}")


if __name__ == "__main__":
    main()
