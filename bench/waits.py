#!/usr/bin/env python3
"""What a person waits for beside training, each with a bound: what the machine needs for the same bytes or products.

The bounds are measured in the same run: a program that does nothing, a file written in pieces and flushed, SHA-256 on all
cores, the encoder on one core, products of matrices. Texts, shards and runs are made in a temporary folder (3 GB), by this
build's programs. Two cores with AVX2 took two minutes; --only names rows."""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

from cores import usable_cores
from in_turn import opened

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
RUNS, SHARDS, SHARD_TOKENS, STORIES, VAL_TOKENS, QUESTIONS = 30, 100, 1_000_000, 80_000, 131_072, 400
SMALL = """
model: {{hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: 512, moe: {{experts: 4, top_k: 2, expert_ffn: 64}}}}
schedule: {{warmup: 5, warmdown: 10}}
run: {{steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8}}
eval: {{every: 20, tokens: 4096}}
data: {{cache: {cache}, synth: {{train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}}}
"""
# 110 million parameters: 1.3 GB of masters and moments.
LARGE = """
model: {{hidden: 512, layers: 8, heads: 8, ffn: 3072, vocab_size: 50304}}
schedule: {{warmup: 0, warmdown: 1}}
run: {{steps: 1, batch_tokens: 128, sequence: 64, micro_batch: 2}}
eval: {{tokens: 64}}
data: {{cache: {cache}, synth: {{train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}}}
"""


class Machine:
    """A temporary folder, the programs, and the measured rates of this machine."""

    def __init__(self, build, folder):
        self.build, self.folder, self.cores = build, folder, usable_cores()
        self.small = folder / "small.yaml"
        self.small.write_text(SMALL.format(cache=folder / "cache"))

    def call(self, program, *arguments):
        """(seconds, stdout) of a program that must succeed."""
        start = time.monotonic()
        done = subprocess.run([str(self.build / program), *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return seconds, done.stdout

    def best(self, times, program, *arguments):
        return min(self.call(program, *arguments)[0] for _ in range(times))

    def start_s(self):
        """Seconds to start and end a program that does nothing."""
        def once():
            start = time.monotonic()
            subprocess.run(["true"], capture_output=True)
            return time.monotonic() - start
        return min(once() for _ in range(10))

    def write_s(self, size):
        """Seconds to write a file of `size` bytes in pieces of 16 MiB and flush it to the disk."""
        piece, path = os.urandom(16 * MIB), self.folder / "written"
        start = time.monotonic()
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, size, len(piece)):
                file.write(piece[:size - begin])
            os.fsync(file.fileno())
        seconds = time.monotonic() - start
        path.unlink()
        return seconds

    def hash_s(self, size):
        """Seconds of SHA-256 over `size` bytes, shared by all cores."""
        data = os.urandom(64 * MIB)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.cores) as several:
            list(several.map(lambda _: hashlib.sha256(data).digest(), range(self.cores)))
        return (time.monotonic() - start) * size / (len(data) * self.cores)

    def text(self):
        """A text of about 80 MB: generated stories."""
        path = self.folder / "stories.txt"
        if not path.exists():
            path.write_text(self.call("assay", "data", "synth", "--stories", STORIES)[1])
        return path


def megabytes(size):
    return f"{size / 1e6:.0f} MB"


# Each row: what, how much, seconds, seconds of the bound, what the bound is.
def row_help(m):
    return "assay --help", "", m.best(5, "assay", "--help"), m.start_s(), "a program that does nothing"


def row_dry_run(m):
    files = [f for f in (ROOT / "models/presets").rglob("*.yaml") if "\nmodels:" in "\n" + f.read_text()]
    cells = {}
    for file in files:
        try:
            cells[file] = json.loads(m.call("assay", "matrix", file, "--dry-run", "--json", "--device", "cpu")[1])["cells"]
        except (RuntimeError, KeyError, json.JSONDecodeError):
            continue  # a family for other machines
    if not cells:
        raise RuntimeError("no preset of several models can be planned here")
    largest = max(cells, key=cells.get)
    return ("assay matrix --dry-run", f"{largest.relative_to(ROOT)}: {cells[largest]} runs",
            m.best(3, "assay", "matrix", largest, "--dry-run", "--device", "cpu"), m.start_s(), "a program that does nothing")


