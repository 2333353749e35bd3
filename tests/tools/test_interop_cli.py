#!/usr/bin/env python3
"""assay export and import as a user calls them: a round trip keeps losses and bits, and training
can continue."""
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import Workplace, assay, check, checkpoints
from refusals import is_refusal


def works(*arguments):
    done = assay(*arguments)
    check(done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_family(moe, architecture, sets):
    """Exported in fp32 and imported, a model keeps its bits and its loss, and can be trained
    further."""
    with Workplace(moe=moe, sequence=64) as w:
        w.train("run", *sets, "--steps", "20")
        out, back = w.run("exported"), w.run("back")
        said = json.loads(works("export", w.run("run"), "-o", out, "--dtype", "fp32", "--json"))
        check(said["architecture"] == architecture and said["step"] == 20 and said["tokenizer"] and
              said["dtype"] == "F32" and said["files"] == ["model.safetensors"], said)
        config = json.loads((out / "config.json").read_text())
        check(config["eos_token_id"] == json.loads((out / "generation_config.json").read_text())["eos_token_id"] and
              config["max_position_embeddings"] == 64, config)
        tokenizer = json.loads((out / "tokenizer.json").read_text())
        check(tokenizer["added_tokens"][0]["id"] == config["eos_token_id"], tokenizer["added_tokens"])
        post = tokenizer["post_processor"] or {}  # AutoTokenizer begins a text as sample does
        check(post.get("special_tokens", {}).get("<|endoftext|>", {}).get("ids") == [config["eos_token_id"]] and
              "SpecialToken" in post["single"][0], post)
        check(json.loads((out / "tokenizer_config.json").read_text())["add_bos_token"] is True, "add_bos_token")

        said = json.loads(works("import", out, "-o", back, "--config", w.config, *sets, "--json"))
        check(said["architecture"] == architecture and said["notes"] == [], said)
        [first] = checkpoints(back)
        trained = checkpoints(w.run("run"))[-1]
        check((first / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes(), "other bits")
        losses = [json.loads(works("eval", run, "--json"))["val_loss_nats"] for run in (w.run("run"), back)]
        check(losses[0] == losses[1], losses)
        done = assay("train", back / "config.yaml", "--run", back, "--json")
        check(done.returncode == 0, done.stderr)
        check(json.loads(done.stdout)["val_loss_nats"] < losses[0], (losses, done.stdout))
        again = works("receipt", "verify", back, "--rerun", "5")
        check("bit for bit" in again, again)
        shutil.rmtree(first)
        refused = assay("receipt", "verify", back, "--rerun", "5")
        check(refused.returncode == 1 and "began from imported weights" in refused.stderr, refused)


def check_own_tokenizer():
    """An imported model keeps its tokenizer: export and sample take it, and another one's ids are refused, at the import
    and in an evaluation; test_errors.py has those of training."""
    with Workplace(sequence=64) as w:
        w.train("run", "--steps", "20")
        out, back, again = w.run("exported"), w.run("back"), w.run("again")
        works("export", w.run("run"), "-o", out, "--dtype", "fp32")  # the weights keep their bits, and so do the samples
        refused = assay("import", out, "-o", back, "--config", "nope")
        check(refused.returncode == 1 and refused.stderr.startswith("error: cannot read nope"), refused.stderr)
        odd = w.path / 'a "b.yaml'
        odd.write_text(w.config.read_text())
        works("import", out, "-o", w.run("of_odd"), "--config", odd)
        odd.write_text("schedule: {warmup: 2000}\nrun: {steps: 1000, sequence: 64}\n"
                       "data: {synth: {train_tokens: 120000, vocab_size: 512}}\n")
        works("import", out, "-o", w.run("of_part"), "--config", odd, "--set", "run.steps=5000")
        other = ("--set", "data.synth.vocab_size=300", "--set",
                 f"data.cache={w.run('cache')}")  # other tests expect one vocabulary in the shared one
        refused = assay("import", out, "-o", back, "--config", w.config, *other)
        check(refused.returncode == 1 and "error: the tokenizer of data.synth is another tokenizer (300 tokens" in refused.stderr
              and f"hint: give text in the model's own tokens: assay data prepare TEXTS --tokenizer {out} -o " in refused.stderr
              and not back.exists() and not w.run("cache").exists(), refused.stderr)
        works("import", out, "-o", back, "--config", w.config)
        for more in ((), ("--set", "data.synth.seed=2")):
            refused = assay("eval", back, *other, *more)
            check(refused.returncode == 1 and "another tokenizer (300 tokens" in refused.stderr and "(512 tokens" in refused.stderr,
                  refused.stderr)
        config = json.loads((out / "config.json").read_text())
        eot = config["eos_token_id"]
        (out / "config.json").write_text(json.dumps({**config, "bos_token_id": 7, "eos_token_id": [eot, 9]}))
        said = works("import", out, "-o", w.run("other_begin"), "--config", w.config)
        check(f"bos_token_id is 7; here every text begins with, and a sample ends at, <|endoftext|> (id {eot})" in said, said)
        (out / "config.json").write_text(json.dumps(config))
        (out / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
        said = works("import", out, "-o", w.run("prefixed"), "--set", "data.check_tokenizer=false")
        check("no tokenizer was imported: " in said and "add_prefix_space is true" in said, said)
        works("export", back, "-o", again)
        check((again / "tokenizer.json").read_bytes() == (out / "tokenizer.json").read_bytes(), "another tokenizer is exported")
        text = [json.loads(works("sample", run, "--prompt", "Once upon a", "--temperature", "0", "--tokens", "20", "--json"))["texts"]
                for run in (w.run("run"), back)]
        check(text[0] == text[1], text)


def check_unreadable_tokenizer():
    """A model whose tokenizer Assay cannot read does not get that of the data in its place."""
    with Workplace(sequence=64) as w:
        w.train("run", "--steps", "20")
        out = w.run("exported")
        works("export", w.run("run"), "-o", out, "--dtype", "fp32")
        file = json.loads((out / "tokenizer.json").read_text())
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                                       file["pre_tokenizer"]]}
        (out / "tokenizer.json").write_text(json.dumps(file))
        config = json.loads((out / "config.json").read_text())
        config.update(max_position_embeddings=8192, bos_token_id=1, eos_token_id=[2, 3])
        (out / "config.json").write_text(json.dumps(config))
        read = json.loads((w.run("run") / "meta.json").read_text())["data_sha256"]
        corpus = pathlib.Path(next(path for path in read if path.endswith("tokenizer.json"))).parent
        tokenizer = corpus / "tokenizer.json"
        shards = ["--set", f"data.train=[{corpus}/*_train_*.bin]", "--set", f"data.val=[{corpus}/*_val_*.bin]", "--set",
                  "eval.tokens=1024", "--set", "run.sequence=64", "--set", "run.steps=20", "--set", "schedule.warmup=0", "--set",
                  "schedule.warmdown=0"]
        named = ["--set", f"data.tokenizer={tokenizer}"]

        def refused(*command, known):
            done = assay(*command)
            check(done.returncode == 1 and f"the data has the tokens of {known}, and the model's tokenizer cannot be compared "
                  f"with it: {out}/tokenizer.json: pre_tokenizer is not ByteLevel" in done.stderr and
                  "--set data.check_tokenizer=false" in done.stderr, (command, done.stdout, done.stderr))

        refused("import", out, "-o", w.run("no"), "--config", w.config, known="the corpus of data.synth")
        refused("import", out, "-o", w.run("no"), *shards, known=corpus / "manifest.json")
        refused("import", out, "-o", w.run("no"), *shards, *named, known=tokenizer)
        check(not w.run("no").exists(), "a refused import makes a run")

        # Without data there is a run, whose data is compared later.
        bare = w.run("bare")
        check("no tokenizer was imported: " in works("import", out, "-o", bare), "no note")
        refused("eval", bare, *shards, known=corpus / "manifest.json")

        # The user may say that the ids mean the same: even then the corpus's tokenizer is not taken for the model's.
        forced, again = w.run("forced"), w.run("again")
        said = works("import", out, "-o", forced, "--config", w.config, "--set", "data.check_tokenizer=false")
        check("no tokenizer was imported: " in said and "need --tokenizer FILE" in said, said)
        works("eval", forced)
        sample = ("sample", forced, "--prompt", "Once", "--tokens", "2", "--json")
        done = assay(*sample)
        check(done.returncode == 1 and "left behind at the import" in done.stderr and
              "--tokenizer FILE takes another with the same ids that it can read" in done.stderr, done.stderr)
        works(*sample, "--tokenizer", tokenizer)
        said = works("export", forced, "-o", again)
        check("no tokenizer files: " in said and "left behind at the import" in said and "--tokenizer" not in said and
              not (again / "tokenizer.json").exists(), said)
        [copies] = [line.split("copy the model's own: ")[1] for line in said.splitlines() if "no tokenizer files: " in line]
        subprocess.run(shlex.split(copies), check=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            check((again / name).read_bytes() == (out / name).read_bytes(), copies)
        kept = json.loads((again / "config.json").read_text())
        check([kept[key] for key in ("max_position_embeddings", "bos_token_id", "eos_token_id")] == [8192, 1, [2, 3]], kept)
        # A run that an earlier version imported is read as before.
        origin = json.loads((forced / "imported.json").read_text())
        for key in ("left_tokenizer", "max_position_embeddings", "bos_token_id", "eos_token_id"):
            del origin[key]
        (forced / "imported.json").write_text(json.dumps(origin))
        works(*sample)

        # A folder without a tokenizer: the user says whose tokens the data has, and is told that it was taken so.
        (out / "tokenizer.json").unlink()
        said = json.loads(works("import", out, "-o", w.run("none"), "--config", w.config, "--json"))
        check(said["notes"] == ["the folder has no tokenizer.json; that of data.synth is taken to be its own"], said)
        works("sample", w.run("none"), "--prompt", "Once", "--tokens", "2")
        said = json.loads(works("import", out, "-o", w.run("of-file"), *shards, *named, "--json"))
        check(said["notes"] == ["the folder has no tokenizer.json; data.tokenizer is taken to be its own"], said)


def check_renamed():
    """A run that was imported with its tokenizer may be renamed, copied and branched, whatever is at its old place now."""
    with Workplace(sequence=64) as w:
        w.train("run", "--steps", "20")
        out, a, b = w.run("exported"), w.run("a"), w.run("b")
        works("export", w.run("run"), "-o", out, "--dtype", "fp32")
        read = json.loads((w.run("run") / "meta.json").read_text())["data_sha256"]
        corpus = pathlib.Path(next(path for path in read if path.endswith("tokenizer.json"))).parent
        sets = [f"data.train=[{corpus}/*_train_*.bin]", f"data.val=[{corpus}/*_val_*.bin]", "eval.tokens=1024", "run.steps=20",
                "schedule.warmup=0", "schedule.warmdown=0", "run.checkpoint_every=10", "run.threads=1"]
        works("import", out, "-o", a, *(word for one in sets for word in ("--set", one)))
        before = json.loads(works("eval", a, "--json"))
        old = w.run("old")  # as an earlier version wrote it
        shutil.copytree(a, old)
        origin = json.loads((old / "imported.json").read_text())
        check(origin.pop("tokenizer") == str(a / "tokenizer.json"), origin)
        (old / "imported.json").write_text(json.dumps(origin))

        a.rename(b)
        works("eval", old)
        a.mkdir()
        works("tokenizer", "train", w.config, "--vocab-size", "300", "-o", a / "tokenizer.json")
        measured = json.loads(works("eval", b, "--json"))
        check(measured["val_bits_per_byte"] == before["val_bits_per_byte"], (measured, before))
        works("sample", b, "--tokens", "2")
        done = assay("train", b / "config.yaml", "--run", b)
        check(done.returncode == 0, done.stderr)
        check(f"tokenizer: {b}/tokenizer.json" in (b / "config.yaml").read_text(), "config.yaml names the file at the old place")
        works("branch", b, "--at-step", "10", "--warmdown-steps", "2", "--run", w.run("branch"))
        shutil.rmtree(b)
        works("eval", w.run("branch"))
        works("eval", w.run("branch") / "checkpoints" / "step-00000010")  # with the trunk's state.json
        check(f"tokenizer: {w.run('branch')}/tokenizer.json" in (w.run("branch") / "config.yaml").read_text(), "of the trunk")

        # Renamed again, and another run's tokenizer comes to the second place too, which only config.yaml knows.
        again = w.run("again")
        w.run("branch").rename(again)
        w.run("branch").mkdir()
        shutil.copy(a / "tokenizer.json", w.run("branch") / "tokenizer.json")
        works("eval", again)
        done = assay("train", again / "config.yaml", "--run", again)
        check(done.returncode == 0 and f"tokenizer: {again}/tokenizer.json" in (again / "config.yaml").read_text(), done.stderr)


def check_weights_are_kept():
    """What is said of an imported run that is trained in another way leads to its weights, not to random ones."""
    with Workplace() as w:
        w.train("run", "--steps", "20")
        out, run, lower, other = (w.run(name) for name in ("exported", "im ported", "lower", "other"))
        works("export", w.run("run"), "-o", out, "--dtype", "fp32")
        works("import", out, "-o", run, "--config", w.config)
        config = run / "config.yaml"
        again = f"assay import {out} -o NEW --config '{config}' --set FIELD=VALUE"
        [first] = checkpoints(run)
        weights = (first / "model.safetensors").read_bytes()

        done = assay("train", config, "--run", run, "--set", "optimizer.lr=1e-3")
        check(is_refusal(done, "optimizer.lr: 0.003 -> 0.001", again) and "--fresh" not in done.stderr, done)
        check(is_refusal(assay("train", config), "is the configuration of a run", again), "without --run")
        for more in ((), ("--set", "optimizer.lr=1e-3"), ("--ranks", "2")):
            done = assay("train", config, "--run", run, "--fresh", *more)
            check(is_refusal(done, "began from imported weights: --fresh would delete them", again), done)
        check((run / "imported.json").exists() and (first / "model.safetensors").read_bytes() == weights, "--fresh deletes them")
        words = again.replace("NEW", str(lower)).replace("FIELD=VALUE", "optimizer.lr=1e-3")
        works(*shlex.split(words)[1:])
        [copy] = checkpoints(lower)
        check((copy / "model.safetensors").read_bytes() == weights and "  lr: 0.001\n" in (lower / "config.yaml").read_text(),
              "imported again")

        # The same shape from random weights may be wanted: a warning, once.
        warning = f"warning: {config} is of an imported model, but a run in another folder begins from random weights"
        for folder, warns in ((other, True), (other, False), (run, False)):
            done = assay("train", config, "--run", folder, "--stop-after", "2")
            check(done.returncode == 0 and (warning in done.stderr) == warns and (again in done.stderr) == warns, done)
        check(warning in (other / "log.txt").read_text(), "the log")
        kept = [json.loads(works("train", config, "--run", folder, "--plan", "--json"))["disk"]["kept_checkpoints"]
                for folder in (other, run)]
        check(kept == [2, 3], f"step 0 of an imported run stays: {kept}")
        (w.path / "m.yaml").write_text("name: m\nmodels:\n  own: config.yaml\n  hf: im ported/config.yaml\nprecisions: [fp32]\n")
        matrix = ("matrix", w.path / "m.yaml", "--run-dir", w.run("m"), "--dry-run")
        model = warning.replace("warning: ", "warning: model hf: ")
        check(model in assay(*matrix).stderr, "a matrix")
        check(model not in assay(*matrix, "--only", "own").stderr, "a matrix without that model")

        # Too high a rate, and weights that are gone.
        works("import", out, "-o", w.run("high"), "--config", w.config, "--set", "optimizer.lr=1e30", "--set", "schedule.warmup=0")
        done = assay("train", w.run("high") / "config.yaml", "--run", w.run("high"))
        check(done.returncode == 3 and f"assay import {out} -o NEW" in done.stderr and "--fresh" not in done.stderr, done)
        shutil.rmtree(copy)
        done = assay("train", lower / "config.yaml", "--run", lower)
        check(is_refusal(done, "began from imported weights, and has no checkpoint now", "import the model again",
                         said_before=True), done)


def check_window():
    """A model keeps its sliding window: longer texts, which would have other attention, are refused."""
    with Workplace(moe=True) as w:
        w.train("run", *SOFTMAX, "--steps", "20")
        out, run, again = (w.run(name) for name in ("exported", "imported", "again"))
        works("export", w.run("run"), "-o", out, "--dtype", "fp32")
        fields = json.loads((out / "config.json").read_text())
        window = fields["sliding_window"] = fields["max_position_embeddings"]
        (out / "config.json").write_text(json.dumps(fields))
        works("import", out, "-o", run, "--config", w.config, *SOFTMAX)
        twice, text = 2 * window, ("sample", run, "--prompt", "Once upon a", "--tokens", "8")
        works(*text)
        works("eval", run)
        core = ("--tasks", "core", "--bundle", w.path, "--max-tokens", str(twice))
        for done, setting in ((assay(*text, "--context", str(twice)), "--context"),
                              (assay("eval", run, "--set", f"run.sequence={twice}"), "run.sequence"),
                              (assay("eval", run, *core), "--max-tokens"),
                              (assay("eval", run, *core, "--part", "1/2"), "--max-tokens")):
            says = f"{setting} is {twice}, but the model was imported with a sliding window of {window}"
            check(is_refusal(done, says, f"at most {window} tokens"), done)
        works("export", run, "-o", again)
        check(json.loads((again / "config.json").read_text())["sliding_window"] == window, "an export lost the window")
        train = ("train", run / "config.yaml", "--run", run, "--stop-after", "2")
        origin = json.loads((run / "imported.json").read_text())
        (run / "imported.json").write_text(json.dumps({**origin, "sliding_window": window // 2}))
        says = f"run.sequence is {window}, but the model was imported with a sliding window of {window // 2}"
        done = assay(*train)
        check(is_refusal(done, says, said_before=True), done)
        del origin["sliding_window"]  # a run that an earlier version imported
        (run / "imported.json").write_text(json.dumps(origin))
        works(*text, "--context", str(twice))
        works(*train)


def check_alone():
    """Without a configuration: the tokenizer is copied, and the shard size splits the file."""
    with Workplace(moe=True) as w:
        w.train("run", "--steps", "20", "--set", "model.vocab_size=4096")
        out, back = w.run("exported"), w.run("back")
        shown = works("export", w.run("run"), "-o", out, "--max-shard-mib", "1", "--dtype", "fp32")
        check("as Glm4MoeForCausalLM" in shown and "F32" in shown and "512 tokens" in shown, shown)
        shards = sorted(f.name for f in out.glob("model-*.safetensors"))
        check(len(shards) > 1 and f"in {len(shards)} files" in shown, (shards, shown))
        check(set(json.loads((out / "model.safetensors.index.json").read_text())["weight_map"].values()) == set(shards),
              shards)
        check("no data was given" in works("import", out, "-o", back), "the next step is not explained")
        sampled = [json.loads(works("sample", run, "--prompt", "Once upon a", "--temperature", "0", "--tokens", "20",
                                    "--json"))["texts"] for run in (w.run("run"), back)]
        check(sampled[0] == sampled[1], sampled)
        # A folder without a tokenizer: what is missing is said, and a file or a folder of another place is taken.
        elsewhere, bare = w.run("elsewhere"), w.run("bare")
        elsewhere.mkdir()
        (out / "tokenizer.json").rename(elsewhere / "tokenizer.json")
        works("import", out, "-o", bare)
        refused = assay("sample", bare, "--prompt", "Once upon a")
        check(is_refusal(refused, hint="--tokenizer FILE") and
              "has no tokenizer: its configuration has no data.tokenizer\nhint: " in refused.stderr, refused)
        for given in (elsewhere, elsewhere / "tokenizer.json"):
            again = json.loads(works("sample", bare, "--prompt", "Once upon a", "--temperature", "0", "--tokens", "20", "--json",
                                     "--tokenizer", given))
            check(again["texts"] == sampled[0], again)
        for command, taught in (("export", "softmax router"), ("import", "-o shards assay import FOLDER"),
                                ("import", "--config models/presets/")):
            check(taught in " ".join(works(command, "--help").replace("\\\n", " ").split()), command)


def check_shape_that_one_version_refuses():
    with Workplace() as w:
        w.train("run", "--steps", "20", "--set", "model.heads=5", "--set", "model.head_dim=32")
        said = works("export", w.run("run"), "-o", w.run("exported"))
        check("transformers 5 does not: its LlamaForCausalLM requires that model.heads = 5 divides model.hidden = 64" in said, said)
        said = json.loads(works("export", w.run("run"), "-o", w.run("again"), "--json"))
        check("transformers 5 does not" in said.get("not_opened", ""), said)


SOFTMAX = ["--set", "model.moe.router.score=softmax", "--set", "model.moe.shared=0",
           "--set", "model.moe.router.bias_rate=0", "--set", "model.moe.router.aux=switch"]
check_family(False, "LlamaForCausalLM", [])
check_family(True, "MixtralForCausalLM", SOFTMAX)
check_family(True, "Qwen3MoeForCausalLM", [*SOFTMAX, "--set", "model.qk_norm=true", "--set", "model.moe.router.normalize_gates=false"])
check_family(True, "Glm4MoeForCausalLM", [])
check_own_tokenizer()
check_unreadable_tokenizer()
check_renamed()
check_weights_are_kept()
check_window()
check_alone()
check_shape_that_one_version_refuses()
print("interop_cli: ok")
