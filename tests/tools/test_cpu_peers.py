#!/usr/bin/env python3
"""bench/peers/cpu.py and llm_c.py with scripts in the places of PyTorch, llm.c and Assay's programs: what a limit of
the instructions sets, says and refuses, and which models are compared. Needs no PyTorch."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

PEERS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"
FLAGS = pathlib.Path("/proc/cpuinfo").read_text()
VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE",
             "TORCHINDUCTOR_CPP_MARCH", "TORCHINDUCTOR_CACHE_DIR")
# PyTorch's Python: facts for the probe (-c), else the line of torch_step.py. It computes with what it is limited to,
# unless the file says otherwise.
TORCH = f"""#!{sys.executable}
import json, os, pathlib, sys
says = json.loads((pathlib.Path(__file__).parent / "torch.json").read_text())
limits = {{name: os.environ.get(name) for name in {VARIABLES}}}
if sys.argv[1] == "-c":
    isa = says["isa"] or limits["ATEN_CPU_CAPABILITY"].upper()
    print(json.dumps({{"version": "2.15.0", "has": [], "blas": "", "isa": isa}}))
else:
    threads = says["threads"] or int(sys.argv[sys.argv.index("--threads") + 1])
    print(json.dumps({{"tokens_per_s": 50, "threads": threads, "amx": says["amx"], "limits": limits,
                      "arguments": sys.argv[2:]}}))
"""
# It fails in the rounds that the file `fails` beside it names, and computes with as many threads as it is told.
BENCH = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >arguments
echo run >>runs
if grep -qx "$(wc -l <runs)" fails 2>/dev/null; then echo "error: as planned" >&2; exit 1; fi
while [ "$1" != --threads ]; do shift; done
echo '{"tokens_per_s": 100, "share_of_matmul_limit": 0.5, "parameters_total": 7000000, "threads": '$2'}'
"""
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-cpu-peers-")
work = pathlib.Path(holder.name)
environment = {**os.environ, "ASSAY_PEER_PYTHON": str(work / "python")}
for variable in VARIABLES:
    environment.pop(variable, None)


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def program(name, text):
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).write_text(text)
    (work / name).chmod(0o755)
    return str(work / name)


def torch_says(isa="", amx=False, threads=0):
    (work / "torch.json").write_text(json.dumps({"isa": isa, "amx": amx, "threads": threads}))


def compiled_for(folder, *sets):
    """A build of Assay."""
    program(f"{folder}/assay", "#!/bin/sh\necho '%s'\n" % json.dumps({"cpu": {"used": sets}}))
    return program(f"{folder}/bench_step", BENCH)


def compare(*options):
    """cpu.py on the dense model and PyTorch's plain ways: what it did, and the lines that it kept."""
    (work / "out").unlink(missing_ok=True)
    command = [sys.executable, "-B", str(PEERS / "cpu.py"), "--model", "dense", "--rounds", "1", "--only", "plain"]
    command += ["--out", str(work / "out"), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = (work / "out").read_text().splitlines() if (work / "out").exists() else []
    return done, [json.loads(line) for line in lines]


def refused(what, error, hint, *options, said_before=False):
    done, _ = compare(*options)
    expect(is_refusal(done, f"error: {error}", hint, said_before=said_before), f"{what}: {done}")


program("python", TORCH)
avx2 = compiled_for("avx2", "avx2")
wide = compiled_for("wide", "avx2", "avx512f", "avx512_bf16")
native = compiled_for("native", "avx2", "avx512f", "avx512_bf16", "amx_bf16")

# Without a limit nothing is set, whatever PyTorch uses, but where it keeps compiled code: not where other programs do.
torch_says(isa="AVX512", amx=True)
done, rows = compare("--bench", native)
expect(done.returncode == 0 and len(rows) == 5, f"no limit: {done}")
expect({row["who"] for row in rows} == {"assay", "torch 2.15.0 fp32 plain", "torch 2.15.0 bf16 plain"}, rows)
for row in rows:
    expect("isa" not in row, row)
    if row["who"] != "assay":
        *found, cache = row["limits"].values()
        expect(not any(found) and cache.endswith("native"), row)
    expect("--no-amx" not in row.get("arguments", []), row)

# Lines are added to --out, and --list, a PyTorch that is not there and a word in no name leave it as it is.
kept = (work / "out").read_text()
for what, python, options in (("--list", "python", ["--list"]), ("no PyTorch", "none", []),
                              ("--only", "python", ["--only", "nothing"])):
    command = [sys.executable, "-B", str(PEERS / "cpu.py"), "--bench", native, "--out", str(work / "out"), *options]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**environment, "ASSAY_PEER_PYTHON": str(work / python)})
    expect((work / "out").read_text() == kept, f"{what}: --out is not what it was: {done}")
