"""The speedrun models and Super-4096 on one GPU in PyTorch, written as one writes them for speed: the peers of
bench/peers/torch_gpu_step.py. Shapes are those of models/presets; tests compare the numbers of parameters."""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Shape:
    preset: str  # below models/presets
    vocab: int = 50304
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    sequence: int = 2048
    micro_batch: int = 32
    batch_tokens: int = 524288
    rope_theta: float = 50000.0
    norm_eps: float = 1e-5
    experts: int = 0
    top_k: int = 0
    shared: int = 0
    expert_ffn: int = 384
    first_dense: int = 0
    bias_rate: float = 1e-4


SHAPES = {
    "dense": Shape("speedrun/dense.yaml"),
    "moe-64": Shape("speedrun/moe-64.yaml", experts=64, top_k=6, shared=2, first_dense=1),
    "moe-256": Shape("speedrun/moe-256.yaml", experts=256, top_k=7, shared=1),
    "super-4096": Shape("super/one-gpu/baseline.yaml", experts=4096, top_k=7, shared=1, expert_ffn=32, micro_batch=8,
                        batch_tokens=65536),
}


def tiny(shape):
    """The same model in a size that a CPU steps at once."""
    return dataclasses.replace(shape, vocab=512, hidden=64, layers=2, heads=2, ffn=128, sequence=64, micro_batch=4,
                               batch_tokens=1024, experts=min(shape.experts, 8), top_k=min(shape.top_k, 2), expert_ffn=32)


class RmsNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c.hidden))
        self.eps = c.norm_eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rope_tables(c):
    width = c.hidden // c.heads
    frequency = c.rope_theta ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(c.sequence)[:, None] * frequency
    return torch.cat([angle.cos(), angle.cos()], -1), torch.cat([-angle.sin(), angle.sin()], -1)


