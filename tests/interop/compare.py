#!/usr/bin/env python3
"""Compares Assay with transformers and PyTorch, both ways, in fp32: logits position by position,
losses, tokens, and ten training steps. Reads an export to TensorBoard with its package. Needs a built
program and the packages of requirements.txt; `bash tools/test.sh --interop` provides both.

    .venv-interop/bin/python tests/interop/compare.py [--record docs/interop.md]

Exits 1 if a comparison is outside its tolerance.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import sqlite3
import struct
import subprocess
import sys
import tempfile

import safetensors
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import events
import fixtures
import training

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ASSAY_BUILD", ROOT / "build"))
LOGITS = 1e-4   # of the largest logit
LOSS = 1e-4     # nats
NORM = 1e-4     # of the gradient norm
VOCAB, EVAL_TOKENS = 320, 2048

SIZES = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, max_position_embeddings=128)
THEIRS = [
    ("Llama", fixtures.LlamaForCausalLM, fixtures.LlamaConfig,
     dict(fixtures.LLAMA, **SIZES, intermediate_size=96), ""),
    ("Llama, tied", fixtures.LlamaForCausalLM, fixtures.LlamaConfig,
     dict(fixtures.LLAMA, **SIZES, intermediate_size=96, tie_word_embeddings=True), ""),
    ("Qwen3", fixtures.Qwen3ForCausalLM, fixtures.Qwen3Config,
     dict(fixtures.QWEN3, **SIZES, intermediate_size=96, tie_word_embeddings=False), ""),
    ("Mixtral", fixtures.MixtralForCausalLM, fixtures.MixtralConfig,
     dict(fixtures.MIXTRAL, **SIZES, intermediate_size=48, num_local_experts=8), "switch"),
    ("Qwen3-MoE", fixtures.Qwen3MoeForCausalLM, fixtures.Qwen3MoeConfig,
     dict(fixtures.QWEN3_MOE, **SIZES, intermediate_size=96, moe_intermediate_size=48, num_experts=8), "switch"),
    ("GLM-4-MoE", fixtures.Glm4MoeForCausalLM, fixtures.Glm4MoeConfig,
     dict(fixtures.GLM4_MOE, **SIZES, intermediate_size=96, moe_intermediate_size=32, n_routed_experts=8), "gates"),
    ("GLM-4-MoE, bias_rate auto", fixtures.Glm4MoeForCausalLM, fixtures.Glm4MoeConfig,
     dict(fixtures.GLM4_MOE, **SIZES, intermediate_size=96, moe_intermediate_size=32, n_routed_experts=8), "auto"),
]
OURS = [
    ("dense", "{}"),
    ("dense, tied, three gains", "{tie_embeddings: true, attention_gain: depth, embed_gain: 1.3, logit_gain: 0.7}"),
    ("dense, qk_norm", "{qk_norm: true, kv_heads: 2}"),
    ("softmax", "{moe: {experts: 8, top_k: 2, expert_ffn: 48, router: {score: softmax, bias_rate: 0, gate_scale: 1.5, aux: switch,"
     " aux_alpha: 0.01}}}"),
    ("softmax, norms, no sum", "{qk_norm: true, moe: {experts: 8, top_k: 2, expert_ffn: 48, first_dense_layers: 1,"
     " router: {score: softmax, bias_rate: 0, gate_scale: 1.5, normalize_gates: false, aux: switch, aux_alpha: 0.01}}}"),
    ("sigmoid, bias, shared", "{qk_norm: true, moe: {experts: 8, top_k: 3, shared: 2, expert_ffn: 32,"
     " first_dense_layers: 1, router: {score: sigmoid, route_scale: 1.2, gate_scale: 1.7, bias_rate: 0.01}}}"),
    ("sigmoid alone", "{moe: {experts: 8, top_k: 2, expert_ffn: 48, router: {score: sigmoid, bias_rate: 0, aux: none}}}"),
]

rows, failures = [], []


def report(what, measure, value, limit):
    ok = value <= limit
    rows.append(f"{what:<42} {measure:<34} {value:9.2e}  {'within' if ok else 'OUTSIDE'} {limit:.0e}")
    print(rows[-1], flush=True)
    if not ok:
        failures.append(rows[-1])


def run(program, *arguments):
    done = subprocess.run([str(BUILD / program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_shard(path, tokens):
    header = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens.tolist()))


def make_data(work):
    """Writes tokens in which each depends on the one before, so that there is something to learn, a
    tokenizer and the base configuration."""
    s = training.SETTINGS
    generator = torch.Generator().manual_seed(7)
    tokens = {}
    for name, count in (("train", s["steps"] * s["batch_tokens"] + 1), ("val", EVAL_TOKENS + 1)):
        noise = torch.randint(0, 9, (count,), generator=generator)
        jump = torch.rand((count,), generator=generator) < 0.1
        anywhere = torch.randint(0, VOCAB, (count,), generator=generator)
        stream = [0]
        for i in range(1, count):
            stream.append(int(anywhere[i]) if jump[i] else (5 * stream[-1] + int(noise[i])) % VOCAB)
        tokens[name] = torch.tensor(stream)
        write_shard(work / f"{name}.bin", tokens[name])
    run("assay", "tokenizer", "train", ROOT / "README.md", "--vocab-size", VOCAB, "-o", work / "tokenizer.json")
    (work / "base.yaml").write_text(f"""