def tokenizer_rates(m):
    """MB/s of one core, by part."""
    lines = m.call("bench_tokenizer", "--mb", 10, "--iters", 3, "--json")[1].splitlines()
    rows = [json.loads(line) for line in lines[1:]]  # the first is the machine's
    return {row["bench"]: row["mb_per_s"] for row in rows}


def row_prepare(m):
    text = m.text()
    size = text.stat().st_size
    tokenizer = m.folder / "tokenizer.json"
    m.call("assay", "tokenizer", "train", text, "--vocab-size", 8192, "-o", tokenizer)
    seconds = m.best(2, "assay", "data", "prepare", text, "--tokenizer", tokenizer, "-o", m.folder / "prepared", "--overwrite")
    return ("assay data prepare", megabytes(size), seconds, size / 1e6 / (tokenizer_rates(m)["encode"] * m.cores),
            "bench_tokenizer's encoding, times the cores")


def row_tokenizer(m):
    text = m.text()
    size = text.stat().st_size
    seconds = m.best(1, "assay", "tokenizer", "train", text, "--vocab-size", 8192, "-o", m.folder / "again.json", "--overwrite")
    return ("assay tokenizer train", f"{megabytes(size)}, 8192 entries", seconds, size / 1e6 / (tokenizer_rates(m)["pre-split"] * m.cores),
            "bench_tokenizer's pre-split, times the cores")


def row_checkpoint(m):
    config = m.folder / "large.yaml"
    config.write_text(LARGE.format(cache=m.folder / "cache"))
    run = m.folder / "large"
    m.call("assay", "train", config, "--run", run, "--fresh", "--device", "cpu", "--set", "precision.recipe=fp32")
    newest = max((run / "checkpoints").glob("step-*"))
    size = sum(f.stat().st_size for f in newest.iterdir())
    log = (run / "log.txt").read_text()
    seconds = float(log.rsplit("checkpoint ", 1)[1].split("(", 1)[1].split(" s)")[0])
    return "writing a checkpoint", megabytes(size), seconds, max(m.write_s(size), m.hash_s(size)), "the slower of writing and SHA-256"


def row_report(m):
    """Thirty runs: one run, copied; each copy counts as a run of its own."""
    first = m.folder / "runs" / "run-00"
    if not first.exists():
        m.call("assay", "train", m.small, "--run", first, "--device", "cpu")
    runs = [first]
    for number in range(1, RUNS):
        copy = first.with_name(f"run-{number:02}")
        if not copy.exists():
            shutil.copytree(first, copy)
        runs.append(copy)
    seconds = m.best(3, "assay", "report", *runs, "-o", m.folder / "page.html")
    page = (m.folder / "page.html").stat().st_size
    start = time.monotonic()
    for run in runs:
        with sqlite3.connect(f"file:{run / 'telemetry.db'}?mode=ro", uri=True) as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                db.execute(f'SELECT * FROM "{table}"').fetchall()
    return "assay report", f"{RUNS} runs, a page of {megabytes(page)}", seconds, time.monotonic() - start, "Python reads every row of their telemetry"