def rotate(x, cos, sin):
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.qkv = nn.Linear(c.hidden, 3 * c.hidden, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        c = self.c
        b, t, width = x.shape
        qkv = self.qkv(x).view(b, t, 3, c.heads, width // c.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[0], cos, sin), rotate(qkv[1], cos, sin)
        y = F.scaled_dot_product_attention(q, k, qkv[2], is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, width))


class SwiGlu(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


MOST_GROUPS = 1023  # of torch._grouped_mm: its CUDA kernel refuses 1024


def swiglu_of_groups(rows, gate_up, down, end):
    gate, up = torch._grouped_mm(rows, gate_up, offs=end).chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * up, down, offs=end)


@torch.compiler.disable  # a compilation for every length of a piece
def swiglu_in_pieces(rows, gate_up, down, end):
    """The same with more groups than the kernel takes. The host reads where each piece of them ends."""
    size = -(-len(end) // -(-len(end) // MOST_GROUPS))  # groups of a piece; the last one may have fewer
    cuts = [0, *end[size - 1:-1:size].tolist(), len(rows)]
    pieces = rows.split([b - a for a, b in zip(cuts, cuts[1:])])
    return torch.cat([swiglu_of_groups(piece, *weights, part - begin) for piece, *weights, part, begin
                      in zip(pieces, gate_up.split(size), down.split(size), end.split(size), cuts)])


class Experts(nn.Module):
    """Sigmoid scores, the top K of score + bias, gates that add up to 1. The bias follows the load outside of autograd."""

    def __init__(self, c, way):
        super().__init__()
        self.c, self.way = c, way
        self.router = nn.Linear(c.hidden, c.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(c.experts, c.hidden, 2 * c.expert_ffn))
        self.down = nn.Parameter(torch.empty(c.experts, c.expert_ffn, c.hidden))
        self.shared = SwiGlu(c.hidden, c.shared * c.expert_ffn) if c.shared else None
        self.register_buffer("bias", torch.zeros(c.experts), persistent=False)
        self.register_buffer("load", torch.zeros(c.experts), persistent=False)

    def route(self, flat):
        with torch.autocast(flat.device.type, enabled=False):
            score = F.linear(flat.float(), self.router.weight.float()).sigmoid()
            chosen = (score.detach() + self.bias).topk(self.c.top_k, -1).indices
            gate = score.gather(-1, chosen)
            return chosen, gate / gate.sum(-1, keepdim=True)

    def forward(self, x):
        flat = x.reshape(-1, self.c.hidden)
        chosen, gate = self.route(flat)
        dtype = torch.bfloat16
        rows = flat.to(dtype)
        y = self.grouped(rows, chosen, gate.to(dtype)) if self.way == "grouped" else self.looped(rows, chosen, gate.to(dtype))
        if self.shared is not None:
            y = y + self.shared(rows)
        return y.view_as(x)

    def grouped(self, x, chosen, gate):
        """One product over all experts: rows sorted by expert, then put back by the inverse order."""
        c = self.c
        order = chosen.view(-1).argsort(stable=True)
        count = torch.zeros(c.experts, dtype=torch.int32, device=x.device)
        count.scatter_add_(0, chosen.view(-1), torch.ones_like(chosen.view(-1), dtype=torch.int32))
        self.load += count
        end = count.cumsum(0, dtype=torch.int32)
        rows = x[order // c.top_k]
        product = swiglu_of_groups if c.experts <= MOST_GROUPS else swiglu_in_pieces
        y = product(rows, self.gate_up.to(x.dtype), self.down.to(x.dtype), end)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=x.device)
        return (y[back].view(len(x), c.top_k, -1) * gate[..., None]).sum(1)

    def looped(self, x, chosen, gate):
        """An expert after the other, as many public models do."""
        y = torch.zeros_like(x)
        with torch.no_grad():
            self.load += torch.bincount(chosen.view(-1), minlength=self.c.experts)
        for e in range(self.c.experts):
            token, slot = torch.where(chosen == e)
            if len(token) == 0:
                continue
            g, u = (x[token] @ self.gate_up[e].to(x.dtype)).chunk(2, -1)
            y = y.index_add(0, token, (F.silu(g) * u @ self.down[e].to(x.dtype)) * gate[token, slot, None])
        return y

    @torch.no_grad()
    def follow_load(self):
        self.bias += self.c.bias_rate * (self.load.mean() - self.load).sign()
        self.load.zero_()


class Block(nn.Module):
    def __init__(self, c, layer, experts):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(c), RmsNorm(c)
        self.attention = Attention(c)
        sparse = c.experts > 0 and layer >= c.first_dense
        self.ffn = Experts(c, experts) if sparse else SwiGlu(c.hidden, c.ffn)
        self.gain = (2 * c.layers) ** -0.5

    def forward(self, x, cos, sin):
        x = x + self.gain * self.attention(self.norm1(x), cos, sin)
        return x + self.ffn(self.norm2(x))


class ChunkedLoss(torch.autograd.Function):
    """The head and its cross-entropy over some rows at a time: all logits are never in memory. Gradients are computed in
    the forward pass; the weight's are added up in fp32."""

    ROWS = 8192

    @staticmethod
    def forward(ctx, x, weight, target):
        loss = torch.zeros((), device=x.device)
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        low = weight.to(x.dtype)
        for begin in range(0, len(x), ChunkedLoss.ROWS):
            rows = slice(begin, begin + ChunkedLoss.ROWS)
            slope, part = loss_and_slope(x[rows] @ low.t(), target[rows], len(x))
            loss += part
            dx[rows] = slope @ low
            dweight += slope.t() @ x[rows]
        ctx.save_for_backward(dx, dweight.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx, dloss):
        dx, dweight = ctx.saved_tensors
        return dx * dloss, dweight * dloss, None


def loss_and_slope(logits, target, count):
    """Sum of the rows' losses / count, and its gradient in the logits' type."""
    log_p = logits.float().log_softmax(-1)
    loss = -log_p.gather(1, target[:, None]).sum() / count
    slope = log_p.exp()
    slope.scatter_add_(1, target[:, None], torch.full_like(target[:, None], -1, dtype=slope.dtype))
    return (slope / count).to(logits.dtype), loss


class Transformer(nn.Module):
    def __init__(self, c, experts="grouped", head_loss="chunked"):
        super().__init__()
        self.c, self.head_loss = c, head_loss
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        self.blocks = nn.ModuleList(Block(c, layer, experts) for layer in range(c.layers))
        self.norm = RmsNorm(c)
        self.head = nn.Linear(c.hidden, c.vocab, bias=False)
        cos, sin = rope_tables(c)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @torch.no_grad()
    def initialise(self):
        for p in self.parameters():
            if p.dim() > 1:
                p.normal_(std=0.02)

    def compile(self):
        """Block by block: no graph breaks between them, and one compilation for all that are alike."""
        global loss_and_slope
        for block in self.blocks:
            block.compile()
        loss_and_slope = torch.compile(loss_and_slope)

    def forward(self, token, target):
        x = self.embedding(token).to(torch.bfloat16)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x).view(-1, self.c.hidden)
        target = target.reshape(-1)
        if self.head_loss == "chunked":
            return ChunkedLoss.apply(x, self.head.weight, target)
        return F.cross_entropy(self.head(x).float(), target)

    def follow_load(self):
        for block in self.blocks:
            if isinstance(block.ffn, Experts):
                block.ffn.follow_load()
