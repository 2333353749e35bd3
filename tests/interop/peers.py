#!/usr/bin/env python3
"""bench/peers/torch_gpu_step.py on a CPU: its models have the parameters of the presets, its ways of computing the same
agree, and a small comparison with bench_step runs to its end. Of torch_step.py, the peer on CPUs: its ways agree, and
masters step. Of torch_gpu.py: how it times calls of a GPU, with a clock in its place, and its options. Needs
build/assay, build/bench_step and the packages of requirements.txt; `bash tools/test.sh --interop` provides them."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import torch_gpu
import torch_gpu_step
import torch_models
import torch_step


def require(holds, what):
    if not holds:
        sys.exit(f"peers: FAILED: {what}")


def check_parameters():
    for name, shape in torch_models.SHAPES.items():
        done = subprocess.run([ROOT / "build" / "assay", "audit", ROOT / "models" / "presets" / shape.preset, "--json"],
                              capture_output=True, text=True, check=True)
        (ours,) = json.loads(done.stdout)["models"].values()
        with torch.device("meta"):
            theirs = sum(p.numel() for p in torch_models.Transformer(shape).parameters())
        require(ours["params"]["total"] == theirs, f"{name}: {theirs} parameters, {shape.preset} has {ours['params']['total']}")


def gradients(model, token, target):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(token, target)
    loss.backward()
    return float(loss.detach()), {name: p.grad.clone() for name, p in model.named_parameters()}


def check_ways():
    """Sorted experts and a loop over them, the whole head and chunks of it."""
    shape = torch_models.tiny(torch_models.SHAPES["moe-64"])
    torch_models.ChunkedLoss.ROWS = 100  # several, the last one shorter
    torch.manual_seed(1)
    first = torch_models.Transformer(shape, "grouped", "chunked")
    first.initialise()
    token = torch.randint(shape.vocab, (shape.micro_batch, shape.sequence + 1))
    wanted, slopes = gradients(first, token[:, :-1], token[:, 1:])
    for experts, head in (("loop", "chunked"), ("grouped", "whole")):
        other = torch_models.Transformer(shape, experts, head)
        other.load_state_dict(first.state_dict())
        loss, found = gradients(other, token[:, :-1], token[:, 1:])
        require(abs(loss - wanted) < 2e-3, f"{experts}, {head}: loss {loss}, not {wanted}")
        for name, slope in slopes.items():
            apart = float((found[name] - slope).norm() / slope.norm().clamp(min=1e-12))
            require(apart < 0.02, f"{experts}, {head}: the gradient of {name} is {apart:.3f} of its norm off")


def check_pieces():
    """More experts than a grouped product takes: the bits of one product, in pieces of 3, 3 and 2 and of 4 and 4. No graph."""
    shape = torch_models.tiny(torch_models.SHAPES["super-4096"])
    torch.manual_seed(1)
    model = torch_models.Transformer(shape, "grouped", "whole")
    model.initialise()
    token = torch.randint(shape.vocab, (shape.micro_batch, shape.sequence + 1))
    wanted, slopes = gradients(model, token[:, :-1], token[:, 1:])
    real, limit, groups = torch_models.swiglu_of_groups, torch_models.MOST_GROUPS, []

    def counted(rows, gate_up, down, end):
        groups.append(len(end))
        require(len(gate_up) == len(down) == len(end) and int(end[-1]) == len(rows), (len(gate_up), len(rows), end))
        return real(rows, gate_up, down, end)

    torch_models.swiglu_of_groups = counted
    try:
        for torch_models.MOST_GROUPS, pieces in ((3, [3, 3, 2]), (7, [4, 4]), (8, [8])):
            groups.clear()
            loss, found = gradients(model, token[:, :-1], token[:, 1:])
            require(groups == shape.layers * pieces, f"at most {torch_models.MOST_GROUPS}: pieces of {groups}")
            require(loss == wanted and all(torch.equal(found[name], slope) for name, slope in slopes.items()),
                    f"pieces of {pieces}: loss {loss}, not {wanted}")
    finally:
        torch_models.swiglu_of_groups, torch_models.MOST_GROUPS = real, limit
    require(limit == 1023 and {way["graph"] for way in torch_gpu_step.ways_of("super-4096", "cuda")} == {"no"}, "graphs")


def small_cpu_config():
    c = torch_step.Config()
    c.vocab, c.hidden, c.layers, c.heads, c.sequence = 512, 64, 2, 2, 64
    c.ffn, c.expert_ffn = 128, 32
    return c


def check_cpu_ways():
    """Experts one by one, sorted and grouped; attention by bmm and by PyTorch's own."""
    torch.manual_seed(1)
    c = small_cpu_config()
    token = torch.randint(c.vocab, (4, c.sequence + 1))
    first = torch_step.Transformer(c, "moe", "bmm", "loop")
    state = first.state_dict()
    for layer in range(c.layers):  # the same weights, as the other ways hold them
        ffn = f"blocks.{layer}.ffn."
        for name in ("gate_up", "down"):
            state[ffn + name] = torch.stack([state.pop(f"{ffn}experts.{e}.{name}.weight").t() for e in range(c.experts)])
    wanted, slopes = gradients(first, token[:, :-1], token[:, 1:])
    for attention, experts in (("sdpa", "sorted"), ("bmm", "grouped")):
        other = torch_step.Transformer(c, "moe", attention, experts)
        other.load_state_dict(state)
        loss, found = gradients(other, token[:, :-1], token[:, 1:])
        require(abs(loss - wanted) < 2e-3, f"{attention}, {experts}: loss {loss}, not {wanted}")
        for name in ("embedding.weight", "head.weight", "blocks.0.attention.qkv.weight", "blocks.1.ffn.router.weight"):
            apart = float((found[name] - slopes[name]).norm() / slopes[name].norm())
            require(apart < 0.03, f"{attention}, {experts}: the gradient of {name} is {apart:.3f} of its norm off")


