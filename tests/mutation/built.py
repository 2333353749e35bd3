"""The copy of the tree with all mutants, its build, and the commands of its tests."""
import dataclasses
import pathlib
import re
import shutil
import subprocess

from mutants import ROOT, ListError, with_mutants

FOLDER = ROOT / "build-mutants"
TREE = FOLDER / "tree"
BUILD = TREE / "build"  # as in a clone, so that ccache knows the objects of files without mutants
PROGRAMS = ("op_check", "op_check_simt", "op_check_race")


@dataclasses.dataclass
class Command:
    words: list
    environment: dict = dataclasses.field(default_factory=dict)
    lock: str = ""
    folder: pathlib.Path = TREE


def known_files():
    """The files that git knows."""
    def git(*words):
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True)
        return done.stdout.decode() if done.returncode == 0 else ""

    top = git("rev-parse", "--show-toplevel").rstrip("\n")
    if not top or not ROOT.samefile(top):  # not that of another repository around it
        raise ListError(f"{ROOT} is not a git repository", "tools/mutate.sh copies what git knows: run it in a clone")
    return [name for name in git("ls-files", "-z").split("\0") if name]


def copy_tree(mutants):
    """Writes what differs from the copy that is there, so that only that is compiled again."""
    files = [name for name in known_files() if (ROOT / name).is_file()]
    changed = {m.file for m in mutants}
    for name in files:
        to = TREE / name
        content = with_mutants(name, mutants).encode() if name in changed else (ROOT / name).read_bytes()
        if to.is_file() and to.read_bytes() == content:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
        shutil.copymode(ROOT / name, to)
    known = set(files)
    for path in list(TREE.rglob("*")):
        if path.is_file() and BUILD not in path.parents and path.relative_to(TREE).as_posix() not in known:
            path.unlink()


def run(words, log):
    """Runs a step of the build; its output goes to a log, whose end is shown if it fails."""
    with open(log, "w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = process.wait()
        except BaseException:  # a signal, which ninja passes on to the compilers
            process.terminate()
            process.wait()
            raise
    if code == 0:
        return
    lines = log.read_text(errors="replace").splitlines()
    print("\n".join([line for line in lines if "error" in line.lower()][:20] or lines[-20:]))
    raise ListError(f"{words[0]} failed, see above", f"all of its output is in {log}")


def configure():
    run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DASSAY_CUDA=OFF",
         "-DASSAY_TESTS=ON"], FOLDER / "configure.log")


def build(commands, jobs):
    """Builds the programs that the commands name."""
    known = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True, check=True)
    targets = {line.split(":")[0] for line in known.stdout.splitlines()}
    named = {word for c in commands for word in [*c.words, *c.environment.values()]}
    wanted = sorted(targets & {name.removeprefix(f"{BUILD}/") for name in named})
    run(["nice", "ninja", "-k", "0", "-C", BUILD, "-j", str(jobs), *wanted], FOLDER / "build.log")


def words_of(line):
    """The arguments of a line that CMake wrote: [=[brackets]=], "quotes" and bare words."""
    found = re.findall(r'\[(=*)\[(.*?)\]\1\]|"((?:[^"\\]|\\.)*)"|([^\s()"]+)', line)
    return [brackets or re.sub(r"\\(.)", r"\1", quoted) or bare for _, brackets, quoted, bare in found]


def ctest_commands():
    """The command of every ctest by its name, from the files that CMake wrote for ctest."""
    commands = {}
    for path in BUILD.rglob("CTestTestfile.cmake"):
        for line in path.read_text().splitlines():
            kind, _, rest = line.partition("(")
            words = words_of(rest)
            if kind == "add_test":
                commands[words[0]] = Command(words[1:], folder=path.parent)
            elif kind == "set_tests_properties" and words[0] in commands:
                command, given = commands[words[0]], dict(zip(words[2::2], words[3::2]))
                command.lock = given.get("RESOURCE_LOCK", "")
                if "WORKING_DIRECTORY" in given:
                    command.folder = pathlib.Path(given["WORKING_DIRECTORY"])
                if "ENVIRONMENT" in given:
                    command.environment = dict(value.split("=", 1) for value in given["ENVIRONMENT"].split(";"))
    return commands


def command_of(mutant, ctests):
    """`op_check --op X ...`, or the name of a ctest and what is added to its command."""
    words = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', mutant.test)]
    if words[0] in PROGRAMS:
        return Command([f"{BUILD}/{words[0]}", *words[1:], "--stop-at-failure"])
    if words[0] not in ctests:
        raise ListError(f"{mutant.at}: mutant {mutant.number}: there is no test {words[0]}",
                        f"name one of {', '.join(PROGRAMS)} or a test of ctest -N")
    return dataclasses.replace(ctests[words[0]], words=ctests[words[0]].words + words[1:])
