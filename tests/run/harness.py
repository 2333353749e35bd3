"""Shared by the tests of whole runs: a small configuration, a temporary folder, and calls of
build/assay."""
import array
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ASSAY = pathlib.Path(os.environ.get("ASSAY_BINARY", ROOT / "build" / "assay"))

# Under nohup and in a script's background these are ignored, which programs inherit and keep.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# Corpora, shared with tests that run at the same time: `assay` makes one under another name and renames it.
CACHE = pathlib.Path(os.environ.get("ASSAY_TEST_CACHE", ROOT / "build" / "test-cache"))

# The fewest tokens that these tests need: most of a run's time is matrix products. Those that write long texts ask for
# longer sequences. One thread: models as small as these are no faster with two, which cost 40% more of the cores.
SEQUENCE = 32
BATCH_TOKENS, EVAL_TOKENS = 16 * SEQUENCE, 64 * SEQUENCE
CONFIG = """
model: {{hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: 512{model}}}
optimizer: {{lr: 3e-3}}
schedule: {{warmup: 5, warmdown: 10}}
run: {{steps: 60, batch_tokens: {batch_tokens}, sequence: {sequence}, micro_batch: 8, checkpoint_every: 10, threads: {threads}}}
eval: {{every: 20, tokens: {eval_tokens}}}
telemetry: {{window: 8, probe_every: 10}}
data:
  cache: {cache}
  synth: {{train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}
"""
MOE = (", moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 32,"
       " router: {score: sigmoid, bias_rate: 1e-3, aux: gates, aux_alpha: 0.01}}")


def configuration(model="", sequence=SEQUENCE, threads=1):
    return CONFIG.format(model=model, cache=CACHE, sequence=sequence, batch_tokens=16 * sequence, eval_tokens=64 * sequence,
                         threads=threads)


class Workplace:
    """A temporary folder with a config.yaml, removed at the end."""

    def __init__(self, moe=False, sequence=SEQUENCE, threads=1):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="assay-run-"))
        self.config = self.path / "config.yaml"
        self.config.write_text(configuration(MOE if moe else "", sequence, threads))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for folder, _, _ in os.walk(self.path):
            os.chmod(folder, 0o755)
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, name):
        return self.path / name

    def command(self, name, *more):
        return [str(ASSAY), "train", str(self.config), "--run", str(self.run(name)), *more]

    def train(self, name, *more, expect=0):
        done = assay(*self.command(name, *more)[1:])
        if done.returncode != expect:
            sys.exit(f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done


def corpora():
    """The folders of the cache that are complete."""
    return [folder for folder in sorted(CACHE.glob("synth-*")) if folder.is_dir() and folder.suffix != ".part"]


# What `assay train --ranks` sets for its own mpirun.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_smsc": "^cma",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none"}


def mpirun(*ranks):
    """Each of `ranks` is the command line of one rank."""
    words = ["mpirun"]
    for number, command in enumerate(ranks):
        words += [*([":"] if number > 0 else []), "-n", "1", *command]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, **MPI}, timeout=120)


def at_once(work, items, most=2):
    """[work(item)], two or `most` at a time: a launch of ranks mostly waits. What they share must be there before."""
    with concurrent.futures.ThreadPoolExecutor(most) as several:
        return [done.result() for done in [several.submit(work, item) for item in items]]


def struck_in_time(command, step, strike):
    """Starts `command`, a run, and behind the line of `step` calls strike(process), which returns the output after that line;
    returns the exit code, which is not 0, and that output. On a busy machine the run may be through by then: it begins again
    from what its folder had."""
    run = pathlib.Path(command[command.index("--run") + 1])
    with tempfile.TemporaryDirectory(prefix="assay-before-") as kept:
        before = pathlib.Path(kept) / run.name
        if run.exists():
            shutil.copytree(run, before, symlinks=True)
        for _ in range(5):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith(f"step {step}/"):
                    said = strike(process)
                    if process.wait() != 0:
                        return process.returncode, said
                    break
            check(process.wait() == 0, f"exit {process.returncode} before step {step}: {''.join(lines)}")
            shutil.rmtree(run)
            if before.exists():
                shutil.copytree(before, run, symlinks=True)
    return sys.exit(f"FAILED: the run ends before it is struck at step {step}, five times: {command}")


def stop_at(command, step, number, delay=0.0, rank=None):
    """Starts `command` and sends it, or this rank of it, the signal `delay` seconds after the line of `step`; returns the
    exit code and the output after that line."""
    def strike(process):
        time.sleep(delay)
        if rank is None:
            process.send_signal(number)
        else:
            try:
                os.kill(ranks_below(process.pid)[rank], number)
            except (KeyError, ProcessLookupError):  # it has ended
                pass
        return process.communicate()[1]
    return struck_in_time(command, step, strike)


def check_resumes(place, *settings):
    """A run with these settings, killed and started again, has the bits of the run `whole`."""
    stop_at(place.command("killed", *settings), 25, signal.SIGKILL)
    place.train("killed", *settings)
    difference = first_difference(place.run("whole"), place.run("killed"))
    check(difference is None, f"kill -9 with {' '.join(settings)}: {difference}")


def assay(*arguments, **options):
    return subprocess.run([str(ASSAY), *map(str, arguments)], capture_output=True, text=True, errors="replace",
                          cwd=options.pop("cwd", ROOT), **options)


