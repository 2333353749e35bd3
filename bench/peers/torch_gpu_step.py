#!/usr/bin/env python3
"""Tokens per second of whole training steps in PyTorch, beside build/bench_step on the same GPU in the same minutes.

Each model is tried in the ways in which PyTorch's users write it for speed: weights in fp32 under autocast or in bf16 with
fp32 masters, torch.compile, the head's loss whole or in chunks, experts by torch._grouped_mm or one after the other, the
micro-batch recorded as a CUDA graph; always scaled_dot_product_attention and fused AdamW. 4096 experts are more than
torch._grouped_mm takes at once: they are multiplied in pieces whose ends the host reads, so without a graph. As in Assay,
gradients of the micro-batches add up in fp32 and are clipped to a global norm of 1. The two best ways then run in turn
with bench_step. Both train on random tokens, with the same tokens a step and the same count of them.

Prints a line of JSON for every run, and at the end the ratios to the way that was the fastest in the rounds; SIGTERM ends
it with the ratios of what has run so far. What does not fit into memory, a way or Assay, is tried again with half the
micro-batch. --device cpu --tiny runs all of it in a
small size, to check the script where there is no GPU."""
import argparse
import itertools
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = pathlib.Path(__file__).resolve()
OUT_OF_MEMORY = 3  # the exit code of a way
CLIP = 1.0  # optimizer.clip of the presets
WAYS = {"weights": ("masters", "autocast"), "compile": ("yes", "no"), "head": ("chunked", "whole"),
        "experts": ("grouped", "loop"), "graph": ("yes", "no")}


class Trainer:
    """One way of training a model. Weights and the sums of gradients stay where they are, for graphs."""

    def __init__(self, c, way, device):
        import torch
        import torch_models
        self.torch, self.c, self.way, self.device = torch, c, way, device
        self.model = torch_models.Transformer(c, way["experts"], way["head"]).to(device)
        self.model.initialise()
        self.masters = None
        self.parameters = list(self.model.parameters())
        if way["weights"] == "masters":
            self.masters = [p.detach().clone() for p in self.parameters]
            for master in self.masters:
                master.grad = torch.zeros_like(master)
            self.model.to(torch.bfloat16)
            for block in self.model.blocks:  # of counts and small differences
                for name, buffer in getattr(block.ffn, "named_buffers", lambda **_: ())(recurse=False):
                    setattr(block.ffn, name, buffer.float())
        if way["compile"] == "yes":
            self.model.compile()
        self.stepped = self.masters or self.parameters
        self.optimizer = torch.optim.AdamW(self.stepped, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
        self.token = torch.zeros(c.micro_batch, c.sequence, dtype=torch.int64, device=device)
        self.target = torch.zeros_like(self.token)
        self.loss = torch.zeros((), device=device)
        self.micros = c.batch_tokens // (c.micro_batch * c.sequence)
        self.graph = None

    def forward_backward(self):
        with self.torch.autocast(self.device, dtype=self.torch.bfloat16, enabled=self.masters is None):
            loss = self.model(self.token, self.target) / self.micros
        loss.backward()
        self.loss += loss.detach()
        if self.masters:  # whose gradients are fp32; those of the micro-batch are dropped
            self.torch._foreach_add_([master.grad for master in self.masters], [p.grad for p in self.parameters])
            for p in self.parameters:
                p.grad = None

    def record(self):
        """The micro-batch as a CUDA graph, after some on a stream of their own."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.forward_backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.forward_backward()
        self.graph = graph

    def zero(self):
        self.loss.zero_()
        gradients = [p.grad for p in self.stepped if p.grad is not None]
        if gradients:
            self.torch._foreach_zero_(gradients)

    def step(self, tokens):
        torch = self.torch
        self.zero()
        for row in range(self.micros):
            self.token.copy_(tokens[row, :, :-1])
            self.target.copy_(tokens[row, :, 1:])
            self.graph.replay() if self.graph else self.forward_backward()
        torch.nn.utils.clip_grad_norm_(self.stepped, CLIP)
        self.optimizer.step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        self.model.follow_load()
        return float(self.loss)


def run(a):
    """One way, in this process; the others' memory is gone with theirs."""
    import torch
    sys.path.insert(0, str(SCRIPT.parent))
    import torch_models
    c = shape_of(a, torch_models)
    way = {name: getattr(a, name) for name in WAYS}
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    begin = time.perf_counter()
    try:
        trainer = Trainer(c, way, a.device)
        tokens = torch.randint(c.vocab, (trainer.micros, c.micro_batch, c.sequence + 1), device=a.device)
        if way["graph"] == "yes":
            trainer.zero()
            trainer.record()
        losses, times = [], []
        for step in range(a.warmup + a.steps):
            start = time.perf_counter()
            losses.append(trainer.step(tokens))  # reading the loss waits for the step
            if step >= a.warmup:
                times.append(time.perf_counter() - start)
    except torch.cuda.OutOfMemoryError as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return OUT_OF_MEMORY
    step_s = statistics.median(times)
    result = {"tokens_per_s": c.batch_tokens / step_s, "step_ms_p50": 1e3 * step_s, "step_ms_min": 1e3 * min(times),
              "model": a.model, **way, "micro_batch": c.micro_batch, "tokens": c.batch_tokens,
              "parameters_total": sum(p.numel() for p in trainer.model.parameters()), "first_loss": losses[0],
              "loss": losses[-1], "ready_s": time.perf_counter() - begin - sum(times),
              "memory_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else 0, "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if a.device == "cuda" else "cpu"}
    print(json.dumps(result))
    return 0


def shape_of(a, torch_models):
    c = torch_models.SHAPES[a.model]
    if a.tiny:
        c = torch_models.tiny(c)
    if a.micro_batch:
        c.micro_batch = a.micro_batch
    if c.batch_tokens % (c.micro_batch * c.sequence) != 0:
        sequences = c.batch_tokens // c.sequence
        sys.exit(f"error: micro-batches of {c.micro_batch} sequences do not divide the {sequences} of a step\n"
                 f"hint: --micro-batch is a divisor of {sequences}")
    return c


def ways_of(model, device):
    """Likely the fastest first: what is likely fastest in everything, then with one other choice, with two, and so on."""
    names = dict(WAYS)
    if model == "dense":
        names["experts"] = ("grouped",)
    if model == "super-4096":
        names["experts"] = ("grouped",)  # a loop over 4096 takes minutes
        names["graph"] = ("no",)  # the host reads where a piece of them ends
    ways = (dict(zip(names, values)) for values in itertools.product(*names.values()))
    for way in sorted(ways, key=lambda way: sum(way[name] != values[0] for name, values in names.items())):
        if way["graph"] == "yes" and (way["experts"] == "loop" or device == "cpu"):
            continue  # a loop waits for the host
        if way["experts"] == "loop" and way["compile"] == "yes":
            continue  # 64 products of unknown length in each block take minutes to compile
        if way["weights"] == "autocast" and way["compile"] == "no" and way["head"] == "whole" and way["graph"] == "yes":
            continue  # the plain way is plain
        yield way


def called(way):
    return ", ".join(f"{name} {value}" for name, value in way.items())


def measure(a, way, micro_batch, steps, warmup):
    """The JSON of one way in a process of its own, or None with the reason on stderr. Halves the micro-batch as needed."""
    while micro_batch >= 1:
        command = [sys.executable, str(SCRIPT), "--run", "--model", a.model, "--device", a.device, "--steps", str(steps),
                   "--warmup", str(warmup), "--micro-batch", str(micro_batch)] + ["--tiny"] * a.tiny
        for name, value in way.items():
            command += [f"--{name}", value]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout.strip().splitlines()[-1])
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if done.returncode != OUT_OF_MEMORY:
            print(f"{called(way)}: exit {done.returncode}: {last}", file=sys.stderr, flush=True)
            return None
        print(f"{called(way)}: micro-batch {micro_batch} does not fit", file=sys.stderr, flush=True)
        micro_batch //= 2
    return None