def check_cpu_masters():
    """bf16 weights beside fp32 masters: the loss and, roughly, the gradients of autocast, in fp32 and clipped; steps
    that lower the loss, by weights that are the masters rounded."""
    compared = ("embedding.weight", "head.weight", "blocks.0.attention.qkv.weight", "blocks.1.ffn.router.weight")
    c = small_cpu_config()
    torch.manual_seed(2)
    token = torch.randint(c.vocab, (4, c.sequence + 1))
    for model, experts in (("dense", "loop"), ("moe", "loop"), ("moe", "sorted"), ("moe", "grouped")):
        a = argparse.Namespace(dtype="bf16", weights="masters", optimizer="fused", compile="no")
        torch.manual_seed(1)
        wanted, slopes = gradients(torch_step.Transformer(c, model, "bmm", experts), token[:, :-1], token[:, 1:])
        norm = torch.cat([slope.flatten() for slope in slopes.values()]).norm()
        torch.manual_seed(1)
        trainer = torch_step.Trainer(torch_step.Transformer(c, model, "bmm", experts), a)
        masters, what = trainer.masters, f"{model}, {experts}, masters"
        require(all(p.dtype == torch.bfloat16 for p in trainer.model.parameters()), what)
        first = trainer.step(token[:, :-1], token[:, 1:])
        require(abs(first - wanted) < 2e-2, f"{what}: loss {first}, not {wanted}")
        for (name, slope), master in zip(slopes.items(), masters.fp32):
            require(master.dtype == master.grad.dtype == torch.float32, f"{what}: {name}")
            if name in compared:
                slope = slope / norm.clamp(min=1)
                apart = float((master.grad - slope).norm() / slope.norm())
                require(apart < 0.1, f"{what}: the gradient of {name} is {apart:.3f} of its norm off")
        last = [trainer.step(token[:, :-1], token[:, 1:]) for _ in range(3)][-1]
        require(last < first - 0.05, f"{what}: the loss goes from {first} to {last}")
        require(all(torch.equal(p, master.bfloat16()) for p, master in zip(masters.bf16, masters.fp32)), what)


class FakeGpu:
    """Microseconds of a host that queues work and of a GPU that does it, in the places of torch.cuda."""

    FILL_US = 170

    def __init__(self, launch_us, call_us):
        self.launch_us, self.call_us = launch_us, call_us
        self.host, self.device = 0.0, 0.0

    def queue(self, host_us, device_us):
        self.host += host_us
        self.device = max(self.host, self.device) + device_us

    def call(self, *_):
        self.queue(self.launch_us, self.call_us)

    def event(gpu, enable_timing):
        class Event:
            def record(self):
                gpu.queue(1, 0)
                self.at = gpu.device

            def query(self):
                return self.at <= gpu.host

            def elapsed_time(self, end):
                return (end.at - self.at) * 1e-3

        return Event()

    def wait(self):
        self.host = self.device = max(self.host, self.device)

    def times(self, heat_s=0.0):
        """What torch_gpu.py's clock says of this GPU's calls."""
        real = torch_gpu.torch
        torch_gpu.torch = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=self.event, synchronize=self.wait))
        clock = torch_gpu.Clock("cuda", 30, heat_s)
        clock.head_start = lambda fills: self.queue(0, fills * self.FILL_US)
        try:
            return clock.measure(lambda: (), self.call, 1)
        finally:
            torch_gpu.torch = real


