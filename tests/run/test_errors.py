#!/usr/bin/env python3
"""Bad input: exit 1, one line `error:` with the value, one line `hint:`, and nothing lost or
changed."""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import bad_input
from harness import ASSAY, checkpoints
from refusals import is_refusal
from refused_commands import COMMANDS, CONFIG_JSONS, PREPARE, TRAIN, UNREADABLE
from refused_configs import CONFIGS, SHARDS

FOLDER = tempfile.TemporaryDirectory(prefix="assay-errors-")
WORK = pathlib.Path(FOLDER.name)
failures = []


def run(arguments, **how):
    return subprocess.run([str(ASSAY), *arguments], cwd=WORK, capture_output=True, **how)


def works(*arguments, **how):
    done = run(arguments, **how)
    if done.returncode != 0:
        sys.exit(f"assay {' '.join(arguments)}: exit {done.returncode}\n{done.stderr.decode()}")
    return done


def check(what, ok, detail=""):
    if not ok:
        failures.append(f"{what}: {detail}")


def refused(what, arguments, error, hint, said_before=False, **how):
    """Requires the error and the hint, that no file changes, and no other output unless
    said_before."""
    before = bad_input.tree(WORK)
    done = run(arguments, **how)
    check(what, is_refusal(done, error, hint, warned=True, said_before=said_before, printed=said_before),
          f"assay {' '.join(arguments)}: exit {done.returncode}, wanted {error!r}, {hint!r}\n"
          f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
    if not said_before:
        after = bad_input.tree(WORK)
        changed = sorted(k for k in {**before, **after} if before.get(k, "absent") != after.get(k, "absent"))
        check(what, not changed, f"assay {' '.join(arguments)} changed {changed}")


def check_tables():
    for what, text, error, hint in CONFIGS:
        (WORK / "config.yaml").write_text(text)
        refused(what, ["train", "config.yaml", "--run", "new"], error, hint)
    (WORK / "config.yaml").unlink()
    for what, pattern, error, hint in SHARDS:
        refused(what, [*TRAIN, "new", "--set", f"data.train=[{pattern}]"], error, hint)
    for arguments, error, hint in COMMANDS:
        refused("command", arguments, error, hint)
    (WORK / "hf").mkdir()
    for text, error, hint in CONFIG_JSONS:
        (WORK / "hf" / "config.json").write_text(text)
        refused("config.json", ["import", "hf", "-o", "new"], error, hint)


def check_permissions():
    if not bad_input.can_drop_privileges(WORK):
        print("not run: unreadable files and read-only runs, because this user may read and write everything")
        return
    for arguments, error, hint in UNREADABLE:
        refused("unreadable", arguments, error, hint, preexec_fn=bad_input.without_privileges)
    for folder in ("parts/a/c", "parts/b/c"):  # a pattern must not leave one out
        (WORK / folder).mkdir(parents=True)
    shutil.copy(WORK / "c" / "corpus_train_000001.bin", WORK / "parts/a/c/x_0.bin")
    (WORK / "parts/b").chmod(0)
    for pattern, closed in (("parts/*/x_*.bin", "parts/b"), ("parts/*/c/x_*.bin", "parts/b/c"), ("parts/*/c/x_0.bin", "parts/b/c")):
        refused("a closed folder of a pattern", [*TRAIN, "new", "--set", f"data.train=[{pattern}]"],
                f"{closed}: Permission denied", "permissions", preexec_fn=bad_input.without_privileges)
    (WORK / "parts/b").chmod(0o755)
    (WORK / "done").chmod(0)
    for command in (["eval", "done"], ["compare", "done"], ["checkpoint", "list", "done"], [*TRAIN, "done"]):
        refused("a closed run", command, "done/config.yaml: Permission denied", "permissions",
                preexec_fn=bad_input.without_privileges)
    refused("inside a closed folder", ["eval", "done/checkpoints"], "cannot read done/checkpoints: Permission denied",
            "permissions", preexec_fn=bad_input.without_privileges)
    (WORK / "done").chmod(0o755)
    for closed in (["done"], ["done", "done/checkpoints"]):
        for folder in closed:
            (WORK / folder).chmod(0o555)
        refused("read-only run", [*TRAIN, "done", "--steps", "8"], "done", "", preexec_fn=bad_input.without_privileges)
        for folder in closed:
            (WORK / folder).chmod(0o755)
    (WORK / "folder").chmod(0o555)
    refused("read-only place", [*TRAIN, "folder/new"], "folder/new", "", preexec_fn=bad_input.without_privileges)
    refused("read-only output", ["data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "folder/out"],
            "folder/out", "", preexec_fn=bad_input.without_privileges)
    (WORK / "folder").chmod(0o755)


def check_raw_bytes():
    works("data", "prepare", "raw.txt", "--tokenizer", "tok.json", "--val-every", "0", "--keep-space", "-o", "raw")
    shard = sorted((WORK / "raw").glob("*_train_*.bin"))[0].read_bytes()[1024:]
    ids = [str(int.from_bytes(shard[i:i + 2], "little")) for i in range(0, len(shard), 2)]
    text = works("tokenizer", "decode", "--tokenizer", "tok.json", *ids).stdout
    check("invalid UTF-8 is kept", text == 2 * (b"<|endoftext|>" + bad_input.RAW), text)


def check_changed_data():
    manifest = WORK / "c" / "manifest.json"
    kept = bad_input.tree(WORK / "c")
    (WORK / "text2.txt").write_text((WORK / "text.txt").read_text().replace("mat", "hat"))
    works("data", "prepare", "text2.txt", "--tokenizer", "tok.json", "-o", "c", "--overwrite")
    check("the corpus has changed", manifest.read_bytes() != kept["manifest.json"])
    refused("data that changed", [*TRAIN, "done", "--steps", "8"],
            "the data of the run has changed: corpus_train", "--fresh")
    for name, content in kept.items():
        (WORK / "c" / name).write_bytes(content)


def check_tokenizer_written_over():
    """The run's tokenizer was replaced by one that is too large for the model: no hint of a larger model."""
    file = WORK / "c" / "tokenizer.json"
    kept = file.read_bytes()
    file.write_bytes((WORK / "tok330.json").read_bytes())
    refused("eval", ["eval", "done"], "the data of the run has changed: ", "--set data.tokenizer=FILE")
    refused("train", [*TRAIN, "new"], "c/manifest.json was written with another tokenizer", "data prepare")
    other = ["--set", "data.tokenizer=tok330.json", "--set", "data.check_tokenizer=false"]
    refused("eval", ["eval", "done", *other], "has 330 tokens", "the tokenizer that its shards were made with")
    file.write_bytes(kept)


def check_no_sampled_step():
    """A run that quantises by overrides alone."""
    works(*TRAIN, "overridden", "--set", "precision.recipe=bf16", "--set", "precision.override=[weight=mxfp8]")
    refused("precision", ["precision", "overridden"], "has no measures of number formats", "took no sampled step")
    shutil.rmtree(WORK / "overridden")


def check_moved_data():
    """The hints name the options that find it again."""
    (WORK / "c").rename(WORK / "moved")
    refused("eval", ["eval", "done"], "data.val: no file matches", "if it has moved: --set data.val=FILE")
    val = ["--set", "data.val=[moved/*_val_*.bin]"]
    refused("eval", ["eval", "done", *val], "c/tokenizer.json", "if it has moved: --set data.tokenizer=FILE")
    works("eval", "done", *val, "--set", "data.tokenizer=moved/tokenizer.json")
    refused("sample", ["sample", "done", "--prompt", "a"], "c/tokenizer.json", "if it has moved: --tokenizer FILE")
    works("sample", "done", "--prompt", "a", "--tokens", "2", "--tokenizer", "moved/tokenizer.json")
    refused("rerun", ["receipt", "verify", "done", "--rerun", "2"], "no file matches", "--data DIR", said_before=True)
    works("receipt", "verify", "done", "--rerun", "2", "--data", "moved")
    (WORK / "moved").rename(WORK / "c")


def journal_naming(victim, database):
    """The journal of a transaction of several databases, by which SQLite deletes `victim`."""
    magic, page, name = bytes.fromhex("d9d505f920a163d7"), int.from_bytes(database[16:18], "big"), str(victim).encode()
    header = magic + struct.pack(">IIIII", 0, 1, len(database) // page, 512, page)
    named = struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name))
    return header.ljust(512, b"\0") + named + magic


def check_foreign_run():
    """Somebody else's run may hold links to files of the user, and a journal by which SQLite would delete one."""
    victim, run, train = WORK / "victim", WORK / "foreign", [*TRAIN, "foreign", "--steps", "8"]
    mine = (WORK / "done" / "telemetry.db").read_bytes()
    for name in (".lock", "log.txt", "telemetry.db", "telemetry.db-wal", "telemetry.db-journal"):
        shutil.copytree(WORK / "done", run)
        victim.write_bytes(mine)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(victim)
        refused(name, train, f"foreign/{name} is a link", "remove it", said_before=True)
        check(f"what {name} leads to", victim.read_bytes() == mine, "it is changed")
        shutil.rmtree(run)

    shutil.copytree(WORK / "done", run)
    database = bytearray((run / "telemetry.db").read_bytes())
    database[18:20] = b"\1\1"  # no WAL
    (run / "telemetry.db").write_bytes(database)
    (run / "telemetry.db-journal").write_bytes(journal_naming(victim, database))
    refused("a journal", train, "foreign/telemetry.db-journal names another file", "do not trust", said_before=True)
    check("what a journal names", victim.exists(), "it is deleted")
    shutil.rmtree(run)

    shutil.copytree(WORK / "done", run)
    os.mkfifo(run / "imported.json")
    refused("a pipe", ["export", "foreign", "-o", "new"], "foreign/imported.json: it is a pipe", "", timeout=60)
    shutil.rmtree(run)
    victim.unlink(missing_ok=True)


def check_linked_checkpoints():
    """A user may keep checkpoints on another disk, but a run brings no link to those of another one."""
    run, other, train = WORK / "foreign", WORK / "other-run", [*TRAIN, "foreign", "--steps", "8"]
    for folder in (run, other):
        shutil.copytree(WORK / "done", folder)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(other / "checkpoints")
    refused("checkpoints of another run", train, "foreign/checkpoints is a link to", f"echo {run.resolve()} >> ")
    (other / "checkpoints" / ".run").write_text(f"{run.resolve()}\n")  # as the hint says
    works(*train)

    run, disk = WORK / "linked", WORK / "disk"
    run.mkdir()
    disk.mkdir()
    (run / "checkpoints").symlink_to(disk)
    works(*TRAIN, "linked", "--steps", "2")
    works(*TRAIN, "linked")
    names = [folder.name for folder in checkpoints(WORK / "done")]
    check("checkpoints on another disk", [folder.name for folder in checkpoints(run)] == names, sorted(disk.iterdir()))
    for folder in (WORK / "foreign", other, run, disk):
        shutil.rmtree(folder)


def check_no_space():
    """A disk that is really full, in a separate mount namespace."""
    size = sum(file.stat().st_size for file in (WORK / "done").rglob("*") if file.is_file())
    weights = (checkpoints(WORK / "done")[-1] / "model.safetensors").stat().st_size
    (WORK / "small").mkdir()
    train = f"{ASSAY} train good.yaml --run small/run --steps 8"
    script = (f"mount -t tmpfs -o size={(size + 3 * weights // 2) // 1024 + 64}k none small || exit 77\n"
              f"cp -r done small/run; {train} 2>first; echo $?; ls small/run/checkpoints\n"
              f"mount -o remount,size=64m small; {train} 2>second; echo $?; ls small/run/checkpoints")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=WORK, capture_output=True, text=True)
    if done.returncode in (1, 77) and not done.stdout:
        print(f"not run: a full disk, this user may not mount: {done.stderr.strip()}")
        return
    said = (WORK / "first").read_text().splitlines()[-2:]
    check("no space", "No space left on device" in said[0] and said[1].startswith("hint: check the disk"), said)
    check("the run continues once there is space", done.stdout.split() ==
          ["1", "step-00000004", "step-00000006", "0", "step-00000006", "step-00000008"], done.stdout)


