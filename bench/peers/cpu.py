#!/usr/bin/env python3
"""Training steps of Assay and of PyTorch on this machine's CPU, in turn, and who is faster by how much.

First each way in which PyTorch's users write such a step is tried once: every PyTorch that is installed, fp32, bf16
under autocast, bf16 with masters in fp32, malloc as it comes and tuned, scaled_dot_product_attention or bmm,
torch.compile in two modes, fused AdamW, experts one by one, sorted or grouped. Then the fastest ones of each model
run in rounds with build/bench_step, so that other work on the machine falls on all alike. The ratios are medians over
the rounds, each against PyTorch's best way. Eight ways of a dense model took four minutes on two cores with AVX2;
--only leaves ways out.

--isa compares as on a CPU with fewer instructions. It limits PyTorch; --bench names a program of Assay that was compiled
for the same, with the program assay of that build beside it, which tells so:

  avx2         -DASSAY_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=haswell
  avx512_bf16  -DASSAY_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=cooperlake; no matrix unit (AMX)"""
import argparse
import collections
import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from cores import usable_cores
from in_turn import opened

SCRIPT = ROOT / "bench" / "peers" / "torch_step.py"
NEWEST = ROOT / ".venv-peers" / "bin" / "python"
DEBIAN = pathlib.Path("/usr/bin/python3")
# Blocks that are freed stay in the process. Otherwise each step asks the system for its large tensors again.
TUNED = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}
TRIAL_LIMIT_S, COMPILE_LIMIT_S, RUN_LIMIT_S = 60, 400, 90
PROBE = """
import json, re, torch
has = {"compile": hasattr(torch, "compile"), "grouped": hasattr(torch, "_grouped_mm"),
       "sdpa": hasattr(torch.nn.functional, "scaled_dot_product_attention")}
blas = sorted({line.split()[-1] for line in open("/proc/self/maps") if "/libblas.so" in line})
isa = re.findall("CPU capability usage: (.*)", torch.__config__.show())
print(json.dumps({"version": torch.__version__.split("+")[0], "has": [k for k in has if has[k]], "blas": " ".join(blas),
                  "isa": " ".join(isa)}))
"""
HOPELESS = 4  # so many times slower than the fastest way so far is not tried in other ways


@dataclasses.dataclass(frozen=True)
class Limit:
    """A lesser CPU. PyTorch's own code, oneDNN, MKL and OpenBLAS each have a variable for it, and torch.compile two."""

    march: str  # what Assay and the code of torch.compile are compiled for
    sets: tuple  # as `assay doctor` names them
    aten: str
    onednn: str
    mkl: str
    openblas: str

    def environment(self):
        return {"ATEN_CPU_CAPABILITY": self.aten, "ONEDNN_MAX_CPU_ISA": self.onednn, "MKL_ENABLE_INSTRUCTIONS": self.mkl,
                "OPENBLAS_CORETYPE": self.openblas, "TORCHINDUCTOR_CPP_MARCH": self.march}


LIMITS = {
    "avx2": Limit(march="haswell", sets=("avx2",), aten="avx2", onednn="AVX2", mkl="AVX2",
                  openblas="HASWELL"),
    "avx512_bf16": Limit(march="cooperlake", sets=("avx2", "avx512f", "avx512_bf16"), aten="avx512",
                         onednn="AVX512_CORE_BF16", mkl="AVX512_E3", openblas="SKYLAKEX"),
}


def compile_cache(isa):
    """Where torch.compile keeps code: by what it computes, whatever it is compiled for. Code of another limit would be slower
    or corrupt memory, so each limit has a folder, and none is the one of other programs."""
    return str(pathlib.Path(tempfile.gettempdir()) / f"assay-peers-{os.getuid()}-{LIMITS[isa].march if isa else 'native'}")


@dataclasses.dataclass(frozen=True)
class Torch:
    python: pathlib.Path
    version: str
    has: frozenset  # of "compile", "sdpa", "grouped"
    blas: str  # the libblas that it multiplies with; "": one of its own
    isa: str = ""  # the instructions of its own code, in its words


