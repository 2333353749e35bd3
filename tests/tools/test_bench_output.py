#!/usr/bin/env python3
"""What the benches print: one header in the JSON of all, rows with the same fields, which cases they choose, and an
error before anything is measured where none matches.

usage: test_bench_output.py ON_EXECUTOR BENCH...
ON_EXECUTOR is bench_step with the SIMT emulator in place of the GPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "run"), str(TESTS.parent / "bench")]
from cores import usable_cores
from refusals import is_refusal

ON_EXECUTOR, *BENCHES = sys.argv[1:]
PROGRAMS = {pathlib.Path(path).name: path for path in BENCHES}
HEADER = {"program", "commit", "modified", "cpu", "device"}
ROW = {"op", "case", "p50_us", "min_us", "runs", "bytes", "flops", "bound", "share"}
ONE = ("--iters", "1", "--threads", "1")
STEP = ("--steps", "1", "--warmup", "0", "--threads", "1")
TINY = (*STEP, "--layers", "1", "--hidden", "64", "--heads", "1", "--ffn", "64", "--vocab", "256", "--sequence", "16",
        "--batch", "1")
failures = []
cpus = [line.split(": ", 1)[1] for line in open("/proc/cpuinfo").read().splitlines() if line.startswith("model name")]


def expect(condition, what):
    if not condition:
        failures.append(what)


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "ASSAY_MATMUL_GFLOPS": "100"})


def values_of(name, *arguments, program=None):
    """The JSON that a bench prints, one value or one a line. The first has the header."""
    done = run(program or PROGRAMS[name], *arguments, "--json")
    what = f"{name} {' '.join(arguments)}"
    if done.returncode != 0:
        failures.append(f"{what}: exit {done.returncode}, {done.stderr}")
        return [{}]
    text = done.stdout.strip()
    values = [json.loads(text)] if '"cases": [' in text else [json.loads(line) for line in text.splitlines()]
    head = values[0]
    expect(HEADER <= head.keys() and head["program"] == name and head["commit"] and
           head["cpu"] == (cpus or ["unknown"])[0] and head["modified"] in (True, False), f"{what}: {head}")
    return values


def rows_of(name, *arguments):
    rows = values_of(name, *arguments)[0].get("cases", [])
    for row in rows:
        expect(ROW <= row.keys() and row["bound"] in ("copy", "matmul") and row["share"] > 0, f"{name}: {row}")
    return rows


def has(value, what, **wanted):
    for key, each in wanted.items():
        expect(key in value and value[key] == each, f"{what}: {key} is not {each} in {value}")


# The ops: each kind of case is timed, and only products are compared with the limit of products.
rows = rows_of("bench_ops", "--op", "muon_momentum", *ONE)
expect([(row["op"], row["runs"]) for row in rows] == [("muon_momentum", 1)], f"muon_momentum: {rows}")
for op, kinds in (("muon", ("muon_momentum", "muon_update float", "muon_update bf16")),
                  ("cast", ("cast float to bf16", "cast bf16 to float")),
                  ("checksum", ("checksum float", "checksum bf16"))):
    rows = rows_of("bench_ops", "--op", op, *ONE)
    expect(len(rows) == len(kinds) and all(any(row["case"].startswith(kind) for row in rows) for kind in kinds),
           f"{op}: {rows}")
rows = rows_of("bench_ops", "--op", "router_forward", "--all", *ONE)
expect(len(rows) > 10 and {row["bound"] for row in rows} == {"copy"}, f"router_forward: {rows}")
rows = rows_of("bench_matmul", "--filter", "linear_dgrad float", *ONE)
expect(rows and all({"gflops", "onednn_p50_us"} <= row.keys() for row in rows) and
       {row.get("op") for row in rows} == {"linear_dgrad", "grouped_linear_dgrad"}, f"bench_matmul: {rows}")

# All cores that they may use, whatever OpenMP is told.
os.environ["OMP_NUM_THREADS"] = str(usable_cores() + 1)
for name, one in (("bench_ops", ["--op", "muon_momentum"]), ("bench_quantise", ["--filter", "amax float"]),
                  ("bench_matmul", ["--filter", "linear_dgrad float"])):
    has(values_of(name, *one, "--iters", "1")[0], f"{name} without --threads", threads=usable_cores())
del os.environ["OMP_NUM_THREADS"]

# One part a line.
head, *parts = values_of("bench_tokenizer", "--mb", "0.1", "--iters", "2")
expect([(part["bench"], part.get("runs"), part.get("mb")) for part in parts] ==
       [("train 8192", 1, 0.1), ("pre-split", 2, 0.1), ("encode", 2, 0.1), ("decode", 2, 0.1)], f"tokenizer: {parts}")
text = run(PROGRAMS["bench_tokenizer"], "--mb", "0.1", "--iters", "2").stdout.splitlines()
expect(len(text) == 5 and "one run" in text[0] and "min" in text[1], f"bench_tokenizer: {text}")
if "bench_comm" in PROGRAMS:
    head, *rows = values_of("bench_comm", "--to", "4096", "--iters", "2")
    expect(len(rows) == 8 and all(row.get("runs") == 2 and row["wrong"] == 0 for row in rows), f"bench_comm: {rows}")

# Steps: their shapes, and what the share is of.
telemetry, = values_of("bench_telemetry", *STEP, "--layers", "1", "--hidden", "64", "--heads", "2", "--vocab", "64",
                       "--sequence", "16", "--batch", "1", "--experts", "8", "--top-k", "2", "--expert-ffn", "8",
                       "--logged", "10", "--load-tokens", "64", "--recipe", "fp32")
has(telemetry, "bench_telemetry", threads=1, experts=8, recipe="fp32", logged=10, steps=1)
# Shapes that do not fit are refused, and leave no folder; so do loads that are no counts.
SMALL = ("--layers", "1", "--hidden", "64", "--vocab", "64", "--sequence", "16", "--batch", "1", "--expert-ffn", "8",
         "--recipe", "fp32")
with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
    for options, error in ((("--experts", "4"), "model.moe.top_k = 7 is more than model.moe.experts = 4"),
                           (("--hidden", "63", "--heads", "2"), "model.heads = 2 does not divide model.hidden = 63"),
                           (("--window", "1000000000"), "telemetry.window = 1000000000 is out of range"),
                           (("--experts", "8", "--load-tokens", "99999999999"), "more assignments than an expert's")):
        done = subprocess.run([PROGRAMS["bench_telemetry"], *STEP, *SMALL, *options], capture_output=True, text=True,
                              env={**os.environ, "TMPDIR": folder})
        expect(is_refusal(done, error), f"bench_telemetry {options}: {done}")
        expect(not os.listdir(folder), f"bench_telemetry {options}: left {os.listdir(folder)}")
done = run(PROGRAMS["bench_telemetry"], *STEP, *SMALL, "--experts", "8", "--logged", "5")
expect(done.stdout.count("telemetry.db of 1000 logged steps (extrapolated from 5), ") == 4, f"--logged 5: {done}")
step, = values_of("bench_step", *TINY)
has(step, "bench_step", layers=1, hidden=64, vocab=256, experts=0, sequence=16, micro_batch=1, steps=1, micro_batches=1,
    threads=1, device="cpu", matmul_limit_from="ASSAY_MATMUL_GFLOPS", matmul_limit_gflop_per_s=100)
expect(abs(step["share_of_matmul_limit"] - step["gflop_per_s"] / 100) < 1e-9, f"bench_step: {step}")
done = run(PROGRAMS["bench_step"], *TINY)
expect("of 100 GFLOP/s matmul limit, given by ASSAY_MATMUL_GFLOPS" in done.stdout, f"a given limit: {done}")
tied, = values_of("bench_step", *TINY, "--tie")
has(tied, "--tie", parameters_total=step["parameters_total"] - 256 * 64)
on_gpu, = values_of("bench_step", *TINY, "--device", "cuda", program=ON_EXECUTOR)
has(on_gpu, "a GPU", device="cuda: executor on the CPU", matmul_limit_from="datasheet, bf16",
    matmul_limit_gflop_per_s=None, share_of_matmul_limit=None)
text = run(ON_EXECUTOR, *TINY, "--device", "cuda").stdout
expect("no datasheet's peak of this GPU is known" in text and "matmul limit" not in text, f"a GPU: {text}")
# As many micro-batches as the configuration has.
with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
    config = pathlib.Path(folder) / "config.yaml"
    config.write_text("model: {layers: 1, hidden: 64, heads: 1, ffn: 64, vocab_size: 256}\n"
                      "run: {sequence: 16, micro_batch: 2, batch_tokens: 128}\n")
    for options, micros, tokens in (((), 4, 128), (("--micro-batches", "1"), 1, 32), (("--batch", "8"), 1, 128)):
        step, = values_of("bench_step", "--config", str(config), *STEP, *options)
        has(step, f"--config {options}", micro_batches=micros, tokens=tokens)
    # The recipe of the option, also "auto", else of the configuration.
    auto = step["recipe"]
    other = "fp32" if auto == "bf16" else "bf16"
    config.write_text(config.read_text() + f"precision: {{recipe: {other}}}\n")
    for options, recipe in (((), other), (("--recipe", auto), auto), (("--recipe", "auto"), auto)):
        step, = values_of("bench_step", "--config", str(config), *STEP, *options)
        has(step, f"a recipe in the configuration, {options}", recipe=recipe)

# Nothing matches: said at once, and nothing is measured.
REFUSED = [
    ("bench_ops", ["--op", "rmsnrm"], "no case of the CPU with a cost matches --op rmsnrm",
     "did you mean --op rmsnorm?"),
    ("bench_ops", ["--op", "cast", "--filter", "nothing"], "matches --op cast --filter nothing", "`bench_ops --all`"),
    ("bench_ops", ["--all", "--filter", "complex step"], "matches --filter complex step", "ops/ops.cmake"),
    ("bench_matmul", ["--filter", "nothing"], "no large product matches --filter nothing", "--filter"),
    ("bench_quantise", ["--filter", "nothing"], "no timed case matches --filter nothing", "--filter"),
    ("bench_comm", ["--from", "1", "--to", "4"], "no size from --from 1 to --to 4 has 8 bytes for each of 1 rank",
     "--from 8"),
    ("bench_device", ["--op", "swiglu rmsnrm"], "there is no op rmsnrm", "did you mean --op rmsnorm? ops/ops.cmake"),
    ("bench_device", ["--all", "--op", "nothing"], "there is no op nothing", "ops/ops.cmake"),
    ("bench_device", ["--op", "swiglu rmsnorm", "--filter", "nothing"],
     "no large case matches --op swiglu rmsnorm --filter nothing", "--all takes the small cases too"),
    ("bench_ops", ["--op", "rope", "--op", "cast"], "bench_ops: --op: given twice, as rope and as cast", "`bench_ops --help`"),
    ("bench_device", ["--op", "rope", "--op", "cast"], "--op: given twice, as rope and as cast", "--help"),
]
for name, arguments, error, hint in REFUSED:
    if name not in PROGRAMS:
        continue
    done = run(PROGRAMS[name], *arguments, "--json")
    expect(is_refusal(done, error, hint),
           f"{name} {arguments}: exit {done.returncode}, {done.stdout}{done.stderr}")

print("\n".join(failures) if failures else f"bench output: ok ({len(BENCHES)} programs)")
sys.exit(1 if failures else 0)
