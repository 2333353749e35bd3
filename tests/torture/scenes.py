"""The commands that are struck. Each works in a folder of its own and reads what make_shared() has made."""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
import children
from harness import ASSAY

CONFIG = """
model: {{hidden: 32, layers: 2, heads: 1, ffn: 64, vocab_size: 300{model}}}
optimizer: {{lr: 3e-3}}
schedule: {{warmup: 2, warmdown: 6}}
run: {{steps: 24, batch_tokens: 256, sequence: 32, micro_batch: 4, checkpoint_every: 3, threads: 1}}
eval: {{every: 6, tokens: 512}}
telemetry: {{window: 8, probe_every: 4}}
data:
  cache: {cache}
  synth: {{train_tokens: 30000, val_tokens: 3000, vocab_size: 300}}
"""
MOE = ", moe: {experts: 4, top_k: 2, expert_ffn: 32, router: {score: sigmoid, bias_rate: 1e-3, aux: gates, aux_alpha: 0.01}}"
MATRIX = """
name: tortured
models: {dense: dense.yaml, moe: moe.yaml}
contracts: [{kind: steps, branches: [0.5], branch_warmdown: 0.3}]
seeds: [1]
claims: [{measure: val_loss, of: moe, below: dense}]
set: {run.steps: 20}
threads: 1
"""
PLAIN = """
models: {dense: dense.yaml, moe: moe.yaml}
contracts: [{kind: steps}]
seeds: [1]
threads: 1
"""


@dataclasses.dataclass(frozen=True)
class Scene:
    name: str
    words: tuple        # of the command; {here}: its folder, {shared}: what all read
    copies: tuple = ()  # (of what is shared, its name in the folder)
    done: str = ""      # says the command that had ended before it was killed
    trains: str = ""    # the run, or the matrix, in the folder that it trains
    codes: tuple = (0, 1, 3)
    windows: bool = False  # its telemetry has measures over a window of steps
    weight: int = 2     # cases of it in a round
    output: str = ""    # the file in the folder that its standard output goes to
    makes: str = ""     # the folder that must not be there, of a command that also records in the run

    def command(self, here, shared):
        return [str(ASSAY)] + [word.format(here=here, shared=shared) for word in self.words]

    def output_in(self, here):
        return open(here / self.output, "wb") if self.output else contextlib.nullcontext(subprocess.PIPE)

    def fresh(self, here, shared):
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        for source, name in self.copies:
            if (shared / source).exists():
                shutil.copytree(shared / source, here / name, symlinks=True)


