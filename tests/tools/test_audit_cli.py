#!/usr/bin/env python3
"""assay audit and assay match as a user calls them, and every preset.

Usage: test_audit_cli.py ASSAY"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ASSAY = str(pathlib.Path(sys.argv[1]).resolve())
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRESETS = ROOT / "models" / "presets"
failures = []


def assay(*arguments):
    return subprocess.run([ASSAY, *map(str, arguments)], capture_output=True, text=True)


def expect(condition, what):
    if not condition:
        failures.append(what)


def audit_json(*arguments):
    done = assay("audit", *arguments, "--json")
    expect(done.returncode == 0 and done.stderr == "", f"audit {arguments}: {done.returncode} {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else {"models": {}}


def includes(actual, expected, path=""):
    """Expects every member of `expected` in `actual` with exactly the same value."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            expect(isinstance(actual, dict) and key in actual, f"{path}.{key} is absent")
            if isinstance(actual, dict) and key in actual:
                includes(actual[key], value, f"{path}.{key}")
    else:
        expect(actual == expected, f"{path}: {actual}, expected {expected}")


speedrun = sorted((PRESETS / "speedrun").glob("*.yaml"))
plain = audit_json(*speedrun)
includes(plain, {
    "models": {
        "dense": {"params": {"total": 190532352, "active": 190532352}, "activeDN_steps": 9536,
                  "totalDN": {"full_steps": 9536, "20pct_steps": 1908}, "flops_per_token": 1024524288},
        "moe-64": {"params": {"total": 755534592, "active": 191073024}, "activeDN_steps": 9563,
                   "totalDN": {"full_steps": 37813, "20pct_steps": 7563}, "flops_per_token": 1027768320},
        "moe-256": {"params": {"total": 2836482816, "active": 192891648}, "activeDN_steps": 9654,
                    "totalDN": {"full_steps": 141963, "20pct_steps": 28393}, "flops_per_token": 1038680064},
    },
    "gamma_tokens_per_parameter": 26.24021755633395,
})
numbers_file = ROOT.parent / "shared" / "design" / "NUMBERS.json"
if numbers_file.exists():
    numbers = json.loads(numbers_file.read_text())
    full = audit_json(*speedrun, "--steps", "9536,12000")
    includes(full["models"], numbers["models"])
    anchor = numbers["slice_d10_d12"]
    slice_ = audit_json(PRESETS / "speedrun/moe-256.yaml", "--contract", "totalDN", "--coefficient", anchor["alpha"],
                        "--fraction", "0.02,0.05,0.1,0.2", "--without-shared")["models"]["moe-256"]["totalDN"]
    expect(slice_["parameters"] == anchor["d12"]["total"], f"slice: {slice_}")
    expect([slice_[f"{p}pct_steps"] for p in (2, 5, 10, 20)] == anchor["d12"]["checkpoints_2_5_10_20pct"]
           and slice_["full_steps"] == anchor["d12"]["steps"], f"slice: {slice_}")

# Every preset can be audited and has the properties that its comments state.
every = [p for p in sorted(PRESETS.rglob("*.yaml")) if p.parent.name not in ("matrix", "posts") and not p.name.startswith("matrix")]
for preset in every:
    audit_json(preset)
for folder, multiple in (("tiny", 64), ("cpu", 128)):
    models = audit_json(*sorted((PRESETS / folder).glob("*.yaml")))["models"]
    moe = models["moe"]["params"]
    expect(moe["total"] < 25e6, f"{folder}: {moe['total']} parameters")
    for kind in ("active", "total"):
        twin = json.loads(assay("match", "--like", PRESETS / folder / "moe.yaml", "--contract", kind, "--multiple",
                                128, "--json").stdout)["match"][kind]["rounded"]
        dense = models[f"dense-{kind}"]
        expect(dense["ffn_active_width"] == twin["ffn"] and dense["params"]["total"] == twin["parameters"],
               f"{folder}/dense-{kind} is not the twin of {folder}/moe: {twin}")
        expect(dense["ffn_active_width"] % multiple == 0, f"{folder}/dense-{kind}: ffn {dense['ffn_active_width']}")
    expect(len({m["run"]["tokens"] for m in models.values()}) == 1, f"{folder}: unequal tokens")