def rows(run, query):
    db = sqlite3.connect(f"file:{run / 'telemetry.db'}?mode=ro", uri=True)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step-*"))


def ranks_below(launcher):
    """{rank: pid} of the ranks below the process `launcher`."""
    found, todo = {}, [launcher]
    while todo:
        try:
            pid = todo.pop()
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                todo += map(int, task.read_text().split())
            words = dict(word.split(b"=", 1) for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in word)
            if b"OMPI_COMM_WORLD_RANK" in words and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(ASSAY):
                found[int(words[b"OMPI_COMM_WORLD_RANK"])] = pid
        except OSError:  # it has ended
            pass
    return found


def rank_processes(launcher, number):
    """{rank: pid} of the ranks below the process `launcher`, once there are so many."""
    found, end = {}, time.monotonic() + 60
    while len(found) < number:
        check(time.monotonic() < end, f"{number} ranks of {launcher}: {found}")
        found = ranks_below(launcher)
    check(len(found) == number, f"{number} ranks: {found}")
    return found


def newest_tensors(run):
    newest = checkpoints(run)[-1]
    return [newest.name] + [(newest / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")]


def write_corpus(place, name, words, documents):
    """Shards in the folder `name` of the workplace, and one tokenizer for all of its corpora."""
    text = place.path / f"{name}.txt"
    text.write_text("<|endoftext|>".join(" ".join(words[(i * 7 + j) % len(words)] for j in range(40)) for i in range(documents)))
    if not (place.path / "tokenizer.json").exists():
        done = assay("tokenizer", "train", text, "--vocab-size", "300", "-o", place.path / "tokenizer.json")
        check(done.returncode == 0, done.stderr)
    done = assay("data", "prepare", text, "--tokenizer", place.path / "tokenizer.json", "-o", place.path / name)
    check(done.returncode == 0, done.stderr)


def merge(run):
    """Makes what several ranks saved, the newest checkpoint of the run, the files that one rank writes."""
    done = assay("checkpoint", "merge", run)
    check(done.returncode == 0, f"merge {run}: {done.stdout}{done.stderr}")


def edit_tensors(checkpoint, edit):
    """Calls edit({name: (values, shape)}) with the fp32 tensors of a checkpoint's model, and writes them back with the
    manifest's hash."""
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    before = hashlib.sha256(data).hexdigest()
    begin = 8 + int.from_bytes(data[:8], "little")
    entries = {name: e for name, e in json.loads(data[8:begin]).items() if e.get("dtype") == "F32"}
    spans = {name: slice(*(begin + offset for offset in e["data_offsets"])) for name, e in entries.items()}
    tensors = {name: (array.array("f", data[spans[name]]), e["shape"]) for name, e in entries.items()}
    lists = {name: (list(values), shape) for name, (values, shape) in tensors.items()}
    edit(lists)
    for name, (values, _) in lists.items():
        data[spans[name]] = array.array("f", values).tobytes()
    path.write_bytes(data)
    manifest = (checkpoint / "MANIFEST.json").read_text()
    check(manifest.count(before) == 1, manifest)
    (checkpoint / "MANIFEST.json").write_text(manifest.replace(before, hashlib.sha256(data).hexdigest()))


def plant_infinity(checkpoint, token):
    """Sets a token's embedding to infinity."""
    def edit(tensors):
        values, (_, width) = tensors["embed.weight"]
        values[token * width:(token + 1) * width] = [math.inf] * width
    edit_tensors(checkpoint, edit)


SAME = ["SELECT step, name, value FROM scalar WHERE name NOT IN ('tokens_per_s', 'train_s', 'eta_s', 'cpu_joules', 'gpu_joules', 'mfu_share', 'peak_rss_bytes', 'sent_bytes',"
        " 'exchange_rounds_max') ORDER BY step, name",
        "SELECT * FROM router_layer ORDER BY step, layer",
        "SELECT step, layer, counts FROM expert_load ORDER BY step, layer",
        "SELECT * FROM precision ORDER BY step, weight, operand",
        "SELECT step, task, metric, value, n FROM eval ORDER BY step, task, metric"]


def near(a, b):
    """Whether two lists of rows are equal, but for the last digits of numbers that are not whole."""
    def same(x, y):
        return x == y or (isinstance(x, float) and isinstance(y, float) and math.isclose(x, y, rel_tol=1e-12))
    return len(a) == len(b) and all(len(x) == len(y) and all(map(same, x, y)) for x, y in zip(a, b))


def first_difference(a, b, equal_precision=True):
    """The first difference between two runs, or None if last checkpoint and telemetry are equal to
    the bit. equal_precision: false if precision measures may differ in their last digits."""
    if newest_tensors(a) != newest_tensors(b):
        return f"the last checkpoints of {a.name} and {b.name}, {newest_tensors(a)[0]} and {newest_tensors(b)[0]}"
    for query in SAME:
        of_a, of_b = rows(a, query), rows(b, query)
        if not equal_precision and "FROM precision" in query and near(of_a, of_b):
            continue
        if of_a != of_b:
            at = next((pair for pair in zip(of_a, of_b) if pair[0] != pair[1]), (len(of_a), len(of_b)))
            return f"{a.name} and {b.name}: {query}: {at}"
    return None


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")
