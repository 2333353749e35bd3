#!/usr/bin/env python3
"""Tokens per second of a training step in plain PyTorch, for comparison with build/bench_step: the
same shapes, the same arithmetic per token, written for speed within PyTorch. Prints one JSON line.

dense: 6 layers, 256 wide, 8 heads, SwiGLU 768, vocabulary 8192, 8 x 256 tokens, RMSNorm, RoPE,
untied head, AdamW, global norm clipping. moe: every FFN a Mixtral-style loop over 4 experts of
width 384, top-2, with the Switch balancing loss and z-loss. --weights, --attention, --experts, --optimizer and
--compile choose among the ways in which PyTorch's users write each part; bench/peers/cpu.py tries them.
"""
import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import sys
import time
import types

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:  # arguments() says so; --help needs none
    torch, nn = None, types.SimpleNamespace(Module=object)


class Config:
    vocab, hidden, layers, heads, ffn = 8192, 256, 6, 8, 768
    experts, top_k, expert_ffn = 4, 2, 384
    sequence, batch = 256, 8
    aux_alpha, z_alpha = 0.01, 0.001


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps).to(x.dtype) * self.weight


def rope_tables(c):
    width = c.hidden // c.heads
    angle = torch.arange(c.sequence)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.cat([angle.cos(), angle.cos()], -1), torch.cat([-angle.sin(), angle.sin()], -1)


