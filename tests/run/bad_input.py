"""Inputs for the table of refusals: a corpus, configurations, a finished run, and damaged copies of
them."""
import ctypes
import gzip
import os
import pathlib
import resource
import shutil
import signal
import struct

from harness import plant_infinity

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2

BASE = {
    "model": "{hidden: 64, layers: 1, heads: 2, ffn: 64, vocab_size: 320}",
    "schedule": "{warmup: 1, warmdown: 0}",
    "run": "{steps: 6, batch_tokens: 256, sequence: 64, micro_batch: 4, checkpoint_every: 2, threads: 1}",
    "eval": "{every: 3, tokens: 256}",
    "data": "{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], tokenizer: c/tokenizer.json}",
}
OTHER_DATA = "{train: ['other/*_train_*.bin'], val: ['other/*_val_*.bin'], tokenizer: other/tokenizer.json}"
NO_TOKENIZER = "{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin']}"
RAW = b"A caf\xe9 in latin-1, \xff\xfe\x00 and half of a euro: \xe2\x82"


def config_text(**sections):
    """BASE with some sections replaced; None removes a section."""
    return "".join(f"{name}: {text}\n" for name, text in {**BASE, **sections}.items() if text is not None)


def evaluating(section, fields, **sections):
    return config_text(eval=f"{{every: 3, tokens: 256, {section}: {{{fields}}}}}", **sections)


def moe(fields):
    return f"{{hidden: 64, layers: 1, heads: 2, ffn: 64, vocab_size: 320, moe: {{{fields}}}}}"


def shard(path, ids, magic=20240520, version=1, tokens=None):
    header = [magic, version, len(ids) if tokens is None else tokens] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(ids)}H", *ids))


def without_privileges():
    """Drops root's right to read and write everything for the command that follows."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")


def can_drop_privileges(work):
    """True if a file can be made unreadable on this machine."""
    probe = work / "probe"
    probe.write_text("")
    probe.chmod(0)
    child = os.fork()
    if child == 0:
        try:
            without_privileges()
            os.execvp("test", ["test", "-r", str(probe)])
        finally:
            os._exit(99)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    probe.unlink()
    return code == 1


def full_disk(limit):
    """Simulates a full disk by a limit on the size of files."""
    def before_the_command():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores the signal, a shell does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return before_the_command


def make_files(work, assay):
    """assay(*arguments) runs the command in `work` and must succeed."""
    (work / "text.txt").write_text("<|endoftext|>\n".join(
        f"Story {i}: the cat number {i * 37} sat on the mat and the dog saw it.\n" for i in range(300)))
    (work / "empty.txt").write_text("")
    (work / "one.txt").write_text("A corpus of one short document.")
    (work / "raw.txt").write_bytes(RAW + b"<|endoftext|>" + RAW)
    lines = b'{"text": "a line"}\n' * 2000
    (work / "cut.jsonl.gz").write_bytes(gzip.compress(lines)[:-4])
    (work / "damaged.jsonl.gz").write_bytes(gzip.compress(lines)[:-8] + b"x" * 8)
    (work / "plain.jsonl.gz").write_bytes(lines)
    (work / "plain.jsonl.zst").write_bytes(lines)
    (work / "nothing.txt.zst").write_bytes(b"")
    for name, line in (("list", b"[1]"), ("number", b'{"text": 3}'), ("field", b'{"body": "x"}'), ("cut", b'{"text": "x'),
                       ("latin1", b'{"text": "caf\xe9"}')):
        (work / f"{name}.jsonl").write_bytes(b'{"text": "good"}\n\n' + line + b"\n")
    (work / "array.json").write_text('[{"text": "a"}, {"text": "b"}]')
    (work / "pretty.json").write_text('{\n "text": "a"\n}\n')
    (work / "loops").mkdir()
    (work / "loops" / "loop").symlink_to("loop")
    for name in ("folder", "out"):
        (work / name).mkdir()
    (work / "closed.txt").write_text("text")
    (work / "closed.yaml").write_text(config_text())
    assay("tokenizer", "train", "text.txt", "--vocab-size", "300", "-o", "tok.json")
    assay("tokenizer", "train", "text.txt", "--vocab-size", "300", "-o", "gpt2", "--format", "gpt2")
    assay("data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "c")
    assay("data", "prepare", "one.txt", "--tokenizer", "tok.json", "--val-every", "0", "-o", "one")

    assay("tokenizer", "train", "text.txt", "--vocab-size", "290", "-o", "tok290.json")
    assay("tokenizer", "train", "text.txt", "--vocab-size", "330", "-o", "tok330.json")
    assay("data", "prepare", "text.txt", "--tokenizer", "tok290.json", "-o", "other")

    good = sorted((work / "c").glob("*_train_*.bin"))[0].read_bytes()
    (work / "cut.bin").write_bytes(good[:-7])
    (work / "header.bin").write_bytes(good[:100])
    (work / "closed.bin").write_bytes(good)
    shard(work / "magic.bin", [1] * 600, magic=1234)
    shard(work / "version.bin", [1] * 600, version=9)
    shard(work / "no_tokens.bin", [])
    shard(work / "negative.bin", [1] * 600, tokens=-5)
    shard(work / "large_id.bin", [1] * 500 + [320] + [1] * 99)
    for name in ("closed.txt", "closed.yaml", "closed.bin"):
        (work / name).chmod(0)

    synth = "{cache: cache, synth: {train_tokens: 20000, val_tokens: 2000, vocab_size: 300}}"
    (work / "synth.yaml").write_text(config_text(data=synth))
    (work / "cache").mkdir()
    (work / "good.yaml").write_text(config_text())
    assay("train", "good.yaml", "--run", "done")
    shutil.copytree(work / "done", work / "damaged")
    for folder in (work / "damaged" / "checkpoints").iterdir():
        os.truncate(folder / "model.safetensors", 5000)
    # Still a run, although its newest checkpoint is damaged below.
    shutil.copytree(work / "done", work / "half")
    shutil.copytree(work / "done", work / "overflowed")
    plant_infinity(sorted((work / "overflowed" / "checkpoints").iterdir())[-1], token=7)
    (work / "other.yaml").write_text(config_text(data=OTHER_DATA))
    assay("export", "done", "-o", "exported")
    assay("import", "exported", "-o", "imported", "--config", "good.yaml")
    newest = sorted((work / "half" / "checkpoints").iterdir())[-1]
    os.truncate(newest / "optimizer.safetensors", 100)


def tree(folder):
    """Every file with its bytes, except a run's lock and logs."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in pathlib.Path(folder).rglob("*") if path.name not in (".lock", "log.txt", "log")}
