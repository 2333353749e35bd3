#!/usr/bin/env python3
"""The data of a matrix: runs that were trained on another text than their cells read now are refused, and in no table they
are taken for runs of one text; --reuse takes the run whose data agree; what the runs warned of is said once."""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import assay, check, configuration

CLAIM = "claims: [{name: low, measure: val_loss, of: base, below: 99}]\n"
MATRIX = """
name: {name}
models: {models}
contracts: [{{kind: steps}}]
precisions: [fp32]
seeds: [{seeds}]
set: {{run.steps: 4, eval.every: 2, schedule.warmup: 0, schedule.warmdown: 0}}
threads: 1
"""


class Place:
    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="assay-matrix-data-"))
        text = configuration().replace("ffn: 128", "ffn: 64")
        head = text[:text.index("data:")]
        for name, seed in (("clean", 1), ("noisy", 2)):
            corpus = f"data: {{cache: {self.path}/cache-{name}, synth: {{train_tokens: 20000, val_tokens: 4000, vocab_size: 512, seed: {seed}}}}}\n"
            (self.path / "first.yaml").write_text(head + corpus)
            done = assay("train", self.path / "first.yaml", "--run", self.path / f"first-{name}", "--set", "run.steps=1",
                         "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0")
            check(done.returncode == 0, done.stderr)
            (folder,) = (self.path / f"cache-{name}").glob("synth-*")
            (self.path / name).mkdir()
            shutil.copy(next(folder.glob("*_train_*.bin")), self.path / name / "x_train_000001.bin")
        shutil.copy(next(folder.glob("*_val_*.bin")), self.path / "x_val_000000.bin")
        shutil.copy(folder / "tokenizer.json", self.path)
        (self.path / "base.yaml").write_text(head + "data: {train: [clean/*_train_*.bin], val: [x_val_*.bin], tokenizer: tokenizer.json}\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name="m", models="{base: base.yaml}", seeds="1, 2", more=CLAIM):
        (self.path / f"{name}.yaml").write_text(MATRIX.format(name=name, models=models, seeds=seeds) + more)

    def matrix(self, *more, name="m", folder="runs", expect=0):
        done = assay("matrix", self.path / f"{name}.yaml", "--run-dir", self.path / folder, *more)
        check(done.returncode == expect, f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done


def check_other_folder(place):
    """The pattern names the same files in another folder."""
    place.write()
    table = place.matrix().stdout
    other = ("--set", f"data.train=[{place.path}/noisy/*_train_*.bin]")
    refused = place.matrix(*other, expect=1)
    error, hint = refused.stderr.splitlines()[-2:]
    check("2 runs of" in error and "base-steps-fp32-seed1: data x_train_000001.bin: " in error, refused.stderr)
    check("another name or --run-dir" in hint and "--fresh-changed" in hint and "|" not in refused.stdout, refused)
    shown = place.matrix(*other, "--dry-run", expect=1)
    check("done, EDITED" in shown.stdout and "refused: 2 runs of " in shown.stderr, shown)
    check(place.matrix(*other, "--summary").stdout == table, "the tables are of what the runs recorded")
    place.write(seeds="1, 2, 3")
    place.matrix(*other, expect=1)
    place.matrix(*other, "--until-decided", "4", expect=1)
    check(not (place.path / "runs" / "base-steps-fp32-seed3").exists(), "no seed of another text is added")
    place.write()
    (place.path / "clean").rename(place.path / "moved")
    moved = ("--set", f"data.train=[{place.path}/moved/*_train_*.bin]")
    check(place.matrix(*moved).stdout == table, "the same text elsewhere is the same data")
    check(place.matrix("--summary").stdout == table, "what is not on this machine is not compared")
    (place.path / "moved").rename(place.path / "clean")


def check_prepared_again(place):
    """The text of a path was replaced."""
    shard = place.path / "clean" / "x_train_000001.bin"
    shard.rename(place.path / "kept")
    shutil.copy(place.path / "noisy" / shard.name, shard)
    place.write(seeds="1, 2, 3")
    refused = place.matrix(expect=1).stderr
    check("2 runs of" in refused and "data x_train_000001.bin: " in refused, refused)
    (place.path / "kept").replace(shard)
    place.write()


def check_grown(place):
    """A shard more, and another tokenizer.json, or the same laid out anew, beside finished runs."""
    table = place.matrix().stdout
    more = place.path / "clean" / "x_train_000002.bin"
    shutil.copy(place.path / "noisy" / "x_train_000001.bin", more)
    shown = place.matrix("--summary")
    check(shown.stdout == table and "0 of 2" not in table, f"{table}\n{shown.stdout}{shown.stderr}")
    check("0 of 2" not in (place.path / "runs" / "summary.md").read_text(), "nor is the file emptied")
    refused = place.matrix(expect=1).stderr
    check("base-steps-fp32-seed1: data x_train_000002.bin: none -> " in refused, refused)
    more.unlink()
    tokenizer = place.path / "tokenizer.json"
    text = tokenizer.read_text()
    changed = json.loads(text)
    changed["model"]["merges"].pop()
    tokenizer.write_text(json.dumps(changed))
    check("base-steps-fp32-seed1: data tokenizer.json: " in place.matrix(expect=1).stderr, "another tokenizer is other data")
    check(place.matrix("--summary").stdout == table, "and the tables stay")
    tokenizer.write_text(json.dumps(json.loads(text), indent=4))
    same = place.matrix()
    check(same.stdout == table and "; 0 to train" in same.stderr, "a tokenizer laid out anew is the same one: " + same.stderr)
    tokenizer.unlink()
    tokenizer.symlink_to(tokenizer.name)
    unread = place.matrix(expect=1).stderr
    check("Too many levels of symbolic links" in unread, "a file that is there and cannot be read is not passed over: " + unread)
    tokenizer.unlink()
    tokenizer.write_text(text)
    place.matrix()


def check_mixed(place):
    """A folder of runs that an earlier version pooled."""
    mixed = place.path / "mixed"
    shutil.copytree(place.path / "runs", mixed)
    meta = mixed / "base-steps-fp32-seed2" / "meta.json"
    said = json.loads(meta.read_text())
    said["data_sha256"] = {path: "0" * 64 if "_train_" in path else sha for path, sha in said["data_sha256"].items()}
    meta.write_text(json.dumps(said))
    (place.path / "clean").rename(place.path / "away")  # so that nothing can be compared with the disk
    table = json.loads(place.matrix("--summary", "--json", folder="mixed").stdout)
    (place.path / "away").rename(place.path / "clean")
    why = "training data of base-steps-fp32-seed2 is x_train_000001.bin 000000000000, of base-steps-fp32-seed1 x_train_000001.bin "
    check((table["different_data"] or "").startswith(why), table["different_data"])
    check([(c["verdict"], c["why"]) for c in table["claims"]] == [("undecided", table["different_data"])], table["claims"])
    check(table["contracts"][0]["ranking"] == [] and "other data" in table["contracts"][0]["rows"][0]["not_ranked"], table)
    check(f"\nNOT COMPARABLE: {why}" in (mixed / "summary.md").read_text(), "above the tables")
    receipt = json.loads((mixed / "receipt.json").read_text())
    check(receipt["environment"]["different_data"] == table["different_data"], receipt["environment"])
    check(not any(claim["name"].endswith(".verdict") for claim in receipt["claims"]), "no verdict is claimed")


def check_reuse(place):
    """Two models that differ in the folder of their data have one configuration by names; each takes its own run."""
    models = "{noisy: {config: base.yaml, set: {data.train: [noisy/*_train_*.bin]}}, base: base.yaml}"
    place.write("two", models=models, seeds="1", more="")
    shown = place.matrix("--reuse", place.path / "runs", "--dry-run", "--json", "--force", name="two", folder="two")
    runs = {run["cell"]: (run["reuse"], run["refused"]) for run in json.loads(shown.stdout)["runs"]}
    own = str(place.path / "runs" / "base-steps-fp32-seed1")
    check(runs == {"noisy-steps-fp32-seed1": (None, None), "base-steps-fp32-seed1": (own, None)}, runs)


def check_warnings(place):
    """A warning that only the logs had, and a note above the tables."""
    place.write("leak", more="")
    leak = ("--set", f"data.val=[{place.path}/clean/x_train_*.bin]")
    done = place.matrix(*leak, name="leak", folder="leak")
    lines = [line for line in done.stderr.splitlines() if line.startswith("warning: data.val: ")]
    check(len(lines) == 1 and "is also training data" in lines[0] and "(2 runs, " in lines[0], done.stderr)
    note = "2 of 2 runs trained on their own validation data (x_train_000001.bin)"
    check(f"\nNote: {note}" in done.stdout, done.stdout)
    check(json.loads((place.path / "leak" / "summary.json").read_text())["trained_validation"].startswith(note), "as JSON")
    check(json.loads((place.path / "runs" / "summary.json").read_text())["trained_validation"] is None, "of no other")


def main():
    with Place() as place:
        check_other_folder(place)
        check_prepared_again(place)
        check_grown(place)
        check_mixed(place)
        check_reuse(place)
        check_warnings(place)
    print("matrix_data: ok")


main()
