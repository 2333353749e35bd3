#!/usr/bin/env python3
"""Trained repeatedly on one batch, dense and MoE models overfit it to a loss under 0.05 nats. The
tokens are random, so other tokens stay unpredictable: a loss below ln V there would mean that
targets leak. The first loss is that of an untrained model, ln V + 1/2."""
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bad_input import shard
from harness import MOE, Workplace, check, rows

VOCABULARY = 512
CONFIG = """
model: {{hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: {vocabulary}{moe}}}
optimizer: {{lr: 5e-3, weight_decay: 0}}
schedule: {{warmup: 10, warmdown: 20}}
run: {{steps: 80, batch_tokens: 512, sequence: 64, micro_batch: 4, log_every: 1}}
eval: {{every: 80, tokens: 512}}
data: {{train: [batch.bin], val: [other.bin]}}
"""


def main():
    for moe in ("", MOE):
        with Workplace() as place:
            draw = random.Random(5)
            for name in ("batch.bin", "other.bin"):
                shard(place.path / name, [draw.randrange(VOCABULARY) for _ in range(513)])
            place.config.write_text(CONFIG.format(vocabulary=VOCABULARY, moe=moe))
            place.train("run")
            losses = [value for value, in rows(
                place.run("run"), "SELECT value FROM scalar WHERE name = 'train_loss_nats' ORDER BY step")]
            first = math.log(VOCABULARY) + 0.5
            check(abs(losses[0] - first) < 0.2, f"the first loss is {losses[0]:.3f}, not about {first:.3f}")
            check(losses[-1] < 0.05, f"after {len(losses)} steps on one batch the loss is {losses[-1]:.4f}")
            other = rows(place.run("run"), "SELECT value FROM eval WHERE metric = 'loss_nats' ORDER BY step")[-1][0]
            check(other > math.log(VOCABULARY), f"no model can know other random tokens, this one has {other:.3f}")
            print(f"{'MoE' if moe else 'dense'}: {losses[0]:.3f} to {losses[-1]:.4f} nats, other tokens {other:.3f}")


main()