# The super models: the counts that the published study gives, and the variants for one GPU.
super_ = audit_json(*(PRESETS / "super" / f"{e}.yaml" for e in (1024, 2048, 4096)), "--steps", "12000")["models"]
for experts, total in ((1024, 10997287680), (2048, 21878360832), (4096, 43640507136)):
    model = super_[str(experts)]
    expect(model["params"]["total"] == total, f"super/{experts}: {model['params']}")
    expect(model["run"]["tokens"] == 12000 * 524288, f"super/{experts}: {model['run']}")
expect(super_["4096"]["tokens_per_routed_expert"]["12000_steps"] == 10752000, "super/4096: tokens per expert")
one_gpu = audit_json(*sorted(p for p in (PRESETS / "super" / "one-gpu").glob("*.yaml")
                             if not p.name.startswith("matrix")))["models"]
expect(one_gpu["baseline"]["params"]["total"] == 3768109824, f"super/one-gpu: {one_gpu['baseline']['params']}")
for folder in ("one-gpu", "cpu"):
    family = audit_json(*sorted(p for p in (PRESETS / "super" / folder).glob("*.yaml")
                                if not p.name.startswith("matrix")))["models"]
    for name, model in family.items():
        experts = int(name[1:]) if name.startswith("e") else 4096
        expect(model["config"]["experts"] == experts and model["config"]["top_k"] == 7, f"{folder}/{name}")
        expect(model["run"]["tokens"] == family["baseline"]["run"]["tokens"], f"{folder}/{name}: different number of tokens")
# The memory that the comments of presets for eight GPUs state is what is planned for the fullest of them.
for preset in sorted((PRESETS / "super" / "8-gpu").glob("*.yaml")):
    stated = re.search(r"is ([0-9.]+) GiB a GPU, of about ([0-9]+)\.", preset.read_text())
    done = assay("train", preset, "--plan", "--json", "--ranks", 8, "--device", "cuda")
    planned = json.loads(done.stdout)["total_bytes"] / 2**30 if done.returncode == 0 else 0
    expect(stated and stated[1] == f"{planned:.1f}" and planned + 10 < float(stated[2]), f"{preset}: {planned} GiB {done.stderr}")

# All contracts side by side, with the first model as the reference; the eight-expert variants keep
# the active width.
family = audit_json(*speedrun)["family"]
includes(family, {
    "reference": "dense",
    "contracts": {
        "activeDN": {"models": {"moe-64": {"steps": 9563}, "moe-256": {"steps": 9654}}},
        "totalDN": {"coefficient": 26.24021755633395,
                    "models": {"moe-64": {"steps": 37813}, "moe-256": {"steps": 141963}}},
        "active-width": {"models": {"moe-256": {"steps": 9536}}},
        "flops": {"models": {"dense": {"steps": 9536}, "moe-256": {"steps": 9406}}},
    }})
expect({"dense_layers", "router_share"} <= {c["name"] for c in family["confounds"]}, f"confounds: {family}")
for folder in ("tiny", "cpu"):
    pair = audit_json(PRESETS / folder / "moe.yaml", PRESETS / folder / "moe-8.yaml")
    four, eight = pair["models"]["moe"], pair["models"]["moe-8"]
    expect(eight["config"]["experts"] == 8 and eight["config"]["top_k"] == 2, f"{folder}/moe-8: {eight['config']}")
    expect(four["ffn_active_width"] == eight["ffn_active_width"], f"{folder}/moe-8: different active width")
    expect(eight["params"]["routed_experts"] == 2 * four["params"]["routed_experts"], f"{folder}/moe-8: experts")
    expect(eight["params"]["active"] - four["params"]["active"] == four["params"]["router"], f"{folder}/moe-8: active")
    expect(not {"optimizer", "data", "tokenizer", "batch", "active_width"}
           & {c["name"] for c in pair["family"]["confounds"]}, f"{folder}/moe-8: {pair['family']['confounds']}")