def check_clock():
    """Launches are not in the times; the queue grows until they are not; what waits for the host each time says so."""
    for launch_us, call_us in ((20, 500), (20, 5), (400, 5)):
        times, waits = FakeGpu(launch_us, call_us).times()
        require(not waits and all(abs(t - call_us) < 1e-6 for t in times), f"launch {launch_us} us: {times}, {waits}")

    class Waiting(FakeGpu):
        def call(self, *_):
            super().call()
            self.wait()

    times, waits = Waiting(20, 5).times()
    require(waits, times)
    heated = FakeGpu(20, 5)
    calls = []
    heated.call = lambda *_: calls.append(FakeGpu.call(heated))
    heated.times(heat_s=0.02)
    require(len(calls) > 1000, f"{len(calls)} calls in 0.02 s of heat and 30 timed ones")


def check_ops():
    """torch_gpu.py in a small size: all ops that a CPU has, one by its name, and no op of that name."""
    def ops(*options):
        command = [sys.executable, PEERS / "torch_gpu.py", "--device", "cpu", "--tiny", "--repeats", "2", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return done, {row["op"] for row in rows[1:]}, rows[:1]

    done, found, (header,) = ops()
    require(done.returncode == 0 and found == {"copy", "matmul", "attention", "cross_entropy"}, done)
    require(header["heat_s"] == 0 and header["repeats"] == 2, header)
    rows = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    require(all(0 < row["min_us"] <= row["p50_us"] for row in rows), rows)
    done, found, _ = ops("--filter", "cross_entropy")
    require(done.returncode == 0 and found == {"cross_entropy"}, done)
    done, found, _ = ops("--filter", "copies")
    require(done.returncode == 1 and not done.stdout and done.stderr.startswith("error: --filter copies ")
            and "\nhint: the ops are copy, matmul, " in done.stderr, done)
    done, found, _ = ops("--filter", "grouped")
    require(done.returncode == 1 and "error: no case was timed" in done.stderr, done)


def check_sums():
    """Masters' gradients of several micro-batches: their sums in fp32, clipped."""
    shape = torch_models.tiny(torch_models.SHAPES["dense"])
    way = {"weights": "masters", "compile": "no", "head": "whole", "experts": "grouped", "graph": "no"}
    torch.manual_seed(1)
    trainer = torch_gpu_step.Trainer(shape, way, "cpu")
    tokens = torch.randint(shape.vocab, (trainer.micros, shape.micro_batch, shape.sequence + 1))
    added = [torch.zeros_like(p) for p in trainer.masters]
    for row in tokens:  # one by one, in fp32
        for p in trainer.parameters:
            p.grad = None
        (trainer.model(row[:, :-1], row[:, 1:]) / trainer.micros).backward()
        for total, p in zip(added, trainer.parameters):
            total += p.grad.float()
            p.grad = None
    found = []

    def before_the_step():
        found.extend(master.grad.clone() for master in trainer.masters)

    norm = torch.cat([g.flatten() for g in added]).norm()
    torch_gpu_step.CLIP = float(norm) / 4
    real, trainer.optimizer.step = trainer.optimizer.step, before_the_step
    trainer.step(tokens)
    for total, g in zip(added, found):  # the norm is 4 times what it may be
        require(g.dtype == torch.float32 and torch.allclose(g, total / 4, rtol=1e-3, atol=1e-7), "clipped sums")
    trainer.optimizer.step = real
    require(trainer.step(tokens) > trainer.step(tokens), "the loss does not fall")


def check_choices():
    """The last line names the way that its ratios are of. Sizes that do not divide are refused; Assay's are halved, too."""
    first = {"weights": "masters"}, [(12, 10), (12, 4), (12, 4)]
    second = {"weights": "autocast"}, [(12, 8), (12, 6), (12, 8)]
    row = torch_gpu_step.ratio_of("dense", [first, second, ({"weights": "none"}, [])])
    require(row["best"] == "weights autocast" and row["torch_tokens_per_s"] == 8 and row["rounds"] == 3, row)
    require((row["ratio_least"], row["ratio_median"], row["ratio_most"]) == (1.5, 1.5, 2), row)
    done = subprocess.run([sys.executable, PEERS / "torch_gpu_step.py", "--run", "--device", "cpu", "--tiny",
                           "--micro-batch", "3"], capture_output=True, text=True)
    require(done.returncode == 1 and "error: micro-batches of 3 sequences do not divide the 16 of a step\n"
            "hint: --micro-batch is a divisor of 16\n" in done.stderr, done)
    with tempfile.TemporaryDirectory() as folder:
        bench = pathlib.Path(folder) / "bench_step"
        bench.write_text('#!/bin/sh\ncase "$*" in *"--batch 2 --micro-batches 8 "*) echo \'{"micro_batches": 8}\' ;;\n'
                         '*) echo "error: the run needs 90.0 GiB of memory, the GPU has 80.0" >&2; exit 1 ;; esac\n')
        bench.chmod(0o755)
        a = argparse.Namespace(bench=bench, device="cuda")
        shape = torch_models.tiny(torch_models.SHAPES["dense"])
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = torch_gpu_step.measure_ours(a, shape, "tiny.yaml", 8, steps=1, warmup=0)
        require(found == {"micro_batches": 8} and "micro-batch 4 does not fit" in said.getvalue(), said.getvalue())


def pretended(run):
    """What compare() prints, and how it ends, with a clock and runs that only pretend. run(clock): called for each of them."""
    clock = types.SimpleNamespace(now=0)
    clock.monotonic = lambda: clock.now

    def ours(*_):
        run(clock)
        return {"tokens_per_s": 12, "micro_batches": 4}

    def theirs(a, way, micro_batch, steps, warmup):
        run(clock)
        return {"tokens_per_s": 10, "micro_batch": micro_batch}

    real = torch_gpu_step.measure, torch_gpu_step.measure_ours, torch_gpu_step.time
    torch_gpu_step.measure, torch_gpu_step.measure_ours, torch_gpu_step.time = theirs, ours, clock
    a = argparse.Namespace(model="moe-64", device="cpu", tiny=True, rounds=3, steps=6, warmup=2, minutes=4.5, micro_batch=0,
                           bench=pathlib.Path(sys.executable), out=None)
    end = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            torch_gpu_step.compare(a)
    except SystemExit as error:
        end = error.code
    finally:
        torch_gpu_step.measure, torch_gpu_step.measure_ours, torch_gpu_step.time = real
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return [json.loads(line) for line in out.getvalue().splitlines()], end


def check_ends():
    """Trials have 60% of the time, and a round begins that likely ends in it; the first always. What SIGTERM or an error
    ends still says the ratio of the pairs that there are, and none where there are none."""
    for seconds, trials, rounds in ((10, 12, 3), (15, 10, 2), (20, 8, 1), (200, 1, 1)):
        def take(clock):
            clock.now += seconds

        rows, end = pretended(take)
        counts = [sum(row["what"] == what for row in rows) for what in ("trial", "assay")]
        require(end == 0 and counts == [trials, rounds] and rows[-1]["rounds"] == rounds, f"{seconds} s a run: {end}, {rows}")

    def asked(_):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    def broken(_):
        sys.exit("error: as planned")

    for stop, wanted in ((asked, 143), (broken, "error: as planned")):
        for last, rounds in ((12 + 5, 2), (12 + 4, 1), (12 + 1, 0), (3, 0)):  # trials and runs in rounds before the end
            def count(clock):
                clock.now += 1
                if clock.now > last:
                    stop(clock)

            rows, end = pretended(count)
            ratios = [row for row in rows if row["what"] == "ratio"]
            require(end == wanted and len(rows) == last + len(ratios), f"{last}: {end}, {rows}")
            require([(row["rounds"], row["ratio_median"]) for row in ratios] == [(rounds, 1.2)] * (rounds > 0), ratios)


def check_comparison():
    done = subprocess.run([sys.executable, PEERS / "torch_gpu_step.py", "--device", "cpu", "--tiny", "--model", "moe-64",
                           "--minutes", "0.2", "--rounds", "1", "--steps", "2", "--warmup", "1"], capture_output=True, text=True)
    require(done.returncode == 0, done.stdout + done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    require({row["what"] for row in rows} == {"trial", "assay", "torch", "ratio"}, done.stdout)
    require(len({row["parameters_total"] for row in rows if row["what"] != "ratio"}) == 1, "other numbers of parameters")
    require(rows[-1]["rounds"] == 1 and rows[-1]["ratio_median"] > 0, rows[-1])


def main():
    torch.set_num_threads(2)
    check_parameters()
    check_ways()
    check_pieces()
    check_cpu_ways()
    check_cpu_masters()
    check_clock()
    check_ops()
    check_sums()
    check_choices()
    check_ends()
    check_comparison()
    print("peers: ok")


main()