def row_shards(m):
    """From the command to the end of one small step, with shards that no run has seen."""
    folder = m.folder / "shards"
    if not folder.exists():
        folder.mkdir()
        header = bytearray(1024)
        for at, value in enumerate((20240520, 1, SHARD_TOKENS)):
            header[4 * at:4 * at + 4] = value.to_bytes(4, "little")
        for number in range(SHARDS):  # ids below 512, each shard another
            tokens = bytes(b for i in range(4096) for b in (((i * (number + 3)) % 512).to_bytes(2, "little")))
            repeated = (tokens * (2 * SHARD_TOKENS // len(tokens) + 1))[:2 * SHARD_TOKENS]
            (folder / f"mine_{'val' if number == 0 else 'train'}_{number:06}.bin").write_bytes(bytes(header) + repeated)
    data = ["--set", "data.synth=null", "--set", f"data.train={folder}/mine_train_*.bin", "--set", f"data.val={folder}/mine_val_*.bin",
            "--set", "run.steps=1", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=1", "--device", "cpu"]
    size = sum(f.stat().st_size for f in folder.iterdir())
    seconds = m.best(1, "assay", "train", m.small, "--run", m.folder / "many", "--fresh", *data)
    return "start of a run", f"{SHARDS} shards, {megabytes(size)}", seconds, m.hash_s(size), "SHA-256 of the shards"


PRESET = ROOT / "models/presets/cpu/moe.yaml"


def evaluated_run(m):
    """A run of PRESET, made once: two steps."""
    run = m.folder / "validated"
    if not run.exists():
        m.call("assay", "train", PRESET, "--run", run, "--fresh", "--device", "cpu", "--steps", 2, "--set", f"data.cache={m.folder / 'cache'}",
               "--set", f"eval.tokens={VAL_TOKENS}", "--set", "precision.recipe=fp32")
    return run


def forward_s(m, tokens, with_head=True):
    """Seconds of the forward products of PRESET for so many tokens, at the measured limit."""
    audit = next(iter(json.loads(m.call("assay", "audit", PRESET, "--json")[1])["models"].values()))
    flops = audit["flops_per_token"] / 3
    if not with_head:  # embedding and head: two matrices of one size
        flops -= 2 * audit["params"]["embedding_and_head"] / 2
    limit = json.loads(m.call("assay", "doctor", "--json")[1])["limits"]["matmul_fp32_gflop_per_s"]
    return tokens * flops / (limit * 1e9)


def row_validation(m):
    run = evaluated_run(m)
    seconds = m.best(2, "assay", "eval", run, "--tasks", "loss", "--device", "cpu")
    return ("assay eval --tasks loss", f"{VAL_TOKENS} tokens of {PRESET.relative_to(ROOT)}", seconds, forward_s(m, VAL_TOKENS),
            "its products at the measured limit")


def row_core(m):
    """A bundle of one task with five examples before each question, as most tasks of CORE have."""
    run, bundle = evaluated_run(m), m.folder / "bundle"
    names = ["the red ball", "a small dog", "two old friends", "the blue kite"]
    (bundle / "eval_data").mkdir(parents=True, exist_ok=True)
    (bundle / "core.yaml").write_text("icl_tasks:\n- {label: found, dataset_uri: found.jsonl, num_fewshot: [5], icl_task_type: multiple_choice}\n")
    (bundle / "eval_meta_data.csv").write_text("Eval Task,Category,Random baseline\nfound,reading,25\n")
    (bundle / "eval_data/found.jsonl").write_text("".join(json.dumps({
        "query": f"On day {i} Tim went to the park with his mom and looked under tree number {i * 7 % 90}. There he found", "choices": names,
        "gold": i % 4}) + "\n" for i in range(QUESTIONS)))
    command = ["eval", run, "--tasks", "core", "--bundle", bundle, "--device", "cpu"]
    core = json.loads(m.call("assay", *command, "--json")[1])["core"]
    return ("assay eval --tasks core", f"{core['prompts']} prompts, {core['prompt_tokens']} tokens, {core['rows_computed']} computed",
            m.best(2, "assay", *command), forward_s(m, core["rows_computed"], with_head=False), "its products at the measured limit, without the head")


ROWS = {"help": row_help, "dry-run": row_dry_run, "prepare": row_prepare, "tokenizer": row_tokenizer, "validation": row_validation,
        "core": row_core, "checkpoint": row_checkpoint, "report": row_report, "shards": row_shards}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder of the programs (default: build)")
    parser.add_argument("--only", default="", help=f"rows, comma-separated, of {', '.join(ROWS)}")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows to this file")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"unknown rows {', '.join(unknown)}")
    if not (options.build / "assay").exists():
        parser.error(f"there is no {options.build / 'assay'}; build it first, or name its folder by --build")
    if options.json:
        opened(options.json).close()
    rows = []
    print(f"{'what':<24} {'how much':<52} {'seconds':>8} {'bound':>8} {'times':>6}  the bound", flush=True)
    with tempfile.TemporaryDirectory(prefix="assay-waits-") as folder:
        machine = Machine(options.build.resolve(), pathlib.Path(folder))
        for name in names:
            try:
                what, much, seconds, bound, why = ROWS[name](machine)
                times = seconds / bound
            except Exception as error:  # whatever a program prints, the other rows are measured
                print(f"{name}: not measured: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            rows.append({"row": name, "what": what, "how_much": much, "seconds": seconds, "bound_seconds": bound, "bound": why})
            print(f"{what:<24} {much:<52} {seconds:8.3f} {bound:8.3f} {times:6.1f}  {why}", flush=True)
    if options.json:
        content = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "cores": machine.cores,
                   "version": json.loads(machine.call("assay", "doctor", "--quick", "--json")[1])["program"], "rows": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if len(rows) == len(names) else 1


sys.exit(main())
