#!/usr/bin/env python3
"""assay data and assay tokenizer as a user calls them. Usage: test_data_cli.py ASSAY"""
import gzip
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # in a script's background it is ignored, and programs inherit that
ASSAY = str(pathlib.Path(sys.argv[1]).resolve())
folder = tempfile.TemporaryDirectory()
work = pathlib.Path(folder.name)
stories = "<|endoftext|>\n".join(f"Story {i}: the cat number {i * 37} sat on the mat and the dog saw it.\n"
                                 for i in range(100))
(work / "stories.txt").write_text(stories)
(work / "stories.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in stories.split("<|endoftext|>")))
(work / "one.txt").write_text("one document")
(work / "empty.txt").write_text("")
(work / "empty").mkdir()
(work / "bad.jsonl").write_text('{"text": "a"}\n{"text": }\n')
(work / "short.bin").write_bytes(b"x" * 100)
(work / "magic.bin").write_bytes(b"x" * 2000)
failures = []


def run(*arguments, **how):
    how.setdefault("text", True)
    return subprocess.run([ASSAY, *arguments], cwd=work, capture_output=True, **how)


def check(what, ok, done=None):
    if not ok:
        failures.append(what + (f": exit {done.returncode}\n{done.stdout}{done.stderr}" if done else ""))


def works(*arguments, **how):
    done = run(*arguments, **how)
    check("assay " + " ".join(arguments), done.returncode == 0, done)
    return done.stdout


def refused(error, hint, *arguments, **how):
    done = run(*arguments, **how)
    check(f"assay {' '.join(arguments)} wants {error!r}, {hint!r}", is_refusal(done, error, hint), done)


# From text to shards.
trained = json.loads(works("tokenizer", "train", "stories.txt", "--vocab-size", "300", "-o", "tok.json", "--json"))
check("vocabulary", trained["vocab_size"] == 300 and trained["eot_id"] == 299)
made = json.loads(works("data", "prepare", "stories.txt", "--tokenizer", "tok.json", "-o", "c", "--json"))
check("documents", made["train"]["documents"] == 95 and made["val"]["documents"] == 5)
check("tokenizer hash", made["tokenizer_sha256"] == trained["sha256"])
works("data", "prepare", "stories.jsonl", "--tokenizer", "c", "-o", "d", "--threads", "3")
for name in ("corpus_val_000000.bin", "corpus_train_000001.bin", "tokenizer.json"):
    check(f"text and JSONL give the same {name}", (work / "c" / name).read_bytes() == (work / "d" / name).read_bytes())
(work / "stories.txt.gz").write_bytes(gzip.compress(stories.encode()))
works("data", "prepare", "stories.txt.gz", "--tokenizer", "c", "-o", "e")
for name in ("corpus_val_000000.bin", "corpus_train_000001.bin"):
    check(f"compressed text gives the same {name}", (work / "c" / name).read_bytes() == (work / "e" / name).read_bytes())
done = run("data", "prepare", "stories.jsonl", "bad.jsonl", "--tokenizer", "c", "-o", "f", "--skip-bad-lines", "--json")
made = json.loads(done.stdout)
check("bad lines", made["bad_lines"] == 1 and [s["bad_lines"] for s in made["sources"]] == [0, 1]
      and [s["documents"] for s in made["sources"]] == [100, 1], done)
check("the first bad line is shown", "warning: 1 bad line was skipped, the first: " in done.stderr and "bad.jsonl line 2 is not JSON" in done.stderr, done)
shares = []
for name, inputs in (("g1", ["stories.txt"]), ("g2", ["stories.jsonl", "stories.txt.gz"])):
    out = works("data", "prepare", *inputs, "--tokenizer", "c", "-o", name, "--val-share", "0.1")
    manifest = json.loads((work / name / "manifest.json").read_text())
    held = [s["documents"] for s in manifest["shards"] if s["split"] == "val"][0]
    check("the share is printed", f"validation: {held} of {100 * len(inputs)} documents" in out and "share 0.1 by hash" in out)
    check("the manifest records the rule", manifest["validation"] == "share 0.1 by hash")
    shares.append(held / len(inputs))
check(f"copies are on the same side: {shares}", shares[0] == shares[1] and 2 <= shares[0] <= 25)
check("verify", "match the manifest" in works("data", "verify", "c"))
seen = json.loads(works("data", "inspect", "c", "--json"))["shards"]
check("inspect", [s["documents"] for s in seen] == [95, 5] and "cat number" in seen[0]["begins"])
# Without its tokenizer: the manifest knows what begins a document; without both nobody does.
(work / "alone").mkdir()
for file in sorted((work / "c").glob("*.bin")) + [work / "c" / "manifest.json"]:
    shutil.copy(file, work / "alone")
seen = json.loads(works("data", "inspect", "alone", "--json"))["shards"]
check("inspect by the manifest", [s["documents"] for s in seen] == [95, 5])
(work / "alone" / "manifest.json").unlink()
seen = json.loads(works("data", "inspect", "alone", "--json"))["shards"]
check("inspect without either", [(s["documents"], s["median_document_tokens"]) for s in seen] == [(None, None)] * 2)
check("and says so", "an unknown number of documents (no tokenizer.json or manifest.json beside it)" in works("data", "inspect", "alone"))
check("inspect for people", "the cat" in works("data", "inspect", "c/corpus_*.bin"))

# More shards than a process may have open files.
(work / "many.txt").write_text(stories * 30)
many = ("data", "prepare", "many.txt", "--tokenizer", "c", "--shard-tokens", "1024")
works(*many, "-o", "many")
few = run(*many, "-o", "few", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
shards = sorted(p.name for p in (work / "many").iterdir())
check("more than forty shards", few.returncode == 0 and len(shards) > 60, few)
check("the same shards with few open files",
      few.returncode == 0 and all((work / "few" / name).read_bytes() == (work / "many" / name).read_bytes() for name in shards))
works("data", "verify", "few")
(work / "lines.txt").write_text('{"text": "x"}\n' * 9)
done = run("data", "prepare", "one.txt", "lines.txt", "--tokenizer", "c", "-o", "as-text", "--val-every", "0")
check("JSONL under another name", done.returncode == 0 and "warning: 1 file was read as text, but begins as JSONL: name it *.jsonl "
      "if each line is a document, the first: lines.txt" in done.stderr, done)

(work / "mention.md").write_text("texts end in <|endoftext|> there")

# A folder with all that people have in one.
mess = work / "mess"
mess.mkdir()
(mess / "a.txt").write_text(stories)
(mess / "latin.txt").write_bytes(b"caf\xe9<|endoftext|>fine<|endoftext|>\xff\xfe")
(mess / "run.py").write_text("x")
(mess / "page.html").write_text("x")
(mess / "loop").symlink_to("loop")
(mess / "gone.txt").symlink_to("nowhere")
done = run("data", "prepare", "mess", "--tokenizer", "tok.json", "-o", "messy")
check("a split inside a file is said", "1 split inside files at <|endoftext|> (--separator '' keeps files whole)" in
      works("data", "prepare", "mention.md", "one.txt", "--tokenizer", "c", "-o", "mention", "--val-every", "0"))
check("none in whole files", "inside files" not in works("data", "prepare", "mention.md", "--tokenizer", "c", "-o",
                                                          "whole-file", "--val-every", "0", "--separator", ""))
check("a messy folder", done.returncode == 0 and "2 files read; 2 of other kinds left out (.html, .py)" in done.stdout, done)
check("bytes that are not UTF-8", "warning: 2 documents are not UTF-8, the first: mess/latin.txt, document 1, byte 3"
      in done.stderr, done)
check("links in a circle and to nothing", "warning: 2 entries of the folders cannot be read and were left out, the first: mess/"
      in done.stderr, done)
done = run("data", "prepare", "mess", "--val", "mess/latin.txt", "--tokenizer", "tok.json", "-o", "leak")
check("validation text that is trained on", "warning: 1 validation file (--val) is trained on too, the first: mess/latin.txt, as mess/"
      in done.stderr, done)
texts = [t.strip() for t in stories.split("<|endoftext|>")]
for some, said in ((["a new one", texts[3], texts[7]], "2 of 3 validation documents are training documents too; --drop-duplicates leaves them out"),
                   (["a new one", texts[3]], "1 of 2 validation documents is a training document too; --drop-duplicates leaves it out"),
                   (texts[3:6], "3 of 3 validation documents are training documents too; give other validation text")):
    (work / "held.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in some))
    leaking = ("data", "prepare", "stories.txt", "--val", "held.jsonl", "--tokenizer", "c", "-o", "leak-documents", "--overwrite")
    done = run(*leaking, "--json")
    check(said, done.returncode == 0 and f"warning: {said}\n" in done.stderr
          and json.loads(done.stdout)["trained_val_documents"] == int(said[0]), done)
    done = run(*leaking, "--drop-duplicates")
    check(f"without duplicates: {said}", done.returncode == (len(some) == int(said[0])) and "training documents too" not in done.stderr, done)
(work / "twins").mkdir()
(work / "twins/a.txt").write_text("one")
(work / "twins/a.txt.gz").write_bytes(gzip.compress(b"one"))
(work / "twins/wide.txt").write_bytes("two".encode("utf-16-le"))
for command in (("data", "prepare", "twins", "--tokenizer", "c", "-o", "both"), ("tokenizer", "train", "twins", "-o", "both.json")):
    done = run(*command)
    check(f"{command[0]}: a file beside its packed form", done.returncode == 0 and "warning: 1 file has the name of another but for .gz or "
          ".zst; both are read, the first: twins/a.txt.gz, beside twins/a.txt\n" in done.stderr, done)
    check(f"{command[0]}: UTF-16 without a mark", "warning: 1 document holds NUL bytes (is its file UTF-16?), the first: twins/wide.txt, "
          "document 1, byte 1\n" in done.stderr, done)
done = run("data", "prepare", "mess", "mess/a.txt", "--tokenizer", "tok.json", "-o", "overlap", "--json")
check("a file in two inputs", done.returncode == 0 and json.loads(done.stdout)["files_given_again"] == 1
      and "warning: 1 file was given again, and is read once, the first: mess/a.txt, as mess/a.txt" in done.stderr, done)
once, again = ((work / name / "corpus_train_000001.bin").read_bytes() for name in ("messy", "overlap"))
check("is read once", once == again)
made = json.loads(works("data", "prepare", "mess", "--tokenizer", "tok.json", "-o", "messy2", "--shuffle", "7", "--json"))
check("counts in JSON", [made[k] for k in ("not_utf8_documents", "files_read", "files_of_other_kinds", "entries_not_readable",
                                           "shuffle_seed")] == [2, 2, 2, 2, 7], made)
check("inspect knows", "2 documents of its text are not UTF-8: mess/latin.txt (2)" in run("data", "inspect", "messy").stderr)
plain, shuffled = (sorted(s["documents"] for s in json.loads(works("data", "inspect", name, "--json"))["shards"])
                   for name in ("messy", "messy2"))
check("a shuffle keeps the documents", plain == shuffled)
check("another order", (work / "messy/corpus_train_000001.bin").read_bytes() != (work / "messy2/corpus_train_000001.bin").read_bytes())
check("the order is printed", "order: documents shuffled, seed 7" in
      works("data", "prepare", "mess", "--tokenizer", "tok.json", "-o", "messy3", "--shuffle", "7", "--threads", "1"))
check("the same seed", (work / "messy3/corpus_train_000001.bin").read_bytes() == (work / "messy2/corpus_train_000001.bin").read_bytes())
works("tokenizer", "train", "stories.txt", "--vocab-size", "300", "-o", "tok.json", "--overwrite")

text = "the cat \u00e9 \U0001f600\n"
ids = works("tokenizer", "encode", "--tokenizer", "tok.json", "--text", text)
check("decode of encode", works("tokenizer", "decode", "--tokenizer", "tok.json", *ids.split()) == text)
check("through pipes", works("tokenizer", "decode", "--tokenizer", "tok.json", input=ids) == text)
check("standard input", works("tokenizer", "encode", "--tokenizer", "tok.json", input=text) == ids)
raw = bytes(range(256))
(work / "raw").write_bytes(raw)
ids = run("tokenizer", "encode", "raw", "--tokenizer", "tok.json").stdout
check("every byte", run("tokenizer", "decode", "--tokenizer", "tok.json", text=False, input=ids.encode()).stdout == raw)
works("tokenizer", "train", "stories.txt", "--vocab-size", "300", "-o", "g", "--format", "gpt2")
check("gpt2 files", json.loads(works("tokenizer", "encode", "--tokenizer", "g", "--text", "the cat", "--json"))["ids"]
      == json.loads(works("tokenizer", "encode", "--tokenizer", "tok.json", "--text", "the cat", "--json"))["ids"])
(work / "shadowed").mkdir()
works("tokenizer", "train", "stories.txt", "--vocab-size", "300", "-o", "shadowed/tokenizer.json")
for overwrite in ((), ("--overwrite",)):  # it would be read instead, and is not one of the two files
    refused("shadowed/tokenizer.json is there, and would be read instead of the new vocab.json", "another folder",
            "tokenizer", "train", "stories.txt", "--vocab-size", "300", "-o", "shadowed", "--format", "gpt2", *overwrite)
check("nothing is written beside it", [p.name for p in (work / "shadowed").iterdir()] == ["tokenizer.json"])

# Refusals, with values and a hint.
prepare = ("data", "prepare", "--tokenizer", "tok.json", "-o", "out")
refused("cannot read missing", "check the path", *prepare, "missing")
refused("cannot read storeis.txt", "did you mean stories.txt? check the path", *prepare, "storeis.txt")
refused("cannot read ./emtpy/", "did you mean empty? check the path", *prepare, "./emtpy/")
refused("no text in the folder empty", "*.txt", *prepare, "empty")
refused("no document in empty.txt: 0 bytes", "not empty", *prepare, "empty.txt")
refused("no document is left to train on, 1 went to validation", "--separator", *prepare, "one.txt")
refused("--separator \\d has an unknown escape", "\\r", *prepare, "one.txt", "--separator", "\\d")
(work / "windows.txt").write_bytes(b"".join(b"one %d\r\n\r\n" % i for i in range(30)))
check("CR LF", "28 documents" in (works("data", "prepare", "windows.txt", "--tokenizer", "tok.json", "-o", "windows", "--separator",
                                       "\\r\\n\\r\\n") and works("data", "inspect", "windows")))
refused("bad.jsonl line 2 is not JSON", "JSONL", *prepare, "bad.jsonl")
(work / "array.json").write_text('[{"text": "a"}]')
refused("array.json is one JSON array; expected one object per line", "jq", *prepare, "array.json")
refused("c/tokenizer.json exists and belongs to the corpus of c/manifest.json", "--overwrite",
        "tokenizer", "train", "stories.txt", "-o", "c/tokenizer.json")
refused("tok.json already exists", "--overwrite", "tokenizer", "train", "stories.txt", "-o", "tok.json")
refused("(it looks like text)", "text becomes shards", "data", "inspect", "stories.txt")
refused('no field "body"', "--field", *prepare, "stories.jsonl", "--field", "body")
refused("c already holds a corpus", "--overwrite", "data", "prepare", "one.txt", "--tokenizer", "tok.json", "-o", "c")
refused("stories.txt: not JSON", "BPE", "data", "prepare", "one.txt", "--tokenizer", "stories.txt", "-o", "out")
refused("--val-every 1", "N >= 2", *prepare, "stories.txt", "--val-every", "1")
refused("--val-share 1.5", "between 0 and 1", *prepare, "stories.txt", "--val-share", "1.5")
refused("--val-share 0.1 and --val-every 7 are both given", "one way", *prepare, "stories.txt", "--val-share", "0.1", "--val-every", "7")
refused("--val and --val-share 0.1 are both given", "one way", *prepare, "stories.txt", "--val-share", "0.1", "--val", "one.txt")
refused("no document is held out for validation: 1 documents", "--val-every", *prepare, "one.txt", "--val-share", "1e-6")
refused("stories.txt/x: Not a directory", "path", "data", "prepare", "one.txt", "--tokenizer", "tok.json", "-o", "stories.txt/x")
refused("no shard matches missing.bin", "path", "data", "inspect", "missing.bin")
refused("short.bin is not a shard: 100 bytes", "prepare", "data", "inspect", "short.bin")
refused("magic.bin is not a shard: magic", "prepare", "data", "inspect", "magic.bin")
refused("manifest.json", "path", "data", "verify", "empty")
refused("a vocabulary of 5", "257", "tokenizer", "train", "stories.txt", "--vocab-size", "5", "-o", "t.json")
refused("no text to train", "not empty", "tokenizer", "train", "empty.txt", "-o", "t.json")
refused("id 300 at position 0", "tokenizer", "tokenizer", "decode", "--tokenizer", "tok.json", "300")
refused('"x" is not a token id', "numbers", "tokenizer", "decode", "--tokenizer", "tok.json", input="1 x")
refused("cannot read missing", "path", "tokenizer", "encode", "missing", "--tokenizer", "tok.json")
refused("cannot read empty", "file", "tokenizer", "encode", "empty", "--tokenizer", "tok.json")
refused("--text", "", "tokenizer", "encode", "one.txt", "--text", "x", "--tokenizer", "tok.json")
refused("--file", "", "tokenizer", "decode", "5", "--file", "one.txt", "--tokenizer", "tok.json")
refused("data needs a command", "--help", "data")


# A limit on the size of files simulates a full disk.
def small_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


# The validation shard fits, the training shard does not.
refused("File too large", "free space", *prepare, "stories.txt", preexec_fn=small_disk)
check("nothing is left of a failed prepare", not list((work / "out").glob("*")))

# A corpus that was modified.
shard = work / "c" / "corpus_train_000001.bin"
data = bytearray(shard.read_bytes())
data[1500] ^= 1
shard.write_bytes(data)
done = run("data", "verify", "c")
check("verify finds a changed byte", done.returncode == 2 and "corpus_train_000001.bin: SHA-256" in done.stderr, done)
done = run("data", "verify", "c", "--json")
check("verify --json", done.returncode == 2 and json.loads(done.stdout)["ok"] is False, done)

# An interrupt gives exit 130 and leaves nothing under the final names. The pipe keeps the reader
# waiting.
os.mkfifo(work / "pipe")
waiting = subprocess.Popen([ASSAY, "data", "prepare", "stories.txt", "pipe", "--tokenizer", "tok.json", "-o", "p"],
                           cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
with open(work / "pipe", "wb") as pipe:
    pipe.write(b"begun<|endoftext|>")
    pipe.flush()
    time.sleep(0.3)
    waiting.send_signal(signal.SIGINT)
    time.sleep(0.1)
    pipe.write(b"the rest")
waiting.communicate(timeout=60)
check(f"interrupted prepare: exit {waiting.returncode}", waiting.returncode == 130)
check("nothing is left of an interrupted prepare", not list((work / "p").glob("*")))

print("\n".join(failures) or "data cli: ok")
sys.exit(1 if failures else 0)