def check_full_disk():
    refused("full disk, shard", [*PREPARE, "text.txt"], "File too large", "free space",
            preexec_fn=bad_input.full_disk(2000))
    refused("full disk, generated corpus", ["train", "synth.yaml", "--run", "new"], "File too large", "",
            preexec_fn=bad_input.full_disk(5000))
    before = bad_input.tree(WORK / "done" / "checkpoints")
    weights = (checkpoints(WORK / "done")[-1] / "model.safetensors").stat().st_size
    refused("full disk, checkpoint", [*TRAIN, "done", "--steps", "8"], "File too large",
            "df -h done/checkpoints)", said_before=True,
            preexec_fn=bad_input.full_disk(2 * weights))
    check("earlier checkpoints are kept", bad_input.tree(WORK / "done" / "checkpoints") == before, "they differ")
    works(*TRAIN, "whole", "--steps", "8")
    works(*TRAIN, "done", "--steps", "8")
    names = [folder.name for folder in checkpoints(WORK / "done")]
    check("the run continues", names[-1] == "step-00000008", names)
    check("the bits are those of a run with enough space", bad_input.tree(checkpoints(WORK / "done")[-1])["model.safetensors"]
          == bad_input.tree(checkpoints(WORK / "whole")[-1])["model.safetensors"], "other weights")


def check_damaged_checkpoint():
    done = works(*TRAIN, "half").stderr.decode()
    check("falls back", "warning: ignoring the checkpoint half/checkpoints/step-00000006" in done
          and "optimizer.safetensors has 100 bytes" in done and "resumes after step 4" in done, done)


def check_other_tokenizer():
    """The option that the refusal's hint names works."""
    works("import", "exported", "-o", "other-imported", "--config", "other.yaml", "--set", "data.check_tokenizer=false")
    works("train", "other-imported/config.yaml", "--run", "other-imported", "--steps", "2")
    works("train", "imported/config.yaml", "--run", "imported", "--steps", "2")


bad_input.make_files(WORK, works)
for part in (check_tables, check_other_tokenizer, check_permissions, check_raw_bytes, check_changed_data,
             check_tokenizer_written_over, check_no_sampled_step, check_moved_data, check_foreign_run,
             check_linked_checkpoints, check_no_space,
             check_full_disk, check_damaged_checkpoint):
    part()
print("\n".join(failures) or f"errors: ok ({len(CONFIGS) + len(SHARDS) + len(COMMANDS) + len(CONFIG_JSONS)} refusals and more)")
sys.exit(1 if failures else 0)
