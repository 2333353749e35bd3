#!/usr/bin/env python3
"""What PyTorch and its libraries reach on this GPU, on the shapes of the speedrun models; the bench
binaries are compared with these figures. Prints one JSON line per case, on random data (zeros draw
less power and run faster), timed as bench_device times Assay's ops: after --heat seconds of the same
calls, all timed ones are queued behind other work of the GPU, with an event between two of them. So
Python's way to the GPU is not in the times. Where it is slower than the GPU in spite of that, the row
says waits_for_host.

  copy            device-to-device copy, read + write bytes
  matmul          bf16 x bf16 -> bf16 (cuBLASLt), fprop / dgrad / wgrad of every linear layer, the
                  head, 8192^3
  matmul_fp8      the same by torch._scaled_mm with one scale per tensor, fprop only, if this PyTorch
                  has it
  attention       scaled_dot_product_attention, causal, forward and backward, head widths 64 and 128
  grouped         torch._grouped_mm over 64 and 256 experts, forward only, rows in order and as many for
                  each expert (ours are gathered, and differ), if this PyTorch has it
  cross_entropy   logits of 8192 tokens, forward and backward

--device cpu --tiny runs everything with small shapes, to check the script where there is no GPU.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # main() says so; --help needs none
    torch = None

# The sizes of the speedrun models; products as in the large cases of tests/ops/linear_cases.cpp and
# grouped_linear_cases.cpp, which bench_gemm and bench_grouped time.
HIDDEN, FFN, VOCAB, SEQUENCE = 768, 3072, 50304, 2048
TOKENS, TOP_K, EXPERT_FFN = 16384, 6, 384


class Clock:
    """Times calls in the manner of machine/gpu_timer.cpp. Inputs rotate through copies that together exceed the caches."""

    WARM_UPS, MOST_QUEUED, BATCH_S = 3, 512, 0.02
    FILL_BYTES, FILLS, MOST_FILLS = 512 << 20, 12, 192  # 12 take 2 ms on a GPU that writes 3 TB/s

    def __init__(self, device, repeats, heat_s):
        self.device, self.repeats, self.heat_s = device, repeats, heat_s
        self.filled = None

    def measure(self, make_inputs, call, input_bytes):
        """(microseconds of each call, whether calls waited for the host)."""
        copies = 1 if self.device == "cpu" else max(1, min(8, int(200e6 // max(input_bytes, 1)) + 1))
        inputs = [make_inputs() for _ in range(copies)]

        def run(i):
            call(*inputs[i % copies])

        first = self.heat(run)
        if self.device == "cpu":
            return [self.host_us(run, first + i) for i in range(self.repeats)], False
        fills = self.FILLS
        while True:
            times, waits = self.queued_us(run, first, fills)
            if not waits or fills >= self.MOST_FILLS:
                return times, waits
            fills *= 4

    def heat(self, run):
        """Calls for heat_s seconds, at least WARM_UPS of them; returns their number."""
        start, runs, batch = time.perf_counter(), 0, self.WARM_UPS
        while True:
            begin = time.perf_counter()
            for _ in range(batch):
                run(runs)
                runs += 1
            self.wait()
            end = time.perf_counter()
            if end - start >= self.heat_s:
                return runs
            if end - begin < self.BATCH_S:  # long enough that the wait between two batches does not cool it
                batch = min(2 * batch, self.MOST_QUEUED)

    def host_us(self, run, i):
        begin = time.perf_counter()
        run(i)
        return (time.perf_counter() - begin) * 1e6

    def queued_us(self, run, first, fills):
        """Times of calls that are queued while the GPU fills memory; and whether it reached one before all of it was
        queued, so that it may have waited for the host."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(self.repeats + 1)]
        self.head_start(fills)
        waits = False
        for i in range(self.repeats):
            events[i].record()
            run(first + i)
            waits = waits or events[i].query()
        events[-1].record()
        self.wait()
        return [one.elapsed_time(next_one) * 1e3 for one, next_one in zip(events, events[1:])], waits

    def head_start(self, fills):
        if self.filled is None:
            self.filled = torch.empty(self.FILL_BYTES, dtype=torch.uint8, device=self.device)
        for i in range(fills):
            self.filled.fill_(i)

    def wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()


