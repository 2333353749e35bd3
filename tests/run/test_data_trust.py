#!/usr/bin/env python3
"""What is trained on is what is hashed: a shard with planted text is refused before step 1, when a
run is resumed and while it is read, and named by the receipt; and the warnings about data."""
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bad_input import config_text
from harness import ASSAY, check, checkpoints, first_difference
from refusals import is_refusal

FOLDER = tempfile.TemporaryDirectory(prefix="assay-trust-")
WORK = pathlib.Path(FOLDER.name)
CACHE = WORK / "cache" / "assay" / "sha256"
SHARD = WORK / "c" / "corpus_train_000001.bin"
MANIFEST = WORK / "c" / "manifest.json"
TRAIN = ["train", "good.yaml", "--run"]


def run(*arguments):
    return subprocess.run([str(ASSAY), *arguments], cwd=WORK, capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": str(WORK / "cache")})


def works(*arguments):
    done = run(*arguments)
    check(done.returncode == 0, f"assay {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def refused(arguments, error, hint):
    done = run(*arguments)
    check(is_refusal(done, error, hint),
          f"assay {' '.join(arguments)}: exit {done.returncode}, wanted {error}, {hint!r}\n{done.stdout}{done.stderr}")


def data_inputs(name):
    return [i for i in json.loads((WORK / name / "receipt.json").read_text())["inputs"] if i["kind"] == "data"]


def make_corpus():
    (WORK / "text.txt").write_text("<|endoftext|>\n".join(
        f"Story {i}: the cat number {i * 37} sat on the mat and the dog saw it.\n" for i in range(300)))
    works("tokenizer", "train", "text.txt", "--vocab-size", "300", "-o", "tok.json")
    works("data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "c")
    (WORK / "good.yaml").write_text(config_text())


def check_planted_text():
    good = SHARD.read_bytes()
    planted = bytearray(good)
    planted[1024:1024 + 2048] = b"\x05\x00" * 1024
    works(*TRAIN, "half-way", "--stop-after", "3")
    SHARD.write_bytes(planted)
    hashes = ["c/corpus_train_000001.bin has SHA-256 ", "c/manifest.json says "]
    refused([*TRAIN, "corr"], hashes, "restore it or prepare the corpus again")
    check(not (WORK / "corr").exists(), "a refused run leaves no folder")
    refused([*TRAIN, "half-way"], hashes, "assay data verify")
    done = run("receipt", "verify", "half-way")
    check(done.returncode == 2 and "drift: input data corpus_train_000001.bin" in done.stderr, done.stderr)
    MANIFEST.rename(WORK / "kept.json")
    refused([*TRAIN, "half-way"], ["the data of the run has changed: corpus_train_000001.bin was SHA-256 ", ", is SHA-256 "],
            "--fresh")
    works(*TRAIN, "own-hash", "--stop-after", "1")  # no manifest: only its own hash counts
    (WORK / "kept.json").rename(MANIFEST)
    SHARD.write_bytes(good)
    works(*TRAIN, "half-way")
    check(checkpoints(WORK / "half-way")[-1].name == "step-00000006", "resumed on good data")
    check(works("receipt", "verify", "half-way").stderr == "", "and verifies")
    done = run("receipt", "verify", "own-hash")
    check(done.returncode == 2 and "drift: input data corpus_train_000001.bin" in done.stderr, "what own-hash read is gone")


def check_evaluations():
    """What a checkpoint is measured on is what its run was: eval refuses other validation text, unless it is named."""
    shard = WORK / "c" / "corpus_val_000000.bin"
    works(*TRAIN, "whole")
    before = json.loads(works("eval", "whole", "--json").stdout)
    record = WORK / "whole" / "evals" / "step-00000006.json"
    kept = record.read_bytes()
    good = shard.read_bytes()
    shard.write_bytes(good[:1048] + bytes([good[1048] ^ 1]) + good[1049:])
    refused(["eval", "whole"], ["corpus_val_000000.bin has SHA-256 ", "c/manifest.json says "], "restore it")
    MANIFEST.rename(WORK / "kept.json")
    refused(["eval", "whole"], ["the data of the run has changed: ", "corpus_val_000000.bin is SHA-256 ", "which the run has not read"],
            "--set data.val=FILE")
    check(record.read_bytes() == kept, "a refused evaluation leaves the record alone")
    other = json.loads(works("eval", "whole", "--json", "--set", f"data.val=[{shard}]").stdout)
    check(other["val_loss_nats"] != before["val_loss_nats"] and record.read_bytes() == kept, (other, before))
    (WORK / "kept.json").rename(MANIFEST)
    shard.write_bytes(good)
    check(json.loads(works("eval", "whole", "--json").stdout)["val_loss_nats"] == before["val_loss_nats"], before)


def edit_state(checkpoint, edit):
    """Calls edit(extra) with what a state keeps beside its numbers, and writes it back with the manifest's hash."""
    edit_whole_state(checkpoint, lambda state: edit(state["extra"]))


def edit_whole_state(checkpoint, edit):
    path, manifest = checkpoint / "state.json", checkpoint / "MANIFEST.json"
    state, files = json.loads(path.read_text()), json.loads(manifest.read_text())
    edit(state)
    path.write_text(json.dumps(state))
    written = path.read_bytes()
    files["files"]["state.json"] = {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}
    manifest.write_text(json.dumps(files))


def check_larger_configuration():
    """A state whose configuration asks for more than its files hold is refused before memory is taken for it."""
    for field, value in (("hidden", 256), ("layers", 3000), ("vocab_size", 1 << 20)):
        shutil.rmtree(WORK / "larger", ignore_errors=True)
        shutil.copytree(WORK / "whole", WORK / "larger")

        def enlarge(state):
            key = next(key for key, value in state.items() if isinstance(value, str) and "model:" in value)
            state[key], count = re.subn(rf"\b{field}: \d+", f"{field}: {value}", state[key], count=1)
            check(count == 1, f"no {field} in {state[key]}")
        edit_whole_state(checkpoints(WORK / "larger")[-1], enlarge)
        for command in (["sample", "larger", "--prompt", "a"], ["eval", "larger"],
                        ["export", "larger", "-o", "exported"]):
            refused(command, ["model.safetensors has no ", " as its configuration describes it"],
                    "the checkpoint is not what its run wrote")


def check_changed_tokenizer():
    """The tokenizer's file has changed since the run: ids are other text, and bits per byte another measure."""
    tokenizer, record = WORK / "c" / "tokenizer.json", WORK / "whole" / "evals" / "step-00000006.json"
    good, kept = tokenizer.read_bytes(), record.read_bytes()
    works(*TRAIN, "laid-out", "--stop-after", "1")
    tokenizer.write_text(json.dumps(json.loads(good), indent=4))  # a receipt relies on equal bytes
    refused([*TRAIN, "laid-out"], ["the data of the run has changed: tokenizer.json was SHA-256 "],
            "put back the tokenizer.json it began with, byte for byte, train in another --run")
    tokenizer.write_bytes(good)
    before = json.loads(works("eval", "whole", "--json").stdout)
    shutil.copy(tokenizer, WORK / "kept-tok.json")
    changed = json.loads(good)
    ids = changed["model"]["vocab"]
    longest = max(ids, key=lambda token: len(token) if token != "<|endoftext|>" else 0)
    ids[longest], ids["a"] = ids["a"], ids[longest]
    tokenizer.write_text(json.dumps(changed))
    MANIFEST.rename(WORK / "kept.json")  # it names the tokenizer too
    for command, hint in ((["eval", "whole"], "--set data.tokenizer=FILE"),
                          (["eval", "whole", "--set", "data.shuffle=false"], "--set data.tokenizer=FILE"),
                          (["sample", "whole", "--prompt", "a"], "--tokenizer FILE")):
        refused(command, ["the data of the run has changed: ", "c/tokenizer.json is SHA-256 ",
                          "which the run has not read"], hint)
    check(record.read_bytes() == kept, "a refused evaluation leaves the record alone")
    said = works("export", "whole", "-o", "exported").stdout
    check("no tokenizer files: the data of the run has changed: " in said, said)
    check(not (WORK / "exported" / "tokenizer.json").exists(), "the changed tokenizer is exported")
    # The ways out: another file of the same tokenizer, or the user's word that it is the right one.
    works("sample", "whole", "--prompt", "a", "--tokens", "2", "--json", "--tokenizer", "kept-tok.json")
    named = json.loads(works("eval", "whole", "--json", "--set", "data.tokenizer=kept-tok.json").stdout)
    check(named["val_bits_per_byte"] == before["val_bits_per_byte"], (named, before))
    named = json.loads(works("eval", "whole", "--json", "--set", "data.tokenizer=c/tokenizer.json").stdout)
    check(named["val_bits_per_byte"] != before["val_bits_per_byte"] and record.read_bytes() == kept, (named, before))
    # A checkpoint of an old version has hashes by name alone; one that has not recorded the tokenizer is not compared.
    shutil.copytree(WORK / "whole", WORK / "old")
    edit_state(checkpoints(WORK / "old")[-1], lambda extra: extra.pop("data_order"))
    refused(["eval", "old"], ["c/tokenizer.json is SHA-256 "], "--set data.tokenizer=FILE")
    edit_state(checkpoints(WORK / "old")[-1], lambda extra: extra["data_sha256"].pop("tokenizer.json"))
    works("eval", "old")
    works("sample", "old", "--prompt", "a", "--tokens", "2", "--json")
    tokenizer.write_bytes(good)
    (WORK / "kept.json").rename(MANIFEST)
    works("eval", "whole")


def check_cache():
    time.sleep(3.1)  # files that changed less than two whole seconds ago are not cached
    CACHE.unlink(missing_ok=True)
    works(*TRAIN, "first", "--stop-after", "1")
    check(all(i["hashed"] == "computed" for i in data_inputs("first")), data_inputs("first"))
    check(len(CACHE.read_text().split("\n")) >= 3 and CACHE.stat().st_mode & 0o777 == 0o600, CACHE.read_text())
    said = works(*TRAIN, "second", "--stop-after", "1").stderr
    check("SHA-256 of unchanged files from the cache" in said, said)
    check(all(i["hashed"].startswith("cached, computed 2") for i in data_inputs("second")), data_inputs("second"))
    check([i["sha256"] for i in data_inputs("first")] == [i["sha256"] for i in data_inputs("second")], "the same hashes")
    meta = json.loads((WORK / "second" / "meta.json").read_text())
    check(meta["data_hashed"].keys() == meta["data_sha256"].keys(), meta)
    check(isinstance(meta["epoch_tokens"], int) and 0 < meta["epoch_tokens"] < SHARD.stat().st_size / 2, meta)
    # The same size, and the old mtime: ctime tells.
    good, before = SHARD.read_bytes(), SHARD.stat()
    SHARD.write_bytes(good[:-2] + bytes([good[-2] ^ 1]) + good[-1:])
    os.utime(SHARD, ns=(before.st_atime_ns, before.st_mtime_ns))
    check(SHARD.stat().st_mtime_ns == before.st_mtime_ns, "mtime is restored")
    refused([*TRAIN, "second"], ["c/manifest.json says "], "restore it")
    SHARD.write_bytes(good)
    CACHE.write_bytes(b"\xff damaged\n" + CACHE.read_bytes()[:-40])
    works(*TRAIN, "second", "--stop-after", "1")


def check_change_while_reading():
    """The steps before the change are saved, and the run resumes from them."""
    good = SHARD.read_bytes()
    long = [*TRAIN, "long", "--steps", "100000", "--set", "run.checkpoint_every=0", "--set", "eval.every=1000000"]
    training = subprocess.Popen([str(ASSAY), *long], cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = WORK / "long" / "log.txt"
    while training.poll() is None and not (log.exists() and "step 20/" in log.read_text()):
        time.sleep(0.02)
    os.chmod(SHARD, 0o600)  # new ctime, same bytes: no reason to stop
    time.sleep(0.3)
    check(training.poll() is None, "chmod does not end a run")
    with open(SHARD, "r+b") as file:
        file.seek(3000)
        file.write(b"\xff\x00" if good[3000:3002] != b"\xff\x00" else b"\xfe\x00")
    said = training.communicate(timeout=60)[1]
    check(training.returncode == 1 and "changed while the run reads it: SHA-256 was " in said
          and "hint: put the file back as it was" in said, said)
    check(len(checkpoints(WORK / "long")) == 1, f"what was trained before is saved: {said}")
    SHARD.write_bytes(good)
    said = works(*long, "--stop-after", "1").stderr
    check("resumes after step" in said, said)


def failing(arguments, call, path, how, number=1):
    """The command with one failing call to the system (tests/torture/faults.cpp)."""
    faults = {"LD_PRELOAD": str(ASSAY.parent / "libtorture_faults.so"), "ASSAY_FAULTS_CALL": call, "ASSAY_FAULTS_PATH": path,
              "ASSAY_FAULTS_HOW": how, "ASSAY_FAULTS_NUMBER": str(number)}
    return subprocess.run([str(ASSAY), *arguments], cwd=WORK, capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": str(WORK / "cache"), **faults})


def check_killed_twice():
    """`data prepare` killed while it named its shards, and again while it wrote the manifest that lists them."""
    prepare = ["data", "prepare", "text.txt", "--tokenizer", "tok.json", "--shard-tokens", "1024", "-o"]
    works(*prepare, "whole-corpus")
    check(len(list((WORK / "whole-corpus").glob("corpus_train_*.bin"))) > 2, "the corpus has too few shards")
    for call, path, number in (("rename", "*/killed-corpus/corpus_train_*.bin", 2), ("fsync", "*/killed-corpus/tokenizer.json.part", 1)):
        killed = failing([*prepare, "killed-corpus"], call, path, "kill", number)
        check(killed.returncode == -signal.SIGKILL, f"{call} of {path}: {killed}")
    works(*prepare, "killed-corpus")
    whole, killed = ({file.name: file.read_bytes() for file in (WORK / name).iterdir()} for name in ("whole-corpus", "killed-corpus"))
    check(whole == killed, f"{sorted(whole)} and {sorted(killed)}")


def check_no_locks():
    """A file system that cannot lock is no other process."""
    failed = failing([*TRAIN, "no-lock", "--stop-after", "1"], "lock", "*/no-lock/*", "ENOLCK")
    check(failed.returncode == 1 and "error: cannot lock " in failed.stderr and "No locks available" in failed.stderr
          and "hint: its file system may not know locks" in failed.stderr, failed.stderr)


def check_many_shards():
    """More shards than files that a program may have open: the limit is raised, or named."""
    works("data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "split", "--shard-tokens", "1024")
    number = len(list((WORK / "split").glob("*_train_*.bin")))
    few = number + 5
    check(number >= 7, number)
    settings = ["--set", "data.train=[split/*_train_*.bin]", "--set", "data.val=[split/*_val_*.bin]", "--set", "data.shuffle=false",
                "--stop-after", "1"]

    def limited(hard, *arguments):
        return subprocess.run([str(ASSAY), *arguments], cwd=WORK, capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard)))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = limited(most, *TRAIN, "many", *settings)
    check(done.returncode == 0, f"{number} shards where {few} files may be open at first: {done.stderr}")
    lost = "data.train: 28% of the tokens are never read: what is left at the end of each of "
    check(lost in done.stderr and "shards makes no step of 256 tokens (data.shuffle: true reads whole sequences)" in done.stderr, done.stderr)
    done = limited(few, *TRAIN, "too-many", *settings)
    check(done.returncode == 1 and "Too many open files" in done.stderr and "hint: raise the limit of open files (ulimit -n" in done.stderr,
          done.stderr)
    done = limited(few, "data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "again", "--shard-tokens", "1024")
    check(done.returncode == 0 and len(list((WORK / "again").glob("*_train_*.bin"))) == number, f"full shards are closed: {done.stderr}")


def check_read_error():
    """A disk that fails in mid-run: the steps before are saved, and the run goes on to the bits of one that met no error."""
    settings = ["--steps", "40", "--set", "run.checkpoint_every=0", "--set", "eval.every=1000", "--set", "run.log_every=1"]
    works(*TRAIN, "no-error", *settings)
    for number in range(20, 200, 20):  # hashing and the check of all ids read the shard too
        failed = failing([*TRAIN, "error", *settings], "read", "*corpus_train_000001.bin", "EIO", number)
        check("Input/output error" in failed.stderr, f"read {number} fails: {failed.stderr}")
        check(failed.returncode == 1, failed.stderr)
        done = len(checkpoints(WORK / "error"))
        if done > 0:
            break
    check(done == 1 and "; the checkpoint of step " in failed.stderr and "has what was trained before" in failed.stderr, failed.stderr)
    said = works(*TRAIN, "error", *settings).stderr
    check("resumes after step" in said, said)
    difference = first_difference(WORK / "no-error", WORK / "error")
    check(difference is None, difference)


def check_change_on_one_rank():
    """The checkpoint has the place in the data of its step, also if the other rank had read its next batch."""
    if not (ASSAY.parent / "libassay_mpi.so").exists():
        print("not run: a change on one of two ranks (this build has no MPI)")
        return
    works("data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "many", "--shard-tokens", "1024")
    settings = ["data.train=[many/corpus_train_*.bin]", "data.val=[many/corpus_val_*.bin]", "data.shuffle=true", "run.batch_tokens=64",
                "run.sequence=32", "run.micro_batch=1", "run.checkpoint_every=0", "eval.every=1000000"]
    shards = sorted((WORK / "many").glob("corpus_train_*.bin"))
    for attempt in range(40):  # which rank meets it first is chance
        shard = shards[attempt % len(shards)]
        folder = WORK / f"ranks-{attempt}"
        command = [*TRAIN, folder.name, "--ranks", "2", "--steps", "1000000", *(part for s in settings for part in ("--set", s))]
        training = subprocess.Popen([str(ASSAY), *command], cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        log, good = folder / "log.txt", shard.read_bytes()
        while training.poll() is None and not (log.exists() and "step 20/" in log.read_text()):
            time.sleep(0.02)
        with open(shard, "r+b") as file:
            file.seek(1500)
            file.write(b"\x05\x00" * 40)
        said = training.communicate(timeout=60)[1]
        shard.write_bytes(good)
        check(training.returncode == 1 and "changed while the run reads it" in said, said)
        state = json.loads((checkpoints(folder)[-1] / "state.json").read_text())
        check(state["cursor"]["batch"] == state["step"], f"step {state['step']} with the place {state['cursor']}: {said}")
        if "error: rank 1: " in said and "rank 0: " not in said:
            return
    check(False, "rank 0 was always the first that met the change")


def check_warnings():
    def said(name, *settings):
        sets = [part for setting in settings for part in ("--set", setting)]
        lines = works(*TRAIN, name, "--stop-after", "1", *sets).stderr.splitlines()
        return "\n".join(line for line in lines if "warning" in line)
    check("c/corpus_train_000001.bin is also training data" in said("same", "data.val=[c/*_train_*.bin]"), "the same file")
    shutil.copy(SHARD, WORK / "copy.bin")
    check("copy.bin (data.train has it as" in said("copied", "data.val=[copy.bin]"), "a copy is found by its hash")
    twice = said("twice", "data.train=[c/*_train_*.bin, copy.bin]")
    check("copy.bin has the bytes of " in twice and "c/corpus_train_000001.bin: a pass reads the same text again, and passes, "
          "data.max_epochs and the shares of a mixture count it as new" in twice, twice)
    check("has the bytes of" not in said("once", "eval.tokens=256"), "a shard alone")
    (WORK / "other").mkdir()
    shutil.copy(WORK / "c" / "corpus_val_000000.bin", WORK / "other" / "x_val.bin")
    unread = said("unread", "data.val=[c/*_val_*.bin, other/*.bin]", "eval.tokens=64")
    check("data.val: the validation loss is of the first 64 tokens in the order of the files (eval.tokens), which have none of " in unread
          and "other; eval.tokens=" in unread and " reads some of each" in unread, unread)
    wide = said("wide", "model.vocab_size=512")
    check("model.vocab_size is 512, but the tokenizer has 300 tokens: 212 rows of the embedding can never occur" in wide, wide)
    padded = said("padded", "model.vocab_size=384")
    check("vocab_size" not in padded, f"padding is usual: {padded}")


def check_validated_share():
    """The plan and the log say how much of the validation data the losses are of."""
    line = r"(?m)^validation: the first 64 of [\d,]+ tokens, in the order of the files \(eval\.tokens\)$"
    few, all_of_it = (["--set", f"eval.tokens={n}"] for n in (64, 1000000))
    planned = works(*TRAIN, "share", "--plan", *few).stdout
    check(re.search(line, planned), planned)
    logged = works(*TRAIN, "share", "--stop-after", "1", *few).stderr
    check(re.search(line, logged), logged)
    planned = works(*TRAIN, "share", "--plan", *all_of_it).stdout
    check("validation: the first" not in planned, planned)


def check_tokenizer_folder():
    """data.tokenizer may be a folder, as --tokenizer may; one without a tokenizer is named by the plan."""
    (WORK / "tok").mkdir()
    shutil.copy(WORK / "tok.json", WORK / "tok" / "tokenizer.json")
    folder = ["--set", "data.tokenizer=tok"]
    said = works(*TRAIN, "folder", "--plan", *folder).stderr
    check("planned without" not in said, said)
    works(*TRAIN, "folder", "--stop-after", "1", *folder)
    check("tokenizer.json" in [i["name"] for i in data_inputs("folder")], data_inputs("folder"))
    works("receipt", "verify", "folder", "--rerun", "1")
    works("eval", "folder")
    (WORK / "empty").mkdir()
    said = works(*TRAIN, "no-folder", "--plan", "--set", "data.tokenizer=empty").stderr
    check("empty holds neither tokenizer.json nor vocab.json" in said, said)


def check_two_tokenizers():
    """A run of a version that did not compare the tokenizers of its shards is trained again all the same."""
    (WORK / "horse.txt").write_text((WORK / "text.txt").read_text().replace("cat", "horse"))
    works("tokenizer", "train", "horse.txt", "--vocab-size", "300", "-o", "horse.json")
    works("data", "prepare", "horse.txt", "--tokenizer", "horse.json", "-o", "horse")
    two = ["--set", "data.train=[c/*_train_*.bin, horse/*_train_*.bin]", "--set", 'data.tokenizer=""']
    refused([*TRAIN, "two", *two], ["was written with another tokenizer"], "--set data.check_tokenizer=false")
    works(*TRAIN, "two", "--stop-after", "1", *two, "--set", "data.check_tokenizer=false")
    config = WORK / "two" / "config.yaml"
    checked = config.read_text().replace("check_tokenizer: false", "check_tokenizer: true")
    config.write_text(checked)
    check("check_tokenizer: true" in checked, checked)
    works("receipt", "make", "two")
    said = works("receipt", "verify", "two", "--rerun", "1").stdout
    check("bit for bit" in said, said)


def check_ids_beyond_tokenizer():
    """Shards without a manifest, of a larger tokenizer than the one that is given: refused unless the check is off, also
    when a run of a version that did not compare the ids goes on or is evaluated; its receipt is verified as ever."""
    works("tokenizer", "train", "text.txt", "--vocab-size", "310", "-o", "tok310.json")
    works("data", "prepare", "text.txt", "--tokenizer", "tok310.json", "-o", "larger")
    (WORK / "larger" / "manifest.json").unlink()
    val = ["--set", "data.val=[larger/*_val_*.bin]", "--set", "data.tokenizer=tok.json"]
    larger = ["--set", "data.train=[larger/*_train_*.bin]", *val]
    unchecked = ["--set", "data.check_tokenizer=false"]
    wrong = [" has id 30", ", the tokenizer has 300 tokens: it is not that of this shard"]
    way_out = "--set data.check_tokenizer=false"
    refused([*TRAIN, "beyond", *larger], [*wrong, "larger/corpus_train_000001.bin: token "], way_out)
    refused([*TRAIN, "beyond", *val], [*wrong, "larger/corpus_val_000000.bin: token "], way_out)
    works(*TRAIN, "beyond", "--stop-after", "2", *larger, *unchecked)
    config = WORK / "beyond" / "config.yaml"
    config.write_text(config.read_text().replace("check_tokenizer: false", "check_tokenizer: true"))
    refused([*TRAIN, "beyond", *larger], wrong, way_out)
    works(*TRAIN, "beyond", *larger, *unchecked)
    refused(["eval", "beyond", "--set", "data.check_tokenizer=true"], wrong, way_out)
    works("eval", "beyond")
    config.write_text(config.read_text().replace("check_tokenizer: false", "check_tokenizer: true"))
    works("receipt", "make", "beyond")
    said = works("receipt", "verify", "beyond", "--rerun", "2").stdout
    check("bit for bit" in said, said)
    # A branch of it has no --set: the hint is the command that goes on with the branch.
    branch = ["branch", "beyond", "--at-step", "6", "--warmdown-steps", "2", "--run", "beyond branch", "-q"]
    goes_on = ["train", "beyond branch/config.yaml", "--run", "beyond branch", *unchecked]
    refused(branch, wrong, f"skip the check: assay {shlex.join(goes_on)}")
    works(*goes_on)
    check(checkpoints(WORK / "beyond branch")[-1].name == "step-00000008", "the branch goes on")


make_corpus()
check_planted_text()
check_evaluations()
check_larger_configuration()
check_changed_tokenizer()
check_cache()
check_change_while_reading()
check_read_error()
check_killed_twice()
check_no_locks()
check_many_shards()
check_change_on_one_rank()
check_warnings()
check_validated_share()
check_tokenizer_folder()
check_two_tokenizers()
check_ids_beyond_tokenizer()
print("data trust: ok")
