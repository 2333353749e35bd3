"""The list of planted bugs, tests/mutation/*.txt, and how they come into the sources. A block of the list:

    214 ops/rmsnorm.cu
    what: rows of partial sums are left out if the blocks are no multiple of 32
    test: op_check_simt --op rmsnorm --filter N=2113
    - const int run = ceil_div(rows, kRuns);
    + const int run = MUTANT ? rows / kRuns : ceil_div(rows, kRuns);

The number is the bug's name for good. The lines after "-" must be in the file exactly once; a line may be given in
part; neither indentation nor empty lines matter. The lines after "+" replace them, with MUTANT where it is asked
whether the bug is on; not where a constant begins as a constant expression, there it is always off. A line of # is a
comment. A bug that no test notices has two more lines: "expect: missed" and
"why: ...". One in code for some CPUs only has "needs: amx_bf16", a flag of /proc/cpuinfo."""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LISTS = ROOT / "tests" / "mutation"
INCLUDE = '#include "tests/mutation/mutant.h"\n'
FIELDS = ("what", "test", "expect", "why", "needs")


class ListError(Exception):
    """An error in the list, and a hint."""

    def __init__(self, what, hint):
        super().__init__(what)
        self.hint = hint


@dataclasses.dataclass
class Mutant:
    number: int
    file: str
    at: str  # in the list
    what: str = ""
    test: str = ""
    expect: str = "noticed"
    why: str = ""
    needs: str = ""  # of the CPU
    was: list = dataclasses.field(default_factory=list)
    becomes: list = dataclasses.field(default_factory=list)
    line: int = 0  # in the file

    def pattern(self):
        return re.compile(r"[ \t]*\n\s*".join(re.escape(line.strip()) for line in self.was))

    def text(self):
        return re.sub(r"\bMUTANT\b", f"assay_mutant({self.number})", "\n".join(self.becomes))

    def place(self):
        return f"{self.file}:{self.line}"


def flags_of_cpu():
    found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def parse(path):
    """The mutants of one file of the list."""
    mutants, mutant = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        at = f"{path.relative_to(ROOT)}:{number}"
        if not line.strip():
            mutant = None
        elif line.startswith("#"):
            continue
        elif mutant is None:
            head = re.fullmatch(r"(\d+) (\S+)", line)
            if not head:
                raise ListError(f"{at}: \"{line}\" does not begin a block", "begin it with: NUMBER FILE")
            mutant = Mutant(int(head[1]), head[2], at)
            mutants.append(mutant)
        elif line[:2] in ("- ", "+ "):
            (mutant.was if line[0] == "-" else mutant.becomes).append(line[2:])
        else:
            name, _, value = line.partition(": ")
            if name not in FIELDS or not value:
                raise ListError(f"{at}: \"{line}\" is no line of a block",
                                f"the fields are {', '.join(FIELDS)}, - and +")
            setattr(mutant, name, value)
    return mutants


def require_whole(m):
    """The block says all that it must."""
    if not m.what or not m.test or not m.was or not m.becomes:
        raise ListError(f"{m.at}: mutant {m.number} has no what, no test, no - or no +",
                        "see tests/mutation/mutants.py")
    if not re.search(r"\bMUTANT\b", "\n".join(m.becomes)):
        raise ListError(f"{m.at}: mutant {m.number} is always on", "write MUTANT where it is asked whether it is on")
    if m.expect not in ("noticed", "missed") or (m.expect == "missed") != bool(m.why):
        raise ListError(f"{m.at}: mutant {m.number} expects \"{m.expect}\", why \"{m.why}\"",
                        "a bug that no test notices has the lines expect: missed and why: ...")


def read_lists():
    """All mutants, by number. Sets the line of each in its file."""
    mutants = [m for path in sorted(LISTS.glob("*.txt")) for m in parse(path)]
    mutants.sort(key=lambda m: m.number)
    for m, following in zip(mutants, mutants[1:]):
        if m.number == following.number:
            raise ListError(f"{following.at}: number {m.number} is also at {m.at}", "give it another number")
    for m in mutants:
        require_whole(m)
    for file in {m.file: None for m in mutants}:
        spans_of(file, mutants)
    return mutants


def spans_of(file, mutants):
    """(begin, end, mutant) of each change to a file, in order."""
    path = ROOT / file
    mine = [m for m in mutants if m.file == file]
    if not path.is_file():
        raise ListError(f"{mine[0].at}: there is no {file}", "name the file where the code is now")
    source = path.read_text()
    spans = []
    for m in mine:
        found = list(m.pattern().finditer(source))
        if len(found) != 1:
            raise ListError(f"{m.at}: the text of mutant {m.number} occurs {len(found)} times in {file}",
                            "give what the code is now, and a neighbouring line where it must be told from others")
        m.line = source.count("\n", 0, found[0].start()) + 1
        spans.append((found[0].start(), found[0].end(), m))
    spans.sort(key=lambda span: span[0])
    for (_, end, m), (begin, _, following) in zip(spans, spans[1:]):
        if begin < end:
            raise ListError(f"{following.at}: mutants {m.number} and {following.number} change the same text of {file}",
                            "give less text, or join them: MUTANT is replaced wherever it stands")
    return spans


def with_mutants(file, mutants):
    """The text of a file with its mutants."""
    source, text, at = (ROOT / file).read_text(), INCLUDE, 0
    for begin, end, m in spans_of(file, mutants):
        text += source[at:begin] + m.text()
        at = end
    return text + source[at:]