refused("no such folder", f"cannot write {work}/none/out", "a folder that is there", "--bench", native, "--out",
        str(work / "none" / "out"))

# A program of Assay that fails in a round: the whole rounds before it are compared.
for fails, whole in ((1, 0), (3, 2)):
    (work / "native" / "runs").unlink()
    (work / "native" / "fails").write_text(f"{fails}\n")
    done, rows = compare("--bench", native, "--rounds", "4", "--json")
    expect(is_refusal(done, "error: a run in the rounds failed: exit code 1: ", said_before=True, printed=True),
           f"fails in round {fails}: {done}")
    ratios = [json.loads(line)["dense"]["ratios"] for line in done.stdout.splitlines()]
    expect([len(r) for r in ratios] == [whole] * (whole > 0), done)
(work / "native" / "fails").unlink()

# Both compute with as many threads as there are cores, or they are not compared.
torch_says(isa="AVX512", threads=1000)
done, rows = compare("--bench", native)
expect(done.stderr.count("left out, it computed with 1000 threads, not ") == 2, f"threads of PyTorch: {done}")
torch_says(isa="AVX512")
other = program("other/bench_step", BENCH.replace("$2", "1000"))
refused("threads of Assay", "a run in the rounds failed: it computed with 1000 threads, not ", "by hand",
        "--bench", other, said_before=True)

# Under a limit: the names, every line, the variables; the build must be for the same.
for isa, bench, other, march, variables in (
        ("avx2", avx2, wide, "haswell", ["avx2", "AVX2", "AVX2", "HASWELL"]),
        ("avx512_bf16", wide, native, "cooperlake", ["avx512", "AVX512_CORE_BF16", "AVX512_E3", "SKYLAKEX"])):
    if isa not in FLAGS:
        refused(f"{isa} here", f"--isa {isa} on a CPU without ", "a CPU that has more", "--isa", isa, "--bench", bench)
        continue
    torch_says()
    done, rows = compare("--isa", isa, "--bench", bench, "--json")
    expect(done.returncode == 0 and len(rows) == 5 and "does not tell what" not in done.stderr, f"{isa}: {done}")
    expect({row["who"] for row in rows} == {"assay", f"torch 2.15.0 fp32 plain, limited to {isa}",
                                            f"torch 2.15.0 bf16 plain, limited to {isa}"}, rows)
    arguments = (pathlib.Path(bench).parent / "arguments").read_text()
    expect(" --recipe auto " in arguments, f"{isa}: {arguments}")
    for row in rows:
        expect(row["isa"] == isa, row)
        if row["who"] != "assay":
            *found, compiled, cache = row["limits"].values()
            expect(found == variables and compiled == march and cache.endswith(march), row)
            expect("--no-amx" in row["arguments"], row)
    if done.returncode == 0:
        result = json.loads(done.stdout)
        expect(result["isa"] == isa and result["dense"]["best"].endswith(f"limited to {isa}"), result)
    refused(f"{isa} without a build", f"--isa {isa} without --bench", f"-march={march}", "--isa", isa)
    refused(f"{isa}, another build", f"{work}/", f"-march={march}", "--isa", isa, "--bench", other)
    torch_says(isa="NO AVX")
    refused(f"{isa}, another PyTorch", f"PyTorch 2.15.0 uses NO AVX in spite of --isa {isa}", "ASSAY_PEER_PYTHON",
            "--isa", isa, "--bench", bench)
    torch_says(amx=True)
    done, rows = compare("--isa", isa, "--bench", bench)
    expect(done.stderr.count(f"left out, it used the matrix unit, in spite of --isa {isa}") == 2 and
           {row["who"] for row in rows} == {"assay"}, f"{isa}, AMX: {done}")
    torch_says()
    (pathlib.Path(bench).parent / "assay").unlink()
    done, rows = compare("--isa", isa, "--bench", bench)
    expect(done.returncode == 0 and "does not tell what" in done.stderr, f"{isa}, no assay: {done}")