@dataclasses.dataclass(frozen=True)
class Way:
    torch: Torch
    recipe: str
    options: tuple = ()  # of torch_step.py: (("attention", "sdpa"), ...)
    tuned: bool = False
    spin: bool = False  # OpenMP threads that wait never sleep
    isa: str = ""  # of LIMITS; "": none

    @property
    def name(self):
        words = [value if key != "compile" else f"compile {value}" for key, value in self.options]
        words += ["malloc tuned"] * self.tuned + ["spinning"] * self.spin
        limit = f", limited to {self.isa}" if self.isa else ""
        return f"torch {self.torch.version} {self.recipe} {', '.join(words) or 'plain'}{limit}"

    @property
    def plain(self):
        return not self.options and not self.tuned and not self.spin

    @property
    def compiled(self):
        return dict(self.options).get("compile", "no") != "no"

    def run(self, model, steps, limit_s):
        """The line that torch_step.py prints. Throws Failed."""
        # Without a policy its threads spin for some milliseconds before they sleep; asleep at once, it is up to 10% slower.
        environment = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        if self.spin:
            environment["OMP_WAIT_POLICY"] = "ACTIVE"
        # Debian's OpenBLAS does not know every CPU with AVX-512 and is slow on the others without this.
        if has("avx512f") and self.torch.version.startswith("1."):
            environment["OPENBLAS_CORETYPE"] = "SKYLAKEX"
        environment["OPENBLAS_NUM_THREADS"] = str(usable_cores())  # its own count leaves out a cgroup's quota
        if self.tuned:
            environment.update(TUNED)
        environment["TORCHINDUCTOR_CACHE_DIR"] = compile_cache(self.isa)
        if self.isa:
            environment.update(LIMITS[self.isa].environment())
        command = [str(self.torch.python), str(SCRIPT), "--model", model, "--dtype", self.recipe, "--steps", str(steps),
                   "--warmup", "4" if self.compiled else "2", "--threads", str(usable_cores())]
        for key, value in self.options:
            command += [f"--{key}", value]
        row = last_json(command + ["--no-amx"] * bool(self.isa), limit_s, environment)
        if self.isa and row["amx"]:
            raise Failed(f"it used the matrix unit, in spite of --isa {self.isa}")
        return with_all_threads(row)


class Failed(Exception):
    pass


def with_all_threads(row):
    """A line of Assay or PyTorch: both compute with as many threads as there are cores to use. Throws Failed."""
    if row["threads"] != usable_cores():
        raise Failed(f"it computed with {row['threads']} threads, not {usable_cores()}")
    return row


def has(instructions):
    return instructions in pathlib.Path("/proc/cpuinfo").read_text()


def last_json(command, limit_s, environment=None):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit_s,
                              env=environment)
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {limit_s} s")
    except OSError as error:
        raise Failed(str(error))
    lines = done.stdout.strip().splitlines()
    try:
        if done.returncode == 0:
            return json.loads(lines[-1])
    except (IndexError, ValueError):
        pass
    said = done.stderr.strip().splitlines()
    raise Failed(f"exit code {done.returncode}: {said[-1] if said else 'it printed nothing'}")


def installed(isa):
    """The PyTorchs of this machine, under the limit; ASSAY_PEER_PYTHON names the only one to use."""
    named = os.environ.get("ASSAY_PEER_PYTHON")
    environment = {**os.environ, **(LIMITS[isa].environment() if isa else {})}
    found = []
    for python in [pathlib.Path(named)] if named else [NEWEST, DEBIAN]:
        try:
            facts = last_json([str(python), "-c", PROBE], TRIAL_LIMIT_S, environment)
        except Failed:
            continue
        found.append(Torch(python, facts["version"], frozenset(facts["has"]), facts["blas"], facts["isa"]))
    return found