class Report:
    """Times the cases of the ops whose name contains `wanted`, and prints them."""

    def __init__(self, clock, out, wanted=""):
        self.clock, self.out, self.wanted = clock, out, wanted
        self.rows = 0

    def wants(self, op):
        return self.wanted in op

    def case(self, op, name, make_inputs, call, input_bytes, flops=0.0, moved_bytes=0.0):
        if not self.wants(op):
            return
        try:
            times, waits = self.clock.measure(make_inputs, call, input_bytes)
        except (RuntimeError, AttributeError, NotImplementedError) as error:  # out of memory is a RuntimeError
            print("%s %s: %s" % (op, name, str(error).splitlines()[0]), file=sys.stderr)
            return
        median = statistics.median(times)
        row = {"op": op, "case": name, "p50_us": round(median, 2), "min_us": round(min(times), 2)}
        if flops:
            row["tflop_per_s"] = round(flops / median * 1e-6, 2)
        if moved_bytes:
            row["tb_per_s"] = round(moved_bytes / median * 1e-6, 4)
        if waits:
            row["waits_for_host"] = True
        print(json.dumps(row), file=self.out, flush=True)
        self.rows += 1


def random(device, *shape):
    return torch.randn(*shape, device=device, dtype=torch.float32).to(torch.bfloat16)


def copies(report, device, tiny):
    for elements in (1 << 12,) if tiny else (1 << 26, 1 << 29):
        report.case("copy", "bf16 n=%d" % elements,
                    lambda n=elements: (random(device, n), torch.empty(n, device=device, dtype=torch.bfloat16)),
                    lambda x, y: y.copy_(x), 4 * elements, moved_bytes=4 * elements)


def matmuls(report, device, tiny):
    tokens = 64 if tiny else TOKENS
    layers = [("qkv", 3 * HIDDEN, HIDDEN), ("out", HIDDEN, HIDDEN), ("gate_up", 2 * FFN, HIDDEN),
              ("down", HIDDEN, FFN), ("router64", 64, HIDDEN), ("router256", 256, HIDDEN),
              ("router4096", 4096, HIDDEN)]
    shapes = [(name, tokens, out, width) for name, out, width in layers]
    shapes += [("head", 64 if tiny else 8192, 512 if tiny else VOCAB, HIDDEN)]
    shapes += [("square", *((64,) * 3 if tiny else (8192,) * 3))]
    for name, n, out, width in shapes:
        flops = 2.0 * n * out * width
        label = "N=%d out=%d in=%d" % (n, out, width)
        sizes = 2 * (n * width + out * width + n * out)
        report.case("matmul", "%s fprop %s" % (name, label),
                    lambda: (random(device, n, width), random(device, out, width)),
                    lambda x, w: x @ w.t(), sizes, flops)
        report.case("matmul", "%s dgrad %s" % (name, label),
                    lambda: (random(device, n, out), random(device, out, width)),
                    lambda dy, w: dy @ w, sizes, flops)
        report.case("matmul", "%s wgrad %s" % (name, label),
                    lambda: (random(device, n, out), random(device, n, width)),
                    lambda dy, x: dy.t() @ x, sizes, flops)
        if hasattr(torch, "float8_e4m3fn") and device != "cpu":
            one = torch.ones((), device=device)
            report.case("matmul_fp8", "%s fprop %s" % (name, label),
                        lambda: (random(device, n, width).to(torch.float8_e4m3fn),
                                 random(device, out, width).to(torch.float8_e4m3fn)),
                        lambda x, w: torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16), sizes, flops)