def rotate(x, cos, sin):
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Attention(nn.Module):
    def __init__(self, c, variant):
        super().__init__()
        self.c, self.variant = c, variant
        self.qkv = nn.Linear(c.hidden, 3 * c.hidden, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)
        hidden_future = torch.full((c.sequence, c.sequence), -math.inf).triu(1)
        self.register_buffer("mask", hidden_future, persistent=False)

    def forward(self, x, cos, sin):
        c = self.c
        b, t, width = x.shape
        qkv = self.qkv(x).view(b, t, 3, c.heads, width // c.heads).permute(2, 0, 3, 1, 4)
        q, k, v = rotate(qkv[0], cos, sin), rotate(qkv[1], cos, sin), qkv[2]
        if self.variant == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            bh, d = b * c.heads, width // c.heads
            q, k, v = (u.reshape(bh, t, d) for u in (q, k, v))
            score = torch.baddbmm(self.mask.to(q.dtype), q, k.transpose(1, 2), alpha=d ** -0.5)
            y = torch.bmm(score.softmax(-1), v).view(b, c.heads, t, d)
        return self.out(y.transpose(1, 2).reshape(b, t, width))


class SwiGlu(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Moe(nn.Module):
    def __init__(self, c, way):
        super().__init__()
        self.c, self.way = c, way
        self.router = nn.Linear(c.hidden, c.experts, bias=False)
        if way == "loop":
            self.experts = nn.ModuleList(SwiGlu(c.hidden, c.expert_ffn) for _ in range(c.experts))
        else:
            self.gate_up = nn.Parameter(0.02 * torch.randn(c.experts, c.hidden, 2 * c.expert_ffn))
            self.down = nn.Parameter(0.02 * torch.randn(c.experts, c.expert_ffn, c.hidden))

    def forward(self, x):
        c = self.c
        flat = x.reshape(-1, c.hidden)
        with torch.autocast("cpu", enabled=False):
            logits = F.linear(flat.float(), self.router.weight.float())
            probability = logits.softmax(-1)
            gate, chosen = probability.topk(c.top_k, -1)
            gate = (gate / gate.sum(-1, keepdim=True)).to(flat.dtype)
            share = torch.bincount(chosen.view(-1), minlength=c.experts) / chosen.numel()
            loss = (c.aux_alpha * c.experts * (share * probability.mean(0)).sum()
                    + c.z_alpha * logits.logsumexp(-1).pow(2).mean())
        ways = {"loop": self.looped, "sorted": self.sorted, "grouped": self.grouped}
        return ways[self.way](flat, chosen, gate).view_as(x), loss

    def looped(self, x, chosen, gate):
        """An expert after the other, with its rows gathered and added back: what most public models do."""
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == e)
            rows = expert(x.index_select(0, token)) * gate[token, slot, None]
            y.index_add_(0, token, rows.to(y.dtype))
        return y

    def in_order(self, x, chosen):
        """Rows in the order of their experts, how many each has, and where each assignment went."""
        order = chosen.view(-1).argsort(stable=True)
        count = torch.bincount(chosen.view(-1), minlength=self.c.experts)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return x[order // self.c.top_k], count, back

    def combined(self, y, back, gate):
        return (y[back].view(len(gate), self.c.top_k, -1) * gate[..., None]).sum(1)

    def sorted(self, x, chosen, gate):
        """Rows sorted by expert, then a product for each expert's slice."""
        rows, count, back = self.in_order(x, chosen)
        parts = []
        for e, part in enumerate(rows.split(count.tolist())):
            g, u = (part @ self.gate_up[e]).chunk(2, -1)
            parts.append(F.silu(g) * u @ self.down[e])
        return self.combined(torch.cat(parts), back, gate)

    def grouped(self, x, chosen, gate):
        """Rows sorted by expert, then one product over all experts. PyTorch has it in bf16."""
        rows, count, back = self.in_order(x.to(torch.bfloat16), chosen)
        end = count.cumsum(0, dtype=torch.int32)
        g, u = torch._grouped_mm(rows, self.gate_up.to(rows.dtype), offs=end).chunk(2, -1)
        y = torch._grouped_mm(F.silu(g) * u, self.down.to(rows.dtype), offs=end)
        return self.combined(y.to(x.dtype), back, gate)


class Block(nn.Module):
    def __init__(self, c, model, attention, experts):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(c.hidden), RmsNorm(c.hidden)
        self.attention = Attention(c, attention)
        self.ffn = Moe(c, experts) if model == "moe" else SwiGlu(c.hidden, c.ffn)
        self.moe = model == "moe"

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        if not self.moe:
            return x + self.ffn(self.norm2(x)), 0.0
        y, loss = self.ffn(self.norm2(x))
        return x + y, loss


class Transformer(nn.Module):
    def __init__(self, c, model, attention, experts):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        self.blocks = nn.ModuleList(Block(c, model, attention, experts) for _ in range(c.layers))
        self.norm = RmsNorm(c.hidden)
        self.head = nn.Linear(c.hidden, c.vocab, bias=False)
        cos, sin = rope_tables(c)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        extra = 0.0
        for block in self.blocks:
            x, loss = block(x, cos, sin)
            extra = extra + loss
        logits = self.head(self.norm(x)).view(-1, self.c.vocab)
        return F.cross_entropy(logits.float(), targets.reshape(-1)) + extra / self.c.layers


def adamw(parameters, kind):
    options = dict(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    if kind == "fused":
        return torch.optim.AdamW(parameters, fused=True, **options)
    try:
        return torch.optim.AdamW(parameters, foreach=True, **options)
    except TypeError:  # PyTorch before 1.12 has no foreach
        return torch.optim.AdamW(parameters, **options)


class Masters:
    """The model in bf16, with its residual stream and what backward keeps, as in Assay; and its weights in fp32,
    which the optimizer steps."""

    def __init__(self, model):
        self.fp32 = [p.detach().clone() for p in model.parameters()]
        self.bf16 = list(model.to(torch.bfloat16).parameters())
        for master in self.fp32:
            master.grad = torch.empty_like(master)

    def take_gradients(self):
        copy_all([master.grad for master in self.fp32], [p.grad for p in self.bf16])

    def give_weights(self):
        with torch.no_grad():
            copy_all(self.bf16, self.fp32)


def copy_all(to, values):
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(to, values)
        return
    for each, value in zip(to, values):  # PyTorch before 2.1
        each.copy_(value)


class Trainer:
    """A model and its optimizer; run(tokens, targets) is the loss, compiled or not."""

    def __init__(self, model, a):
        self.model, self.masters = model, Masters(model) if a.weights == "masters" else None
        self.stepped = self.masters.fp32 if self.masters else list(model.parameters())
        self.optimizer = adamw(self.stepped, a.optimizer)
        self.autocast = a.dtype == "bf16" and not self.masters
        self.run = model if a.compile == "no" else torch.compile(model, mode=a.compile)

    def step(self, tokens, targets):
        """Its loss."""
        self.model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.run(tokens, targets)
        loss.backward()
        if self.masters:
            self.masters.take_gradients()
        nn.utils.clip_grad_norm_(self.stepped, 1.0)
        self.optimizer.step()
        if self.masters:
            self.masters.give_weights()
        return float(loss.detach())


def leave_out_amx():
    """torch.compile writes code for the matrix unit where the CPU has one, whatever ATEN_CPU_CAPABILITY says."""
    if hasattr(getattr(torch, "cpu", None), "_is_amx_tile_supported"):
        torch.cpu._is_amx_tile_supported = lambda: False


def may_use_amx():
    """Whether a library has asked Linux for the matrix unit; without that its instructions end the process."""
    ARCH_PRCTL, GET_XCOMP_PERM, XTILE_DATA = 158, 0x1022, 18
    granted = ctypes.c_uint64()
    if platform.machine() != "x86_64" or ctypes.CDLL(None).syscall(ARCH_PRCTL, GET_XCOMP_PERM, ctypes.byref(granted)) != 0:
        return False
    return bool(granted.value >> XTILE_DATA & 1)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=["dense", "moe"], default="dense")
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--weights", choices=["autocast", "masters"], default="autocast",
                   help="of bf16: weights in fp32 with autocast around forward (the usual recipe, the default), or all "
                        "in bf16 beside masters in fp32")
    p.add_argument("--attention", choices=["bmm", "sdpa"], default="bmm")
    p.add_argument("--experts", choices=["loop", "sorted", "grouped"], default="loop")
    p.add_argument("--optimizer", choices=["foreach", "fused"], default="foreach")
    p.add_argument("--compile", choices=["no", "default", "max-autotune"], default="no", help="the mode of torch.compile")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--no-amx", action="store_true", help="torch.compile writes no code for the matrix unit (AMX); with "
                                                         "TORCHINDUCTOR_CPP_MARCH it is the CPU to compile for")
    a = p.parse_args()
    if torch is None:
        sys.exit(f"error: {sys.executable} has no PyTorch\nhint: `bash tools/setup.sh --peers` installs it")
    if a.attention == "sdpa" and not hasattr(F, "scaled_dot_product_attention"):
        p.error("this PyTorch (%s) has no scaled_dot_product_attention" % torch.__version__)
    if a.compile != "no" and not hasattr(torch, "compile"):
        p.error("this PyTorch (%s) has no torch.compile" % torch.__version__)
    if a.weights == "masters" and a.dtype != "bf16":
        p.error("--weights masters is a way of --dtype bf16")
    if a.compile != "no" and a.no_amx:
        from torch._inductor import config
        if not hasattr(config.cpp, "march"):
            p.error("torch.compile of this PyTorch (%s) compiles for all that the CPU has" % torch.__version__)
    return a


def main():
    a = arguments()
    if a.no_amx:
        leave_out_amx()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    c = Config()
    trainer = Trainer(Transformer(c, a.model, a.attention, a.experts), a)
    tokens = torch.randint(c.vocab, (8, c.batch, c.sequence + 1))
    times, loss = [], 0.0
    for step in range(a.warmup + a.steps):
        batch = tokens[step % len(tokens)]
        began = time.perf_counter()
        loss = trainer.step(batch[:, :-1], batch[:, 1:])
        if step >= a.warmup:
            times.append(time.perf_counter() - began)

    step_s = statistics.median(times)
    print(json.dumps({
        "tokens_per_s": round(c.batch * c.sequence / step_s, 1), "model": a.model, "recipe": a.dtype,
        "step_ms": round(1e3 * step_s, 2), "steps": a.steps, "threads": torch.get_num_threads(),
        "weights": a.weights, "attention": a.attention, "experts": a.experts, "optimizer": a.optimizer,
        "compile": a.compile,
        "loss": round(loss, 4), "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "torch": torch.__version__, "core_type": os.environ.get("OPENBLAS_CORETYPE", ""), "amx": may_use_amx(),
    }))


if __name__ == "__main__":
    main()