def require_build(isa, bench, log):
    """Refuses a limit that this CPU does not reach, and a program of Assay that was compiled for something else."""
    limit, build = LIMITS[isa], f"build-{isa}"
    hint = (f"hint: cmake --preset release -B {build} -DASSAY_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march={limit.march} && "
            f"cmake --build {build} --target bench_step assay; then --bench {build}/bench_step")
    if missing := [name for name in limit.sets if not has(name)]:
        sys.exit(f"error: --isa {isa} on a CPU without {', '.join(missing)}\nhint: it limits a CPU that has more")
    if bench is None:
        sys.exit(f"error: --isa {isa} without --bench, a bench_step that was compiled for {isa}\n{hint}")
    assay = bench.parent / "assay"
    try:
        done = subprocess.run([str(assay), "doctor", "--quick", "--json"], stdout=subprocess.PIPE, text=True)
        sets = json.loads(done.stdout)["cpu"]["used"]
    except (OSError, ValueError, KeyError) as error:
        log.say(f"warning: {assay} does not tell what {bench} was compiled for ({error})")
        return
    if sets != list(limit.sets):
        sys.exit(f"error: {assay} uses {', '.join(sets) or 'no instruction set'}, not {', '.join(limit.sets)}\n{hint}")


def require_limit(isa, torch):
    """Refuses a PyTorch that goes beyond the limit."""
    if torch.isa.lower() != LIMITS[isa].aten:
        sys.exit(f"error: PyTorch {torch.version} uses {torch.isa or 'what it does not name'} in spite of --isa {isa}\n"
                 "hint: ASSAY_PEER_PYTHON names another one")


def ways_of(torch, model, isa=""):
    """What users of this PyTorch write, in the order in which they would try it."""
    attention = ("bmm", "sdpa") if "sdpa" in torch.has else ("bmm",)
    experts = ("loop", "sorted") if model == "moe" else ("",)
    new = "compile" in torch.has
    fused = (("optimizer", "fused"),) if new else ()
    ways = []
    for recipe in ("fp32", "bf16"):
        ways += [Way(torch, recipe), Way(torch, recipe, spin=True), Way(torch, recipe, tuned=True)]
        kinds = experts + (("grouped",) if model == "moe" and recipe == "bf16" and "grouped" in torch.has else ())
        for weights in ((), (("weights", "masters"),)) if recipe == "bf16" else ((),):
            for kind in kinds:
                chosen = ((("experts", kind),) if kind else ()) + fused
                ways += [Way(torch, recipe, weights + (("attention", a),) + chosen, tuned=True) for a in attention]
                if new:
                    compiled = weights + (("compile", "default"),)
                    ways += [Way(torch, recipe, compiled + (("attention", a),) + chosen, tuned=True) for a in attention]
            if new:
                kind = (("experts", "sorted"),) if model == "moe" else ()
                tuning = weights + (("compile", "max-autotune"), ("attention", "bmm"))
                ways.append(Way(torch, recipe, tuning + kind + fused, tuned=True))
    return [dataclasses.replace(way, isa=isa) for way in ways]


class Log:
    """Every measurement: a line of JSON in --out, and a line of text on stderr."""

    def __init__(self, isa):
        self.isa, self.file = isa, None

    def keep(self, who, phase, model, row):
        said = dict(who=who, phase=phase, model=model, **({"isa": self.isa} if self.isa else {}))
        row = {**said, **{k: v for k, v in row.items() if k not in said}}
        if self.file:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()

    def say(self, text):
        print(text, file=sys.stderr, flush=True)


