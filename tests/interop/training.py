"""Ten optimizer steps as docs/numerics.md defines them, in PyTorch, on a model of transformers: an
independent check of `assay train`. Transformers' own auxiliary loss pools the layers and does not
divide by the experts per token, so this file has its own."""
import torch
import torch.nn.functional as F

SETTINGS = dict(steps=10, lr=2e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0, warmup=3, warmdown=4,
                batch_tokens=512, sequence=64, micro_batch=4, aux_alpha=0.05, z_alpha=0.005, bias_rate=0.002, bias_steps=20)


def share(step, s):
    if step < s["warmup"]:
        return (step + 1) / s["warmup"]
    return min(1.0, (s["steps"] - step) / s["warmdown"])


class Routers:
    """Records, by layer, the inputs and gates of a model's routers in its last forward pass."""

    def __init__(self, model):
        self.seen, self.gates, self.leads = {}, {}, {}
        for i, layer in enumerate(model.model.layers):
            gate = getattr(getattr(layer, "block_sparse_moe", layer.mlp if hasattr(layer, "mlp") else None), "gate", None)
            if gate is not None:
                self.gates[i] = gate
                gate.register_forward_hook(lambda module, args, out, i=i: self.seen.__setitem__(i, args[0]))

    def top_k(self, model):
        return model.config.num_experts_per_tok

    def losses(self, model, kind):
        """Means over the layers of the auxiliary loss and of the z-loss, and each layer's loads."""
        k, aux, z, counts = self.top_k(model), [], [], {}
        for i, gate in self.gates.items():
            x = self.seen[i].reshape(-1, model.config.hidden_size)
            logits = F.linear(x.float(), gate.weight.float())
            experts = logits.shape[-1]
            if kind == "switch":
                scores = selection = logits.softmax(-1)
            else:
                scores = logits.sigmoid()
                selection = scores + gate.e_score_correction_bias
            best = selection[:256].topk(k + 1, dim=-1).values
            self.leads[i] = (best[:, 0] - best[:, -1]).mean().item()  # of the last micro-batch
            chosen = selection.topk(k, dim=-1).indices
            counts[i] = torch.zeros(experts).index_add_(0, chosen.flatten(), torch.ones(chosen.numel()))
            frequency = counts[i] / counts[i].sum()
            if kind == "switch":
                importance = scores.mean(0)
            else:
                gates = scores.gather(1, chosen)
                gates = gates / gates.sum(-1, keepdim=True)
                importance = torch.zeros(experts).index_add(0, chosen.flatten(), gates.flatten())
                importance = importance / importance.sum()
            aux.append(experts * (frequency * importance).sum())
            z.append(logits.logsumexp(-1).square().mean())
        return torch.stack(aux).mean(), torch.stack(z).mean(), counts


def groups(model, s):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        kept = "norm" in name or "embed_tokens" in name or "lm_head" in name or name.endswith(".gate.weight")
        (others if kept else decayed).append(parameter)
    return [dict(params=decayed, weight_decay=s["weight_decay"]), dict(params=others, weight_decay=0.0)]


@torch.no_grad()
def update_biases(routers, counts, s, kind):
    for i, gate in routers.gates.items():
        load = counts[i] / counts[i].sum()
        sign = torch.sign(load - 1 / len(load))
        rate = routers.leads[i] / (2 * s["bias_steps"]) if kind == "auto" else s["bias_rate"]
        gate.e_score_correction_bias.sub_(rate * (sign - sign.mean())).clamp_(-16, 16)


def optimizers(model, s, kind):
    """AdamW, or for kind muon of a dense model torch.optim.Muon and AdamW for the rest."""
    adamw = lambda of: torch.optim.AdamW(of, lr=s["lr"], betas=(s["beta1"], s["beta2"]), eps=s["eps"], foreach=False)
    decayed, others = groups(model, s)
    if kind != "muon":
        return [adamw([decayed, others])]
    return [torch.optim.Muon(decayed["params"], lr=s["lr"], weight_decay=s["weight_decay"], momentum=0.95, nesterov=True,
                             ns_steps=5, adjust_lr_fn="match_rms_adamw"), adamw([others])]


def train(model, tokens, kind):
    """Returns the losses in nats and gradient norms of the steps. kind: "" for dense, "muon" for
    dense with Muon, else the auxiliary loss, or auto: gates with
    bias_rate auto."""
    s = SETTINGS
    model.train()
    routers = Routers(model)
    steppers = optimizers(model, s, kind)
    rows, micros = s["batch_tokens"] // s["sequence"], s["batch_tokens"] // (s["sequence"] * s["micro_batch"])
    losses, norms = [], []
    for step in range(s["steps"]):
        block = tokens[step * s["batch_tokens"]:(step + 1) * s["batch_tokens"] + 1]
        inputs, targets = block[:-1].reshape(rows, -1), block[1:].reshape(rows, -1)
        model.zero_grad()
        loss, load = 0.0, {}
        for m in range(micros):
            part = slice(m * s["micro_batch"], (m + 1) * s["micro_batch"])
            logits = model(inputs[part], use_cache=False).logits.float()
            nats = F.cross_entropy(logits.flatten(0, 1), targets[part].flatten(), reduction="sum") / s["batch_tokens"]
            total = nats
            if kind in ("switch", "gates", "auto"):
                aux, z, counts = routers.losses(model, kind)
                total = total + (s["aux_alpha"] * aux + s["z_alpha"] * z) / micros
                load = {i: load.get(i, 0) + c for i, c in counts.items()}
            total.backward()
            loss += nats.item()
        norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)).item()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(min(1.0, s["clip"] / norm))
        for optimizer in steppers:
            for group in optimizer.param_groups:
                group["lr"] = s["lr"] * share(step, s)
            optimizer.step()
        if kind in ("gates", "auto"):
            update_biases(routers, load, s, kind)
        losses.append(loss)
        norms.append(norm)
    return losses, norms