def tiny_config(c, folder):
    """The small size of a model as a configuration for bench_step."""
    moe = ""
    if c.experts:
        moe = (f", moe: {{experts: {c.experts}, top_k: {c.top_k}, shared: {c.shared}, expert_ffn: {c.expert_ffn}, "
               f"first_dense_layers: {c.first_dense}, router: {{score: sigmoid, bias_rate: 1e-4, aux: none}}}}")
    path = pathlib.Path(folder) / "tiny.yaml"
    path.write_text(f"model: {{vocab_size: {c.vocab}, hidden: {c.hidden}, layers: {c.layers}, heads: {c.heads}, "
                    f"ffn: {c.ffn}{moe}}}\n"
                    f"run: {{sequence: {c.sequence}, micro_batch: {c.micro_batch}, batch_tokens: {c.batch_tokens}}}\n")
    return path


def measure_ours(a, c, config, micro_batch, steps, warmup):
    """The JSON of bench_step. Halves the micro-batch as needed."""
    while True:
        micros = c.batch_tokens // (c.sequence * micro_batch)
        command = [str(a.bench), "--config", str(config), "--device", a.device, "--batch", str(micro_batch),
                   "--micro-batches", str(micros), "--steps", str(steps), "--warmup", str(warmup), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        print(done.stderr, end="", file=sys.stderr, flush=True)
        if done.returncode == 0:
            return json.loads(done.stdout.strip().splitlines()[-1])
        too_large = re.search("^error: (the run needs .* of memory|cannot allocate )", done.stderr, re.MULTILINE)
        if micro_batch == 1 or not too_large:
            sys.exit(f"error: bench_step ended with exit code {done.returncode}\nhint: run it by hand: {' '.join(command)}")
        print(f"Assay: micro-batch {micro_batch} does not fit", file=sys.stderr, flush=True)
        micro_batch //= 2


def ratio_of(model, rounds):
    """The last line: Assay beside the way that was the fastest in the rounds. rounds: of each way, the tokens/s of Assay
    and of it in every round."""
    measured = [(statistics.median(theirs for _, theirs in pairs), way, pairs) for way, pairs in rounds if pairs]
    speed, way, pairs = max(measured, key=lambda row: row[0])
    ratios = [ours / theirs for ours, theirs in pairs]
    return {"what": "ratio", "model": model, "rounds": len(pairs),
            "assay_tokens_per_s": statistics.median(ours for ours, _ in pairs), "torch_tokens_per_s": speed,
            "ratio_median": statistics.median(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios),
            "best": called(way)}


def stop(number, _):
    """Of SIGTERM, which may come twice: to the process and to its group."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


class Room:
    """Whether there is time for one more of what is done again and again: the first always begins, another one if it ends
    in time, should it take as long as the longest so far."""

    def __init__(self, end):
        self.end, self.begun, self.longest = end, None, 0.0

    def for_one_more(self):
        now = time.monotonic()
        if self.begun is not None:
            self.longest = max(self.longest, now - self.begun)
            if now + self.longest > self.end:
                return False
        self.begun = now
        return True


def compare(a):
    sys.path.insert(0, str(SCRIPT.parent))
    import torch
    import torch_models
    if a.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"error: this PyTorch ({torch.__version__}) sees no CUDA device\nhint: --device cpu --tiny checks the script")
    if not a.bench.exists():
        sys.exit(f"error: {a.bench} is not built\nhint: cmake --build build --target bench_step, or --bench FILE")
    c = shape_of(a, torch_models)
    out = a.out.open("a") if a.out else None

    def keep(row):
        line = json.dumps(row)
        print(line, flush=True)
        if out:
            print(line, file=out, flush=True)

    signal.signal(signal.SIGTERM, stop)
    end = time.monotonic() + 60 * a.minutes
    trial_end = end - 60 * a.minutes * 0.4
    tried, left, rounds = [], list(ways_of(a.model, a.device)), []
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = tiny_config(c, folder) if a.tiny else ROOT / "models" / "presets" / c.preset
            room = Room(trial_end)
            while left and room.for_one_more():
                way = left.pop(0)
                found = measure(a, way, c.micro_batch, steps=2, warmup=1)
                if found:
                    tried.append((found["tokens_per_s"], found["micro_batch"], way))
                    keep({"what": "trial", **found})
            if not tried:
                sys.exit("error: no way of training ran\nhint: the reasons are above")
            if left:
                print(f"{len(left)} ways were not tried in the time", file=sys.stderr)
            tried.sort(key=lambda t: -t[0])
            best, fits = tried[:2], c.micro_batch
            rounds += [(way, []) for _, _, way in best]
            room = Room(end)
            for turn in range(a.rounds):
                if not room.for_one_more():
                    break
                ours = measure_ours(a, c, config, fits, a.steps, a.warmup)
                fits = c.batch_tokens // (c.sequence * ours["micro_batches"])
                keep({"what": "assay", "round": turn, **ours})
                for (_, micro_batch, way), (_, pairs) in zip(best, rounds):
                    found = measure(a, way, micro_batch, a.steps, a.warmup)
                    if found:
                        pairs.append((ours["tokens_per_s"], found["tokens_per_s"]))
                        keep({"what": "torch", "round": turn, **found})
        if not any(pairs for _, pairs in rounds):
            sys.exit("error: the ways that ran at first did not run again\nhint: the reasons are above")
    finally:
        if any(pairs for _, pairs in rounds):
            keep({**ratio_of(a.model, rounds), "ways_tried": len(tried), "ways_left": len(left)})
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("dense", "moe-64", "moe-256", "super-4096"), default="dense")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small size of the model, to check the script")
    parser.add_argument("--rounds", type=int, default=5, help="in turn with bench_step (default 5)")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each run in a round (default 6)")
    parser.add_argument("--warmup", type=int, default=2, help="untimed steps first (default 2)")
    parser.add_argument("--minutes", type=float, default=9, help="what is likely not to end by then does not begin; trials have 60%% (default 9)")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences (default: the preset's)")
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build" / "bench_step", help="default: build/bench_step")
    parser.add_argument("--out", type=pathlib.Path, help="also adds the lines to this file")
    one = parser.add_argument_group("one way only, without bench_step")
    one.add_argument("--run", action="store_true", help="measure the way given here and print its line")
    for name, values in WAYS.items():
        one.add_argument(f"--{name}", choices=values, default=values[-1])
    a = parser.parse_args()
    if min(a.rounds, a.steps) < 1 or a.warmup < 0 or a.micro_batch < 0:
        parser.error("--rounds and --steps are at least 1, --warmup and --micro-batch at least 0")
    return run(a) if a.run else compare(a)


if __name__ == "__main__":
    sys.exit(main())