tiny_eight = audit_json(PRESETS / "tiny/moe-8.yaml")["models"]["moe-8"]["params"]
expect((tiny_eight["active"], tiny_eight["total"]) == (13788480, 37381440), f"tiny/moe-8: {tiny_eight}")
seconds = audit_json(PRESETS / "cpu/moe.yaml", "--set", "contract.kind=seconds", "--set", "contract.coefficient=60")
expect(seconds["models"]["moe"]["run"]["steps"] is None, "the steps of a contract in seconds are unknown before a run")
per_step = [key for key in seconds["models"]["moe"] if key.startswith("tokens_per")]
expect(not per_step, f"figures of steps that are unknown: {per_step}")
asked = audit_json(PRESETS / "cpu/moe.yaml", "--set", "contract.kind=seconds", "--set", "contract.coefficient=60",
                   "--steps", "10")["models"]["moe"]
expect(asked["tokens_per_routed_expert"] == {"10_steps": 10 * 4096 * 2 // 4}, f"steps that are asked for: {asked}")

table = assay("audit", "--set", "optimizer.lr=1e-4", *speedrun)
expect(table.returncode == 0 and "2,836,482,816" in table.stdout and table.stderr == "", f"table: {table}")
big = assay("audit", PRESETS / "speedrun/moe-256.yaml", "--set", "model.moe.experts=65536", "--set",
            "model.layers=1000", "--json")
expect(json.loads(big.stdout)["models"]["moe-256"]["params"]["router"] == 1000 * 65536 * 768, "big model")
same = audit_json(PRESETS / "tiny/moe.yaml", PRESETS / "cpu/moe.yaml")
expect(len(same["models"]) == 2, "two files of one name are two models")

# Families by construction: what must stay stays, by hand; what is written is what was printed.
mixture = PRESETS / "cpu/moe.yaml"  # E = 4, K = 2, F = 128, C = 128, four blocks


def ladder(*arguments):
    done = assay("match", "--like", mixture, *arguments, "--json")
    expect(done.returncode == 0, f"match {arguments}: {done}")
    return {rung["name"]: rung for rung in json.loads(done.stdout)["rungs"]}


# The lines for a matrix file, as they are printed.
twins = assay("match", "--like", mixture).stdout
of_matrix = [line for line in twins.splitlines() if line.startswith("  dense-")]
expect([line.split("set: ")[1] for line in of_matrix]
       == ["{model.moe: null, model.ffn: 257}}", "{model.moe: null, model.ffn: 513}}"], twins)
twin_file = pathlib.Path(tempfile.mkdtemp()) / "twins.yaml"
twin_file.write_text("models:\n" + "\n".join(of_matrix) + "\ncontracts: [{kind: steps}]\n")
twin_plan = assay("matrix", twin_file, "--dry-run", "--run-dir", twin_file.parent / "runs")
expect(twin_plan.returncode == 0 and "dense-active-steps-auto-seed1" in twin_plan.stdout, f"twins: {twin_plan}")
twins = assay("match", "--like", PRESETS / "cpu/dense-active.yaml").stdout
expect("model.moe" not in twins, f"a dense model needs no twin: {twins}")
twins = assay("match", "--like", mixture, "--set", "model.moe.first_dense_layers=4").stdout
expect("dense twin" in twins and "model.moe" not in twins, f"nor does a mixture without a mixture block: {twins}")
# A path that YAML would read as something else is quoted; widths are named as the table has them.
odd_name = twin_file.parent / "a, b.yaml"
odd_name.write_text(f"include: {mixture}\n")
twins = assay("match", "--like", odd_name, "--multiple", "64").stdout
expect("multiple of 64" in twins and "multiple of 128" not in twins and "--multiple 128 fits the blocks" in twins, twins)
expect("a multiple of 256 also fits" in assay("match", "--like", mixture, "--multiple", "256").stdout, "of 256")
twin_file.write_text("models:\n" + "\n".join(line for line in twins.splitlines() if line.startswith("  dense-")) +
                     "\ncontracts: [{kind: steps}]\n")
twin_plan = assay("matrix", twin_file, "--dry-run", "--run-dir", twin_file.parent / "runs")
expect(twin_plan.returncode == 0 and "dense-total-steps-auto-seed1" in twin_plan.stdout, f"an odd path: {twin_plan}")

for name, rung in ladder("--experts", "2,4,8,64").items():
    e = int(name[1:])
    expect(rung["experts"] * rung["expert_ffn"] == 512 and rung["top_k"] * rung["expert_ffn"] == 256, f"E F and K F: {rung}")
    expect(rung["total"] == 2100352 + 4 * 128 * (e - 4), f"only the router grows: {rung}")
scale = "routed branch at initialisation"
plain, kept = ([assay("match", "--like", mixture, "--experts", "2,4,8", *more).stdout, ladder("--experts", "2,4,8", *more)]
               for more in ((), ("--keep-branch-scale",)))
expect(f"confound: {scale}" in plain[0] and "e2 1, e4 0.5, e8 0.25; model.moe.router.gate_scale" in plain[0], plain[0])
expect(scale not in kept[0] and [r["gate_scale"] for r in kept[1].values()] == [0.5, 1, 2], f"kept: {kept}")
for what in ("total", "active", "flops"):
    rung = ladder("--experts", "64", "--contract", what, "--multiple", "1")["e64"]
    # One more column of F is 3 C E or 3 C K parameters a block: the nearest is at most half of it away.
    half = {"total": 100 * 4 * 3 * 128 * 64 / 2 / 2100352, "active": 100 * 4 * 3 * 128 * 32 / 2 / 1707136,
            "flops": 100 * 6 * 4 * 3 * 128 * 32 / 2 / 7876608}[what]
    expect(abs(rung["residual_percent"][what]) <= half * 1.0001, f"{what}: {rung}, at most {half}")
beside = ladder("--shared", "0,2")
expect([[r[k] for k in ("experts", "top_k", "shared", "expert_ffn")] for r in beside.values()]
       == [[4, 2, 0, 128], [4, 2, 2, 64]], f"shared: {beside}")
expect(all(r["residual_percent"]["active"] == 0 for r in beside.values()), f"(K + S) F stays: {beside}")
text = assay("match", "--like", mixture, "--shared", "0,2").stdout
expect("routed and shared branch at initialisation" in text and "s0 0.5, s2 0.791;" in text
       and "experts differ" not in text
       and "width of an expert differs: s0 128 (512 stored), s2 64 (384 stored), so P_total does" in text, text)
odd = assay("match", "--like", mixture, "--shared", "1")
expect(odd.returncode == 1 and "F = 85.33" in odd.stderr and "--contract" in odd.stderr, f"no whole width: {odd}")
solved = ladder("--shared", "1", "--contract", "active")["s1"]
expect(solved["expert_ffn"] == 88 and abs(solved["residual_percent"]["active"]) < 1, f"the nearest width: {solved}")
longer = ladder("--horizons", "1,3,10")
expect([r["steps"] for r in longer.values()] == [720, 2160, 7200], f"horizons: {longer}")
depths = ladder("--depths", "4,8")
expect(depths["d4"]["residual_percent"] == {"total": 0, "active": 0, "flops": 0}, f"the base's own depth: {depths}")
expect(depths["d8"]["hidden"] == 256 and depths["d8"]["expert_ffn"] == 256, f"twice as deep is twice as wide: {depths}")
written = pathlib.Path(tempfile.mkdtemp()) / "ladder"
for arguments, names in ((("--experts", "2,8", "--contract", "total"), ("e2", "e8")), (("--horizons", "1,3"), ("x1", "x3")),
                         (("--shared", "0,2"), ("s0", "s2")), (("--depths", "2,4"), ("d2", "d4"))):
    done = assay("match", "--like", mixture, *arguments, "-o", written / names[0])
    expect(done.returncode == 0, f"match -o: {done}")
    printed = ladder(*arguments)
    for name in names:
        read = audit_json(written / names[0] / f"{name}.yaml")["models"][name]
        expect(read["params"]["total"] == printed[name]["total"], f"{name}: {read}")
    planned = json.loads(assay("matrix", written / names[0] / "matrix.yaml", "--dry-run", "--json").stdout)["runs"]
    expect({run["model"]: run["steps"] for run in planned} == {name: printed[name]["steps"] for name in names},
           f"the steps of the matrix: {planned}, {printed}")
    done = assay("matrix", written / names[0] / "matrix.yaml", "--dry-run")
    expect(done.returncode == 0 and f"{names[1]}-" in done.stdout, f"the ladder's matrix: {done}")
    contract = {"e2": "contract totalDN: ", "x1": "contract own: each model's own number of steps"}
    expect(contract.get(names[0], "contract steps: the same steps") in done.stdout,
           f"what its models have in common: {done.stdout}")
assay("match", "--like", mixture, "--experts", "2,8", "--keep-branch-scale", "-o", written / "kept")
expect("router: {gate_scale: 2" in (written / "kept" / "e8.yaml").read_text(), "gate_scale is written")
done = assay("matrix", written / "kept" / "matrix.yaml", "--dry-run")
expect(done.returncode == 0, f"the matrix with gate_scale: {done}")
before = (written / "e2" / "e2.yaml").read_bytes()
(written / "e2" / "matrix.yaml").unlink()  # as after a kill: the same command writes it again
done = assay("match", "--like", mixture, "--experts", "2,8", "--contract", "total", "-o", written / "e2")
expect(done.returncode == 0 and (written / "e2" / "matrix.yaml").exists(), f"match -o after a kill: {done}")
for name in ("my ladder", "\u00fc", "null", ".hidden", "a: b"):  # what matrix would refuse as a name
    done = assay("match", "--like", mixture, "--experts", "2,8", "-o", written / name)
    expect(done.returncode == 0, f"match -o {name}: {done}")
    done = assay("matrix", written / name / "matrix.yaml", "--dry-run")
    expect(done.returncode == 0, f"the matrix of match -o {name}: {done.stderr}")

# A base whose steps follow from its own contract, by a coefficient or by a reference: the rungs have as many.
own = written / "own.yaml"
own.write_text(f"include: {mixture}\ncontract: {{kind: activeDN, coefficient: 20, fraction: 0.5}}\n")
referring = written / "referring.yaml"
referring.write_text(f"include: {mixture}\ncontract: {{kind: totalDN, reference: own.yaml, shared_in_total: false}}\n")
for base in (own, referring):
    steps = audit_json(base)["models"][base.stem]["run"]["steps"]
    expect(steps > 4000, f"{base.stem}: {steps} steps")
    for more in (("--experts", "2,4,8"), ("--experts", "2,4,8", "--contract", "total"), ("--shared", "0,2"), ("--depths", "4,8"),
                 ("--depths", "4,8", "--contract", "flops")):
        folder = written / "-".join([base.stem, *more]).replace(",", "-")
        done = assay("match", "--like", base, *more, "-o", folder, "--json")
        printed = {rung["name"]: rung["steps"] for rung in json.loads(done.stdout)["rungs"]} if done.returncode == 0 else {}
        planned = json.loads(assay("matrix", folder / "matrix.yaml", "--dry-run", "--json").stdout)["runs"]
        expect(printed and {run["model"]: run["steps"] for run in planned} == printed, f"{more}: {done}, {planned}")
        expect(next(iter(printed.values())) == steps, f"{more}: the first rung has the base's {steps} steps: {printed}")
        expect(("--contract" in more) == (len(set(printed.values())) > 1), f"{more}: {printed}")

# Landings of a base that ends at a share of its horizon stay at their steps, here 72 and 360.
half = written / "half.yaml"
half.write_text(f"include: {mixture}\ncontract: {{kind: steps, fraction: 0.5, landings: [0.1, 0.5]}}\n")
done = assay("match", "--like", half, "--experts", "2,8", "-o", written / "half")
expect(done.returncode == 0, f"match -o: {done}")
expect("run: {steps: 360}" in (text := (written / "half" / "e2.yaml").read_text()) and "landings: [0.2, 1.0]" in text, text)
done = assay("matrix", written / "half" / "matrix.yaml", "--dry-run")
expect(done.returncode == 0, f"the matrix with landings: {done}")

bad = pathlib.Path(tempfile.mkdtemp()) / "bad.yaml"
bad.write_text("model: {hidden: 100, heads: 7}\n")
dense = PRESETS / "speedrun/dense.yaml"
for arguments, error, hint in [
    (["audit"], "CONFIG", "--help"),
    (["audit", "nowhere.yaml"], "nowhere.yaml", ""),
    (["audit", ROOT / "models"], "models", ""),
    (["audit", bad], "model.heads = 7 does not divide model.hidden = 100", "head_dim"),
    (["audit", dense, "--set", "model.hiden=1"], "hiden", "hidden"),
    (["audit", dense, "--set", "model.ffn=nan"], "nan", ""),
    (["audit", dense, "--set", "model.ffn=100000000000"], "model.ffn is 100000000000", "smaller"),
    (["audit", dense, "--contract", "match"], "--contract match", "totalDN"),
    (["audit", dense, "--coefficient", "-1"], "--coefficient", "--help"),
    (["audit", dense, "--fraction", "1.5"], "--fraction 1.5", "0.2"),
    (["audit", dense, "--steps", "0"], "--steps 0", ">= 1"),
    (["match"], "--like", "--help"),
    (["match", "--like", "nowhere.yaml"], "nowhere.yaml", ""),
    (["match", "--like", dense, "--contract", "totl"], "--contract totl", "active, total"),
    (["match", "--like", dense, "--multiple", "0"], "--multiple 0", "128"),
    (["match", "--like", dense, "--experts", "4"], "the base is dense", "moe.yaml"),
    (["match", "--like", mixture, "--experts", "3"], "K = 1.5", "for example 2, 4, 8"),
    (["match", "--like", mixture, "--experts", "1024"], "F = 0.5", "for example 2"),
    (["match", "--like", mixture, "--experts", "4", "--contract", "totl"], "--contract totl", "total, active or flops"),
    (["match", "--like", mixture, "--experts", "4", "--contract", "total,flops"], "two quantities", "only one"),
    (["match", "--like", mixture, "--experts", "256", "--contract", "total"], "model.moe.top_k", "1"),
    (["match", "--like", mixture, "--experts", "8,8"], "called e8", "once"),
    (["match", "--like", mixture, "--experts", "128", "--contract", "flops", "--multiple", "64"], "no width brings flops", "--multiple"),
    (["match", "--like", mixture, "-o", "nowhere"], "none is named", "add --experts"),
    (["match", "--like", mixture, "--experts", "2,8", "--contract", "total", "--set", "model.moe.first_dense_layers=4"],
     "the base is dense (model.moe.first_dense_layers = 4 of 4 layers)", "moe.yaml"),
    (["match", "--like", mixture, "--depths", "2,4", "--set", "model.moe.first_dense_layers=2"], "2 layers: ", "more layers"),
    (["match", "--like", mixture, "--horizons", "2", "--contract", "total"], "does nothing for --horizons", "leave it out"),
    (["match", "--like", mixture, "--experts", "2", "--set", "contract.kind=seconds", "--set", "contract.coefficient=60"],
     "its own contract seconds needs a measurement", "give its contract.step_seconds"),
    (["match", "--like", mixture, "--depths", "2,4,8", "--contract", "flops", "-o", written / "short"],
     "d4: schedule.warmup + schedule.warmdown = 50 + 250 is more than run.steps = 206", "schedule.warmdown_fraction"),
    (["match", "--like", mixture, "--depths", "4", "--keep-branch-scale"], "no --experts are given", "--experts 2,4,8"),
    (["match", "--like", mixture, "--experts", "2,8", "-o", written / "e2"], "is there already", "--force"),
    (["match", "--like", mixture, "--experts", "2", "--set", "run.seed=9", "-o", written / "set"], "--set changes the base", "-o"),
]:
    done = assay(*arguments)
    expect(is_refusal(done, error, hint),
           f"assay {' '.join(map(str, arguments))}: wanted {error!r}, {hint!r}\n{done}")

expect((written / "e2" / "e2.yaml").read_bytes() == before, "what was refused changed nothing")
expect(not (written / "short").exists(), "what was refused wrote nothing")
print("\n".join(failures) or f"audit: ok ({len(every)} presets)")
sys.exit(1 if failures else 0)