SCENES = [
    Scene("dense", ("train", "{shared}/dense.yaml", "--run", "{here}/run"), trains="run", weight=3),
    Scene("mixture", ("train", "{shared}/moe.yaml", "--run", "{here}/run", "--set", "run.keep_best=true"), trains="run", weight=3,
          windows=True),
    Scene("corpus", ("train", "{shared}/dense.yaml", "--run", "{here}/run", "--set", "data.cache={here}/cache", "--steps", "6"),
          trains="run"),
    Scene("resumed", ("train", "{shared}/moe.yaml", "--run", "{here}/run", "--set", "run.keep_best=true"), copies=(("half", "run"),),
          trains="run", windows=True),
    Scene("branch", ("branch", "{shared}/trunk", "--at-step", "9", "--warmdown-steps", "6", "--run", "{here}/b"), trains="b"),
    Scene("matrix", ("matrix", "{shared}/m.yaml", "--run-dir", "{here}/m"), trains="m", weight=1),
    Scene("rest", ("matrix", "{shared}/m.yaml", "--run-dir", "{here}/m"), copies=(("part", "m"),), trains="m", weight=1),
    Scene("ranks", ("train", "{shared}/moe.yaml", "--run", "{here}/run", "--ranks", "2"), trains="run", codes=(0, 1, 3, 4), weight=1),
    Scene("prepare", ("data", "prepare", "{shared}/text.txt", "--tokenizer", "{shared}/tokenizer.json", "-o", "{here}/c",
                      "--shuffle", "1", "--shard-tokens", "4000"), done="already holds a corpus"),
    Scene("tokenizer", ("tokenizer", "train", "{shared}/text.txt", "--vocab-size", "300", "-o", "{here}/t.json"),
          done="already exists"),
    Scene("gpt2", ("tokenizer", "train", "{shared}/text.txt", "--vocab-size", "300", "--format", "gpt2", "-o", "{here}/t"),
          done="already exists"),
    Scene("export", ("export", "{shared}/trunk", "-o", "{here}/e", "--max-shard-mib", "1", "--dtype", "fp32"),
          done="holds files already"),
    Scene("import", ("import", "{shared}/exported", "-o", "{here}/i"), done="holds files already"),
    Scene("dissect", ("dissect", "used", "{here}/t", "--export", "{here}/u"), copies=(("trunk", "t"),),
          done="holds files already", makes="u"),
    Scene("damage", ("dissect", "damage", "{here}/t"), copies=(("trunk", "t"),), weight=1),
    Scene("merge", ("checkpoint", "merge", "{here}/r"), copies=(("several", "r"),), weight=1),
    Scene("synth", ("data", "synth", "-o", "{here}/s", "--tokens", "30000", "--val-tokens", "3000", "--vocab-size", "300"),
          done="already holds a corpus", weight=1),
    Scene("reuse", ("matrix", "{shared}/plain.yaml", "--run-dir", "{here}/m", "--reuse", "{shared}/plain"), trains="m"),
    Scene("eval", ("eval", "{here}/t"), copies=(("trunk", "t"),), output="said.txt", weight=1),
    Scene("report", ("report", "{here}/m", "-o", "{here}/page.html", "--plotly", "link"), copies=(("tried", "m"),), weight=1),
    Scene("compare", ("compare", "{here}/t", "{shared}/first", "--force", "--json"), copies=(("trunk", "t"),),
          output="said.json", weight=1),
    Scene("map", ("map", "{here}/m", "--html", "{here}/map.html", "--json"), copies=(("tried", "m"),), output="said.json", weight=1),
    Scene("telemetry", ("telemetry", "{here}/t", "--csv", "{here}/c", "--tensorboard", "{here}/b"), copies=(("trunk", "t"),),
          done="is not empty", weight=1),
    Scene("family", ("match", "--like", "{shared}/moe.yaml", "--experts", "2,4", "-o", "{here}/f"), done="is there already",
          weight=1),
    Scene("receipt", ("receipt", "make", "{here}/t"), copies=(("trunk", "t"),), trains="t", weight=1),
    Scene("scoreboard", ("published", "scoreboard", "{here}/m", "--claims", "{shared}/m.yaml", "-o", "{here}/s.md"),
          copies=(("tried", "m"),), weight=1),
    Scene("simulate", ("simulate", "{shared}/moe.yaml", "--json"), output="said.json", weight=1),
]


def environment(shared):
    return {**os.environ, "ASSAY_MATMUL_GFLOPS": "100", "XDG_CACHE_HOME": str(shared / "xdg"), "OMP_NUM_THREADS": "1"}


def make_shared(shared):
    """Configurations, a text with its tokenizer, a trained trunk, and it exported."""
    shared.mkdir(parents=True)
    (shared / "dense.yaml").write_text(CONFIG.format(model="", cache=shared / "cache"))
    (shared / "moe.yaml").write_text(CONFIG.format(model=MOE, cache=shared / "cache"))
    (shared / "m.yaml").write_text(MATRIX)
    (shared / "plain.yaml").write_text(PLAIN)
    (shared / "text.txt").write_text("<|endoftext|>\n".join(
        f"Story {i}: the cat number {i * 37 % 101} sat on mat {i * i % 89} and the dog saw it.\n" for i in range(1500)))

    def ran(*words):
        return children.run([str(ASSAY), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(shared))

    def works(*words):
        done = ran(*words)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    works("tokenizer", "train", shared / "text.txt", "--vocab-size", "300", "-o", shared / "tokenizer.json")
    works("train", shared / "dense.yaml", "--run", shared / "first", "--steps", "2")
    works("train", shared / "moe.yaml", "--run", shared / "trunk", "--set", "run.keep_checkpoints=9")
    # Without MPI it is not there.
    ran("train", shared / "moe.yaml", "--run", shared / "several", "--ranks", "2", "--steps", "6")
    works("export", shared / "trunk", "-o", shared / "exported", "--dtype", "fp32")
    works("matrix", shared / "m.yaml", "--run-dir", shared / "part", "--only", "dense")
    shutil.copytree(shared / "part", shared / "tried")
    works("matrix", shared / "m.yaml", "--run-dir", shared / "tried")
    works("matrix", shared / "plain.yaml", "--run-dir", shared / "plain", "--only", "dense")
    works("train", shared / "moe.yaml", "--run", shared / "half", "--set", "run.keep_best=true", "--stop-after", "9")