def trials(models, torches, a, log):
    """{model: its ways, fastest first}, each tried once."""
    plan = [(model, way) for model in models for torch in torches for way in ways_of(torch, model, a.isa)
            if all(word in way.name for word in a.only)]
    if not plan:
        sys.exit(f"error: no way has {' and '.join(a.only)} in its name\nhint: --list shows them")
    speed, hopeless = collections.defaultdict(list), set()
    began = time.monotonic()
    for i, (model, way) in enumerate(plan):
        left = (time.monotonic() - began) / max(i, 1) * (len(plan) - i)
        head = f"trial {i + 1}/{len(plan)}" + (f", {left / 60:.0f} min left" if i else "")
        kind = model, way.torch, way.recipe
        if kind in hopeless:
            continue
        try:
            row = way.run(model, 3, COMPILE_LIMIT_S if way.compiled else TRIAL_LIMIT_S)
        except Failed as error:
            log.say(f"{head}: {model} {way.name}: left out, {error}")
            if way.plain:
                hopeless.add(kind)
            continue
        # Without instructions for bf16 PyTorch computes it many times slower than fp32, in every way.
        if way.plain and speed[model] and HOPELESS * row["tokens_per_s"] < max(speed[model])[0]:
            log.say(f"{model}: {way.recipe} in other ways of PyTorch {way.torch.version} is left out: this one is too slow")
            hopeless.add(kind)
        log.keep(way.name, "trial", model, row)
        log.say(f"{head}: {model} {way.name}: {row['tokens_per_s']:.0f} tokens/s")
        speed[model].append((row["tokens_per_s"], i, way))
    return {model: [way for _, _, way in sorted(rows, reverse=True, key=lambda r: r[0])] for model, rows in speed.items()}


def one_round(model, ways, a, log):
    """{who: its line} of Assay and of each way. Throws Failed."""
    command = [str(a.bench), "--json", "--model", model, "--recipe", a.recipe, "--steps", str(a.steps), "--threads",
               str(usable_cores())]
    found = {"assay": with_all_threads(last_json(command, RUN_LIMIT_S))}
    log.keep("assay", "round", model, found["assay"])
    for way in ways:
        found[way.name] = way.run(model, a.steps, COMPILE_LIMIT_S if way.compiled else RUN_LIMIT_S)
        log.keep(way.name, "round", model, found[way.name])
    return found


def rounds(models, ways, a, log):
    """{(model, who): tokens/s of each whole round}, the share of the measured limit of Assay's runs, and what ended the
    rounds early, or None."""
    speeds, shares = collections.defaultdict(list), collections.defaultdict(list)
    for i in range(a.rounds):
        for model in models:
            log.say(f"round {i + 1}/{a.rounds}: {model}")
            try:
                found = one_round(model, ways.get(model, [])[:a.keep], a, log)
            except Failed as error:
                return speeds, shares, error
            for who, row in found.items():
                speeds[model, who].append(row["tokens_per_s"])
            shares[model].append(found["assay"]["share_of_matmul_limit"])
    return speeds, shares, None


def spread(values, form):
    return f"{form} ({form} - {form})" % (statistics.median(values), min(values), max(values))


def summary(models, speeds, shares):
    """The figures of the last lines: per model the best way and the ratio to it."""
    result = {}
    for model in models:
        ours = speeds[model, "assay"]
        theirs = {who: v for (m, who), v in speeds.items() if m == model and who != "assay"}
        best = max(theirs, key=lambda who: statistics.median(theirs[who])) if theirs else None
        result[model] = {"tokens_per_s": statistics.median(ours), "share_of_matmul_limit": statistics.median(shares[model]),
                         "best": best}
        if best:
            result[model]["best_tokens_per_s"] = statistics.median(theirs[best])
            result[model]["ratios"] = [x / y for x, y in zip(ours, theirs[best])]
    if "dense" in models and "moe" in models:
        result["sparse_step"] = [d / m for d, m in zip(speeds["dense", "assay"], speeds["moe", "assay"])]
    return result


def report(models, speeds, result):
    print("tokens/s, median (lowest - highest) of the rounds")
    for (model, who), v in sorted(speeds.items(), key=lambda item: (item[0][0], -statistics.median(item[1]))):
        print(f"{model:6s} {spread(v, '%.0f'):>30s}  {who}")
    for model in models:
        r = result[model]
        share = f"{100 * r['share_of_matmul_limit']:.1f}% of the measured limit of products"
        if not r["best"]:
            print(f"{model}: Assay {r['tokens_per_s']:.0f} tokens/s, {share}; no PyTorch to compare with")
            continue
        print(f"{model}: Assay is {spread(r['ratios'], '%.2f')} times as fast as PyTorch's best way, {r['best']}; {share}")
    if "sparse_step" in result:
        print(f"a step of the mixture takes {spread(result['sparse_step'], '%.3f')} of a dense one")