model: {{hidden: 64, layers: 3, heads: 2, ffn: 96, vocab_size: {VOCAB}}}
optimizer: {{lr: {s['lr']}, beta1: {s['beta1']}, beta2: {s['beta2']}, eps: {s['eps']}, weight_decay: {s['weight_decay']}, clip: {s['clip']}}}
schedule: {{warmup: {s['warmup']}, warmdown: {s['warmdown']}}}
data: {{train: [train.bin], val: [val.bin], tokenizer: tokenizer.json, shuffle: false}}
run: {{steps: {s['steps']}, batch_tokens: {s['batch_tokens']}, sequence: {s['sequence']}, micro_batch: {s['micro_batch']}}}
eval: {{every: 1000, tokens: {EVAL_TOKENS}}}
precision: {{recipe: fp32}}
""")
    return tokens


def our_logits(work, checkpoint, tokens):
    save_file({"tokens": tokens}, work / "tokens.safetensors")
    run("interop_logits", checkpoint, work / "tokens.safetensors", work / "logits.safetensors")
    return load_file(work / "logits.safetensors")["logits"]


@torch.no_grad()
def compare_logits(what, work, checkpoint, model):
    model.eval()
    tokens = fixtures.tokens_of(3, 3 * 64, VOCAB).reshape(3, 64)
    theirs, ours = model(tokens).logits.float(), our_logits(work, checkpoint, tokens)
    report(what, "largest logit difference, relative", ((ours - theirs).abs().max() / theirs.abs().max()).item(), LOGITS)


@torch.no_grad()
def compare_loss(what, checkpoint, model, tokens):
    model.eval()
    sequence = training.SETTINGS["sequence"]
    logits = model(tokens[:-1].reshape(-1, sequence)).logits.float()
    theirs = F.cross_entropy(logits.flatten(0, 1).double(), tokens[1:]).item()
    ours = json.loads(run("assay", "eval", checkpoint, "--json"))["val_loss_nats"]
    report(what, f"validation loss, {theirs:.4f} nats", abs(ours - theirs), LOSS)


def router_sets(kind):
    s = training.SETTINGS
    if not kind:
        return []
    sets = [f"model.moe.router.aux={'gates' if kind == 'auto' else kind}", f"model.moe.router.aux_alpha={s['aux_alpha']}",
            f"model.moe.router.z_alpha={s['z_alpha']}"]
    if kind == "gates":
        sets.append(f"model.moe.router.bias_rate={s['bias_rate']}")
    if kind == "auto":
        sets += ["model.moe.router.bias_rate=auto", f"model.moe.router.bias_steps={s['bias_steps']}"]
    return [argument for change in sets for argument in ("--set", change)]


def compare_training(what, work, imported, model, tokens, kind):
    run("assay", "train", imported / "config.yaml", "--run", imported)
    db = sqlite3.connect(f"file:{imported / 'telemetry.db'}?mode=ro", uri=True)
    column = lambda name: [v for v, in db.execute("SELECT value FROM scalar WHERE name = ? ORDER BY step", (name,))]
    losses, norms = training.train(model, tokens, kind)
    ours = column("train_loss_nats")
    assert len(ours) == len(losses), (ours, losses)
    report(what, f"10 steps, loss {losses[0]:.3f} to {losses[-1]:.3f}", max(abs(a - b) for a, b in zip(ours, losses)), LOSS)
    worst = max(abs(a / b - 1) for a, b in zip(column("gradient_norm"), norms))
    report(what, "10 steps, gradient norm, relative", worst, NORM)
    if kind in ("gates", "auto"):
        [newest] = (imported / "checkpoints").glob(f"step-{len(losses):08d}")
        biases = {name: value for name, value in load_file(newest / "model.safetensors").items() if name.endswith("moe.bias")}
        theirs = {f"blocks.{i}.moe.bias": g.e_score_correction_bias for i, g in training.Routers(model).gates.items()}
        assert biases.keys() == theirs.keys(), (biases.keys(), theirs.keys())
        report(what, "10 steps, selection biases", max((biases[n] - b).abs().max().item() for n, b in theirs.items()), 1e-6)


def check_theirs(work, tokens):
    for seed, (name, model_class, config_class, fields, kind) in enumerate(THEIRS):
        folder, imported = work / f"theirs-{seed}", work / f"imported-{seed}"
        model = fixtures.random_model(model_class, config_class, fields, torch.float32, seed)
        model.save_pretrained(folder, max_shard_size="200KB" if seed % 2 else "1GB")
        run("assay", "import", folder, "-o", imported, "--config", work / "base.yaml", *router_sets(kind))
        what = f"{name} -> assay"
        compare_logits(what, work, imported, model)
        compare_loss(what, imported, model, tokens["val"])
        compare_training(what, work, imported, model, tokens["train"], kind)


def check_muon(work, tokens):
    """Ten steps of a dense model beside torch.optim.Muon. Both iterate in bf16, with sums in another
    order, and the iteration lifts small singular values with their rounding errors: the rule is ten
    times the difference that was seen."""
    what = "Llama -> assay, Muon"
    _, model_class, config_class, fields, _ = next(t for t in THEIRS if not t[4])
    folder, imported = work / "theirs-muon", work / "imported-muon"
    model = fixtures.random_model(model_class, config_class, fields, torch.float32, 0)
    model.save_pretrained(folder)
    (work / "muon.yaml").write_text("include: base.yaml\noptimizer: {kind: muon}\n")
    run("assay", "import", folder, "-o", imported, "--config", work / "muon.yaml")
    run("assay", "train", imported / "config.yaml", "--run", imported)
    db = sqlite3.connect(f"file:{imported / 'telemetry.db'}?mode=ro", uri=True)
    ours = [v for v, in db.execute("SELECT value FROM scalar WHERE name = 'train_loss_nats' ORDER BY step")]
    losses, _ = training.train(model, tokens["train"], "muon")
    assert len(ours) == len(losses), (ours, losses)
    worst = max(abs(a / b - 1) for a, b in zip(ours, losses))
    report(what, f"10 steps, loss {losses[0]:.3f} to {losses[-1]:.3f}, relative", worst, 2e-4)


def check_ours(work, tokens):
    for i, (name, model_section) in enumerate(OURS):
        trained, folder, config = work / f"ours-{i}", work / f"exported-{i}", work / f"ours-{i}.yaml"
        config.write_text(f"include: base.yaml\nmodel: {model_section}\n")
        run("assay", "train", config, "--run", trained)
        run("assay", "export", trained, "-o", folder, "--dtype", "fp32", "--max-shard-mib", "1")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True)
        what = f"{name} -> {type(model).__name__.replace('ForCausalLM', '')}"
        unused = [key for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in info[kind]]
        if unused:
            failures.append(f"{what}: {unused}")
        compare_logits(what, work, trained, model)
        compare_loss(what, trained, model, tokens["val"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "Half of a euro:  \tthe cat's 123 hats, \u00e9t\u00e9 \u4e2d\u6587.\n\n"
    ours = json.loads(run("assay", "tokenizer", "encode", "--tokenizer", folder / "tokenizer.json", "--text", text, "--json"))
    theirs = tokenizer(text, add_special_tokens=False)["input_ids"]
    report("tokenizer.json -> AutoTokenizer", f"{len(theirs)} ids that differ", sum(a != b for a, b in zip(
        ours["ids"], theirs)) + abs(len(ours["ids"]) - len(theirs)), 0)
    compare_continuation(trained, model, tokenizer)


@torch.no_grad()
def compare_continuation(trained, model, tokenizer):
    """The most probable ids after what AutoTokenizer makes of a prompt, beside those of `assay sample`."""
    prompt, count = "Assay trains", 16
    said = json.loads(run("assay", "sample", trained, "--prompt", prompt, "--temperature", "0", "--tokens", str(count),
                          "--past-end", "--json"))
    ours = said["texts"][0]["prompt_tokens"] + said["texts"][0]["tokens"]
    theirs = tokenizer(prompt)["input_ids"]
    for _ in range(count):
        theirs.append(model(torch.tensor([theirs])).logits[0, -1, :len(tokenizer)].argmax().item())
    report("assay sample -> greedy", f"{len(theirs)} ids that differ", sum(a != b for a, b in zip(ours, theirs)) + abs(
        len(ours) - len(theirs)), 0)


def check_events(work):
    """Of the run of the last mixture."""
    trained, folder = work / f"ours-{len(OURS) - 1}", work / "events"
    run("assay", "telemetry", trained, "--tensorboard", folder)
    report("telemetry -> TensorBoard", f"{events.compare(trained, folder)} values that differ", 0, 0)


@torch.no_grad()
def check_fixtures():
    for name, model_class, *_ in fixtures.MODELS:
        folder = ROOT / "tests" / "interop" / "fixtures" / name
        expected = load_file(folder / "expected.safetensors")
        model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
        theirs = fixtures.logits_of(model, expected["tokens"])
        difference = ((theirs - expected["logits"]).abs().max() / theirs.abs().max()).item()
        report(f"fixture {name}", "logits of the installed transformers", difference, 1e-5)


def header():
    git = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True).stdout.strip()
    commit = git("rev-parse", "--short", "HEAD") + (", changed since" if git("status", "--porcelain", "-uno") else "")
    return (f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, commit {commit}; torch {torch.__version__}, "
            f"transformers {transformers.__version__}, safetensors {safetensors.__version__}, "
            f"tokenizers {tokenizers.__version__}, Python {platform.python_version()}; fp32, two threads")


MARK = "## The last comparison\n"


def record(path):
    text = path.read_text()
    lines = ["", "    .venv-interop/bin/python tests/interop/compare.py --record docs/interop.md", "", header(), ""]
    path.write_text(text[:text.index(MARK)] + MARK + "\n".join(lines + ["    " + row for row in rows]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=pathlib.Path, help="file whose last section is replaced by the result")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(header())
    with tempfile.TemporaryDirectory(prefix="assay-interop-") as folder:
        work = pathlib.Path(folder)
        tokens = make_data(work)
        check_fixtures()
        check_theirs(work, tokens)
        check_muon(work, tokens)
        check_ours(work, tokens)
        check_events(work)
    if failures:
        sys.exit("interop: FAILED\n" + "\n".join(failures))
    if arguments.record:
        record(arguments.record)
    print(f"interop: {len(rows)} comparisons, all within their tolerances")


if __name__ == "__main__":
    main()
