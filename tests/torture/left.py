"""What a command has left in a folder, in a form that is equal for equal bits: {name: content}. Times, process numbers
and what is computed from them are left out."""
import csv
import hashlib
import io
import json
import pathlib
import re
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import SAME

# Of these only their presence counts: they hold times, or digests of files that do.
VOLATILE = re.compile(r"log\.txt|.*\.log|\.lock|summary\.md|receipt\.json|meta\.json|last\.txt")
# Keys and columns that hold a time, or the digest of something that does.
TIMES = re.compile(r".*(_s|_s_mean|seconds.*|time|joules.*|tokens_per_s.*|mfu.*|rss.*|says|sha256|hashes|written|started|versions)$")
DEFECT = re.compile(r"looks like a (bug|defect)|std::|terminate called|Traceback|json\.exception|filesystem error|basic_string|"
                    r"CHECK|Segmentation|Aborted|runtime error:|AddressSanitizer")


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(v) for key, v in value.items() if not TIMES.fullmatch(key)}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def table_without_times(text):
    return [{key: v for key, v in row.items() if not TIMES.fullmatch(key)} for row in csv.DictReader(io.StringIO(text))]


def telemetry(path, since=-1):
    """Rows of the tables but for times. since: only those of later steps."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [repr([row for row in database.execute(query) if row[0] > since]) for query in SAME]
    finally:
        database.close()


def manifest(path):
    """A checkpoint's: its files must be those that it lists."""
    listed = json.loads(path.read_text())
    for name, file in listed["files"].items():
        digest = hashlib.sha256((path.parent / name).read_bytes()).hexdigest()
        if digest != file["sha256"]:
            raise ValueError(f"{path.parent.name}/{name} has another SHA-256 than its MANIFEST.json says")
    del listed["files"]["state.json"]
    return listed


def content(path, here):
    if path.name == "telemetry.db":
        return telemetry(path)
    if path.name == "MANIFEST.json":
        return manifest(path)
    if VOLATILE.fullmatch(path.name):
        if path.suffix == ".json":
            json.loads(path.read_text())
        return "there"
    data = path.read_bytes().replace(str(here).encode(), b"HERE")
    if path.name in ("state.json", "summary.json", "branch.json", "used.json", "matrix.json"):
        return without_times(json.loads(data))
    if path.suffix == ".csv":
        return table_without_times(data.decode())
    return hashlib.sha256(data).hexdigest()


def left_in(here, only=None):
    """{path in the folder: content}; a file that cannot be read raises ValueError. only: of these paths."""
    found = {}
    for path in sorted(here.rglob("*")):
        name = path.relative_to(here).as_posix()
        if only is not None and name not in only and name + "/" not in only:
            continue
        if path.is_dir():
            found[name + "/"] = "folder"
            continue
        try:
            found[name] = content(path, here)
        except (ValueError, sqlite3.Error, OSError) as error:
            raise ValueError(f"{name}: {error}") from error
    return found


def difference(wanted, found):
    """The first difference, in words; None if there is none."""
    for name in found:
        if name not in wanted:
            return f"{name} is left over"
    for name, value in wanted.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] == value:
            continue
        if isinstance(value, list) and isinstance(found[name], list):
            for a, b in zip(value, found[name]):
                if a != b:
                    return f"{name} differs: {str(a)[:150]} / {str(b)[:150]}"
        return f"{name} differs: {str(value)[:150]} / {str(found[name])[:150]}"
    return None


def defect_in(text):
    """The line that looks like a defect of the program, or None."""
    return next((line for line in text.splitlines() if DEFECT.search(line)), None)


def defect_left(here):
    """The same for the logs in a folder."""
    for path in here.rglob("*.log"):
        line = defect_in(path.read_text(errors="replace"))
        if line:
            return f"{path.relative_to(here)}: {line}"
    return None