def print_rounds(models, speeds, shares, a):
    """The figures of the models with a whole round, if there are any."""
    if not models:
        return
    result = summary(models, speeds, shares)
    if a.isa:
        result["isa"] = a.isa
    result["date"] = datetime.date.today().isoformat()
    if a.json:
        print(json.dumps(result))
    else:
        report(models, speeds, result)


def arguments():
    p = argparse.ArgumentParser(prog="bench/peers/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="bash tools/setup.sh --peers installs Debian's PyTorch and, in .venv-peers, the newest one; "
                                       "ASSAY_PEER_PYTHON names another, which is then the only one.")
    p.add_argument("--rounds", type=int, default=5, help="how often each is measured, in turn (default: 5)")
    p.add_argument("--steps", type=int, default=8, help="measured steps each time (default: 8)")
    p.add_argument("--model", default="dense,moe", help="dense, moe or dense,moe (the default)")
    p.add_argument("--keep", type=int, default=2, help="how many of PyTorch's ways take part in the rounds (default: 2)")
    p.add_argument("--only", action="append", default=[], metavar="WORD", help="only ways with this word in their name; can repeat")
    p.add_argument("--recipe", default="auto", help="Assay's recipe (default: auto, what the build takes on this CPU)")
    p.add_argument("--bench", type=pathlib.Path, help="Assay's program (default: build/bench_step)")
    p.add_argument("--isa", choices=LIMITS, default="", help="limit PyTorch to these instructions; --bench is then a "
                                                             "program that was compiled for them")
    p.add_argument("--out", type=pathlib.Path, help="add every measurement to this file, a line of JSON each")
    p.add_argument("--json", action="store_true", help="print the figures as one JSON object instead of text")
    p.add_argument("--list", action="store_true", help="only list PyTorch's ways")
    a = p.parse_args()
    a.models = a.model.split(",")
    if not set(a.models) <= {"dense", "moe"}:
        p.error(f"--model {a.model}: it is dense, moe or dense,moe")
    if min(a.rounds, a.steps, a.keep) < 1:
        p.error("--rounds, --steps and --keep are at least 1")
    return a


def main():
    a = arguments()
    log = Log(a.isa)
    if a.isa and not a.list:
        require_build(a.isa, a.bench, log)
    torches = installed(a.isa)
    if not torches:
        sys.exit("error: no PyTorch is installed\nhint: bash tools/setup.sh --peers, or ASSAY_PEER_PYTHON=/path/to/python")
    if a.list:
        for model in a.models:
            for torch in torches:
                print(*(f"{model} {way.name}" for way in ways_of(torch, model, a.isa)), sep="\n")
        return
    a.bench = a.bench or ROOT / "build" / "bench_step"
    if not a.bench.is_file():
        sys.exit(f"error: {a.bench} is not there\nhint: cmake --preset release && cmake --build build --target bench_step")
    for torch in torches:
        if a.isa:
            require_limit(a.isa, torch)
        if torch.blas and "openblas" not in torch.blas:
            sys.exit(f"error: PyTorch {torch.version} multiplies with {torch.blas}, which is not OpenBLAS: not a fair peer\n"
                     "hint: bash tools/setup.sh --peers installs libopenblas0-pthread")
    log.file = opened(a.out) if a.out else None
    if os.getloadavg()[0] > 0.5:
        log.say(f"warning: the load is {os.getloadavg()[0]:.1f}: the machine is busy, so the figures mean little")
    ways = trials(a.models, torches, a, log)
    speeds, shares, failed = rounds(a.models, ways, a, log)
    print_rounds([model for model in a.models if model in shares], speeds, shares, a)
    if failed:
        sys.exit(f"error: a run in the rounds failed: {failed}\n"
                 "hint: run it again on a quiet machine, or that program by hand")


if __name__ == "__main__":
    main()