done = subprocess.run([sys.executable, "-B", str(PEERS / "cpu.py"), "--list", "--isa", "avx2", "--model", "moe"],
                      capture_output=True, text=True, env=environment)
expect(done.returncode == 0 and all(line.endswith(", limited to avx2") for line in done.stdout.splitlines()), done)
# bf16 has its ways under autocast and with masters, fp32 one kind of weights.
torch_says(isa="AVX512")
done = subprocess.run([sys.executable, "-B", str(PEERS / "cpu.py"), "--list"], capture_output=True, text=True,
                      env=environment)
expect([line for line in done.stdout.splitlines() if "masters" in line] == [
    "dense torch 2.15.0 bf16 masters, bmm, malloc tuned", "moe torch 2.15.0 bf16 masters, bmm, loop, malloc tuned",
    "moe torch 2.15.0 bf16 masters, bmm, sorted, malloc tuned"], done)

# llm.c: its file holds as many numbers as are counted, and Assay's head is the embedding.
program("llm.c/train_gpt2.c", "")
program("llm.c/train_gpt2.sh", f"""#!/bin/sh
wc -c <gpt2_124M.bin >{work}/size
for i in 0 1 2 3; do echo "step $i: train loss 9.0 (took 10.0 ms)"; done
""")
program("llm.c/Makefile", "train_gpt2:\n\tcp train_gpt2.sh train_gpt2\n")
command = [sys.executable, "-B", str(PEERS / "llm_c.py"), str(work / "llm.c"), "--model", "small", "--bench", native]
done = subprocess.run([*command, "--rounds", "1", "--steps", "2", "--recipe", "fp32", "--out", str(work / "rows")],
                      capture_output=True, text=True)
expect(done.returncode == 0, f"llm_c.py: {done}")
if done.returncode == 0:
    theirs, ours = map(json.loads, (work / "rows").read_text().splitlines())
    size, arguments = (work / "size").read_text(), (work / "native" / "arguments").read_text()
    expect(4 * (256 + theirs["parameters_total"]) == int(size), (theirs, size))
    expect("6.9 million parameters in llm.c, 7.0 in Assay" in done.stdout, done)
    expect(" --tie " in arguments, arguments)
for option in ("--rounds", "--steps"):
    done = subprocess.run([*command, option, "0"], capture_output=True, text=True)
    expect(done.returncode == 2 and "--rounds and --steps are at least 1" in done.stderr, done)
done = subprocess.run([*command, "--out", str(work / "none" / "rows")], capture_output=True, text=True)
expect(is_refusal(done, f"error: cannot write {work}/none/rows: "), f"llm_c.py: {done}")

# A Python without PyTorch has the help of torch_gpu.py and torch_step.py, and is told what is missing.
(work / "without").mkdir()
(work / "without" / "torch.py").write_text("raise ImportError('no PyTorch here')\n")
without = {**os.environ, "PYTHONPATH": str(work / "without")}
for name, arguments in (("torch_gpu.py", ["--device", "cpu", "--tiny"]), ("torch_step.py", [])):
    command = [sys.executable, "-B", str(PEERS / name)]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, env=without)
    expect(done.returncode == 0 and f"usage: {name}" in done.stdout and not done.stderr, f"{name} --help: {done}")
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=without)
    expect(is_refusal(done, "has no PyTorch"), f"{name} without PyTorch: {done}")

print("\n".join(failures) if failures else "cpu_peers: ok")
sys.exit(1 if failures else 0)