def attentions(report, device, tiny):
    batch, sequence = (1, 64) if tiny else (32, SEQUENCE)
    for heads, width in ((HIDDEN // 64, 64), (HIDDEN // 128, 128)):
        # Two products over the causal half.
        flops = 2.0 * batch * heads * sequence * sequence * width
        label = "B=%d T=%d H=%d D=%d" % (batch, sequence, heads, width)

        def make():
            return tuple(random(device, batch, heads, sequence, width).requires_grad_() for _ in range(3))

        def forward(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        size = 6 * batch * heads * sequence * width
        report.case("attention", "forward " + label, make, lambda *x: forward(*x).detach(), size, flops)

        def make_backward():
            q, k, v = make()
            y = forward(q, k, v)
            return q, k, v, y, torch.randn_like(y)

        report.case("attention", "backward " + label, make_backward,
                    lambda q, k, v, y, dy: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True), 2 * size,
                    2.5 * flops)


def grouped(report, device, tiny):
    if not hasattr(torch, "_grouped_mm") or device == "cpu":
        print("grouped: this PyTorch or device has no _grouped_mm", file=sys.stderr)
        return
    for experts in (64, 256):
        rows = (256 if tiny else TOKENS) * TOP_K  # a multiple of the experts
        offsets = torch.arange(1, experts + 1, device=device, dtype=torch.int32) * (rows // experts)
        for name, out, width in (("up", 2 * EXPERT_FFN, HIDDEN), ("down", HIDDEN, EXPERT_FFN)):
            report.case("grouped", "%s E=%d rows=%d out=%d in=%d" % (name, experts, rows, out, width),
                        lambda: (random(device, rows, width), random(device, experts, out, width)),
                        lambda x, w: torch._grouped_mm(x, w.transpose(-2, -1), offs=offsets),
                        2 * (rows * width + experts * out * width), 2.0 * rows * out * width)


def cross_entropies(report, device, tiny):
    tokens, vocab = (16, 128) if tiny else (8192, VOCAB)

    def make():
        return (random(device, tokens, vocab).requires_grad_(),
                torch.randint(vocab, (tokens,), device=device))

    def both(logits, target):
        loss = F.cross_entropy(logits, target)
        return torch.autograd.grad(loss, logits)

    report.case("cross_entropy", "forward+backward N=%d V=%d" % (tokens, vocab), make, both, 2 * tokens * vocab,
                moved_bytes=4.0 * tokens * vocab)


GROUPS = {copies: ("copy",), matmuls: ("matmul", "matmul_fp8"), attentions: ("attention",), grouped: ("grouped",),
          cross_entropies: ("cross_entropy",)}
OPS = [op for ops in GROUPS.values() for op in ops]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small shapes: checks the script only")
    parser.add_argument("--repeats", type=int, default=30, help="timed calls per case (default 30)")
    parser.add_argument("--heat", type=float,
                        help="seconds of the same calls before the timed ones (default 0.5; on a CPU 0)")
    parser.add_argument("--filter", default="", help="only ops whose name contains this text")
    parser.add_argument("--out", help="add the JSON lines to this file (default: standard output)")
    args = parser.parse_args()
    if args.heat is None:
        args.heat = 0.5 if args.device == "cuda" else 0.0
    if args.repeats < 1 or args.heat < 0:
        parser.error("--repeats is at least 1, --heat at least 0")
    if not any(args.filter in op for op in OPS):
        print("error: --filter %s is in the name of no op\nhint: the ops are %s" % (args.filter, ", ".join(OPS)),
              file=sys.stderr)
        return 1
    if torch is None:
        print("error: %s has no PyTorch\nhint: `bash tools/setup.sh --peers` installs it for a CPU; for a GPU run this with a "
              "Python that has its build for CUDA" % sys.executable, file=sys.stderr)
        return 1
    if args.device == "cuda" and not torch.cuda.is_available():
        print("error: this PyTorch (%s) sees no CUDA device\nhint: --device cpu --tiny checks the script" % torch.__version__,
              file=sys.stderr)
        return 1
    out = open(args.out, "a") if args.out else sys.stdout
    torch.manual_seed(0)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "heat_s": args.heat,
                      "repeats": args.repeats}), file=out)
    report = Report(Clock(args.device, args.repeats, args.heat), out, args.filter)
    for group, ops in GROUPS.items():
        if any(report.wants(op) for op in ops):
            group(report, args.device, args.tiny)
    if report.rows == 0:
        print("error: no case was timed\nhint: the reasons are above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
