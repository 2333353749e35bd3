#!/usr/bin/env python3
"""tools/demo.sh in a folder of its own, with the program that is built: a quick pass over a folder of
texts, its result in 80 columns, a second pass that trains nothing, and refusals."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ASSAY = pathlib.Path(sys.argv[1]).resolve()
failures = []
# In place of the program: a manifest, and a copy of what the script has cut.
NOTHING = """#!/bin/sh
if [ "$1" != data ]; then exit 0; fi
echo '{"format": "assay-corpus-1"}' >"$6/manifest.json"
if [ "$8" != --val ]; then exit 0; fi
mkdir "$6/given" && cp -r "$7" "$9" "$6/given"
"""


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def checkout(folder):
    """What the demonstration needs of a clone."""
    (folder / "tools").mkdir()
    for name in ("demo.sh", "demo_table.py", "text_corpus.sh"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    shutil.copytree(ROOT / "models" / "presets", folder / "models" / "presets")
    (folder / "build").mkdir()
    (folder / "build" / "assay").symlink_to(ASSAY)


def shrink(folder):
    """Makes the models so small that a step takes milliseconds."""
    family = folder / "models" / "presets" / "family" / "cpu.yaml"
    text = family.read_text()
    for was, now in (("hidden: 128", "hidden: 32"), ("layers: 4", "layers: 1"), ("heads: 2", "heads: 1"),
                     ("batch_tokens: 4096, sequence: 256, micro_batch: 16", "batch_tokens: 256, sequence: 64, micro_batch: 4"),
                     ("tokens: 65536", "tokens: 4096")):
        expect(text.count(was) == 1, f"{family} has no {was}")
        text = text.replace(was, now)
    family.write_text(text)


def write_texts(folder):
    """Two long texts without separators, one in a subfolder, and a file that is not text."""
    (folder / "more").mkdir(parents=True)
    for number, name in enumerate(("a.txt", "more/b b.md")):
        words = (f"{'The' if i % 2 else 'A'} {('cat', 'dog', 'bird')[i * i % 3]} saw {i * (7 + number) % 100} trees.\n"
                 for i in range(9000))
        (folder / name).write_text("".join(words))
    (folder / "picture.png").write_bytes(bytes(1000))


def demo(folder, *arguments, cwd=None):
    return subprocess.run(["bash", str(folder / "tools" / "demo.sh"), *arguments], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, cwd=cwd)


def check_result(folder, text):
    first = demo(folder, "--skip-build", "--quick", "--text", str(text))
    if first.returncode != 0:
        sys.exit(f"demo: exit {first.returncode}\n{first.stdout}{first.stderr}")
    out = first.stdout
    result = out[out.index("== result"):]
    for line in [*result.splitlines(), *out[out.index("== three models"):out.index("== train")].splitlines()]:
        expect(len(line) <= 80 or "/" in line, f"{len(line)} columns: {line}")
    for model in ("dense-active", "moe", "dense-total"):
        expect(re.search(rf"^{model} +\d\.\d\dM +\d\.\d\dM +\d\.\d\d +\d\.\d\d +\d\.\d{{4}} ", result, re.M), result)
        expect(re.search(rf"^{model}:\n  \S", result, re.M), f"no text of {model}:\n{result}")
    expect(re.search(r"(Even the worst run beats|The worst run does not beat) the 5-gram", result) and
           re.search(r"\S+ is \d\.\d{4} nats below \S+ in validation loss", result.replace("\n", " ")) and
           "Held fixed: steps" in result.replace("\n", " "), result)
    page = re.search(r"for a browser: (\S+)", result)
    expect(page and (folder / page[1]).stat().st_size > 10000, "no page")
    commands = re.findall(r"^  (build/assay .*)$", result[result.index("Next:"):], re.M)
    expect([c.split()[1] for c in commands] == ["sample", "router", "compare"], result)
    for command in commands[1:]:
        done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{command}: {done.stderr}")

    corpus = next((folder / "data-cache").iterdir())
    manifest = json.loads((corpus / "manifest.json").read_text())
    expect(corpus.name.startswith("my-texts-") and "manifest" in str(corpus / "manifest.json") and manifest, corpus)
    sizes = {"/".join(source["file"].split("/")[-2:]): source["bytes"] for source in manifest["sources"]}
    held = [sizes[f"{kind}/0{n}.txt"] for n in (1, 2) for kind in ("train", "val")]
    expect(all(abs(val / (train + val) - 0.05) < 0.001 for train, val in (held[:2], held[2:])), held)

    # What is trained is kept; only the result is made again.
    checkpoints = sorted((f, f.stat().st_mtime_ns) for f in folder.glob("runs/*/checkpoints/*/model.safetensors"))
    again = demo(folder, "--skip-build", "--quick", "--text", "..", cwd=text / "more")
    expect(again.returncode == 0 and len(checkpoints) == 3 and checkpoints ==
           sorted((f, f.stat().st_mtime_ns) for f in folder.glob("runs/*/checkpoints/*/model.safetensors")), again.stderr)

    def table(said):
        return said[said.index("parameters  "):said.index("What they write")]

    expect(table(again.stdout) == table(out), again.stdout)
    expect(not list(folder.glob("runs/*-sample.log")), "a log of what went well")
    check_failing_sample(folder, text)


def check_failing_sample(folder, text):
    """A text that cannot be written ends the demonstration with the reason."""
    program = folder / "build" / "assay"
    program.unlink()
    program.write_text(f"""#!/bin/sh
if [ "$1" = sample ]; then printf 'error: as planned\\nhint: none\\n' >&2; exit 1; fi
exec {ASSAY} "$@"
""")
    program.chmod(0o755)
    done = demo(folder, "--skip-build", "--quick", "--text", str(text))
    expect(done.returncode == 1 and done.stderr.endswith("error: as planned\nhint: none\n") and
           "Traceback" not in done.stderr and "Next:" not in done.stdout, done)
    program.unlink()
    program.symlink_to(ASSAY)


def check_seeds(folder):
    """The table with three seeds of each model fits 80 columns too."""
    runs = sorted(folder.glob("runs/*/telemetry.db"))
    models = {next(m for m in ("dense-active", "dense-total", "moe") if str(r.parent).endswith(m)): r.parent for r in runs}
    arguments = [f"--run={m}={r}" for m, r in models.items() for _ in range(3)]
    prefix = str(models["moe"])[:-len("-moe")]
    done = subprocess.run(["python3", str(folder / "tools/demo_table.py"), f"--audit={prefix}-audit.json",
                           f"--ngrams={prefix}-ngrams.json", f"--compare={prefix}-compare.json", *arguments],
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80 and
           len(re.findall(r" (\d\.\d{4}) \(\1-\1\) ", done.stdout)) == 3, done.stdout + done.stderr)


def check_refused(folder):
    (folder / "empty.txt").write_text("")
    for arguments, message, hint in [
            (["--text", "nowhere"], "nowhere: no such file or folder", "a folder of them"),
            (["--text", str(folder / "empty.txt")], "is empty", "hundred kilobytes"),
            (["--seeds", "0"], "--seeds 0 is not a number from 1 to 99", "--seeds 3"),
            (["--text"], "--text needs a value", "--help"),
            (["--quick", "--seeds"], "--seeds needs a value", "--help"),
            (["--tex", "x"], "unknown argument --tex", "--help")]:
        done = demo(folder, *arguments)
        expect(is_refusal(done, message, hint), f"{arguments}: {done}")
    told = demo(folder, "--help")
    expect(told.returncode == 0 and "--text PATH" in told.stdout and
           max(map(len, told.stdout.splitlines())) <= 80, told.stdout)


def check_corpus(folder):
    """text_corpus.sh by itself: it cuts between characters, and names only what is there."""
    script = folder / "tools" / "text_corpus.sh"
    (folder / "nothing").write_text(NOTHING)
    (folder / "nothing").chmod(0o755)
    texts = (("\u732b", 0), ("\u732b", 1), ("\u00e9", 1), ("\U0001f408", 2), ("a", 3))
    for number, (letter, ending) in enumerate(texts):
        text, corpus = folder / f"letters{number}.txt", folder / f"letters{number}"
        text.write_text(letter * 1000 + ending * "a")
        data = text.read_bytes()
        done = subprocess.run(["bash", script, text, corpus, folder / "nothing"], capture_output=True, text=True,
                              check=False)
        parts = [(corpus / "given" / kind / "01.txt").read_bytes() for kind in ("train", "val")]
        expect(done.returncode == 0 and b"".join(parts) == data and 0 <= len(parts[1]) - len(data) // 20 < 4, done)
        for part in parts:
            try:
                part.decode()
            except UnicodeDecodeError as error:
                expect(False, f"{letter}: {error}")
    done = subprocess.run(["bash", script, "--name", "nofile"], capture_output=True, text=True, check=False)
    expect(is_refusal(done, "error: nofile: no such file"), done)
    check_capitals(folder, script)
    check_count(folder, script)
    check_kept(folder, script)
    check_other_text(folder, script)
    check_folder(folder, script)


def check_folder(folder, script):
    """text_corpus.sh refuses a FOLDER without a name, one that cannot be made, and one that another call works in."""
    text, corpus = folder / "of two.txt", folder / "of two"
    text.write_text("a" * 100)

    def refused(to, error, hint):
        done = subprocess.run(["bash", script, text, to, folder / "nothing"], capture_output=True, text=True, check=False)
        expect(is_refusal(done, error, hint), done)

    refused("", "error: FOLDER is empty", "TEXT data-cache/mine")
    refused(text / "inside", f"error: {text}/inside: the folder cannot be made", "another folder")
    (corpus / ".text_corpus").mkdir(parents=True)
    other = os.open(corpus, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    refused(corpus, f"error: another call that makes the corpus in {corpus} is still running", "wait until it ends")
    expect([path.name for path in corpus.iterdir()] == [".text_corpus"], "what another call works with is gone")
    os.close(other)
    done = subprocess.run(["bash", script, text, corpus, folder / "nothing"], capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and not (corpus / ".text_corpus").exists(), done)


def check_capitals(folder, script):
    """text_corpus.sh takes the files that `assay data prepare` reads: extensions in any case, no links to folders, a file
    with several names once."""
    def made(text, corpus):
        done = subprocess.run(["bash", script, text, corpus, folder / "nothing"], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, done)
        return sorted(path.read_text() for path in corpus.glob("given/train/*"))

    def name(text):
        return subprocess.run(["bash", script, "--name", text], capture_output=True, text=True, check=False).stdout

    for number, letter in enumerate("ab"):
        inner = folder / f"capitals{number}" / "same"
        inner.mkdir(parents=True)
        (inner / "LONG.TXT").write_text(letter * 100)
        (inner.parent / "folder").symlink_to(inner)
        (inner / "LINK OF IT.TXT").symlink_to("LONG.TXT")
        os.link(inner / "LONG.TXT", inner.parent / "hard.txt")
        (inner.parent / "two\nlines.txt").write_text("c" * 100)
    expect(name(inner) != name(folder / "capitals0" / "same"), "two folders with one name")
    expect(made(inner.parent, folder / "capitals") == ["b" * 95, "c" * 95], "LONG.TXT and links to it, once")
    for text in (folder / "lines" / "big.JSONL", folder / "lines"):
        text.parent.mkdir(exist_ok=True)
        (folder / "lines" / "big.JSONL").write_text('{"text": "a"}\n')
        (folder / "lines" / "readme.md").write_text("About these lines.")
        expect(made(text, folder / f"lines of {text.name}") == [], f"{text} was cut")


def check_count(folder, script):
    """Of fewer than 20 documents text_corpus.sh cuts each file, of 20 none; nothing behind a separator is no document."""
    def cut(name, *files):
        text, corpus = folder / name, folder / f"{name} corpus"
        text.mkdir()
        for number, content in enumerate(files):
            (text / f"{number}.txt").write_text(content)
        done = subprocess.run(["bash", script, text, corpus, folder / "nothing"], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, done)
        return (corpus / "given").exists()

    end = "<|endoftext|>"
    for name, files, few in (("20 open", [end.join(20 * ["a b\n"])], False), ("20 ended", [20 * f"a b{end}\n"], False),
                             ("19 open", [end.join(19 * ["a b\n"])], True), ("19 ended", [19 * f"a b\n{end}" + "\n"], True),
                             ("11 files", 11 * [f"a b\n{end}\n"], True), ("20 files", 20 * ["a b\n"], False),
                             ("20 in two", [end.join(10 * ["a b"]), 10 * f"a b{end}"], False)):
        expect(cut(name, *files) == few, f"{name}: {'not ' if few else ''}cut")


def check_kept(folder, script):
    """text_corpus.sh removes no file of the folder that it writes to: not a text of its own, nor a tokenizer."""
    def made(text, corpus, program=ASSAY):
        return subprocess.run(["bash", script, text, corpus, program], capture_output=True, text=True, check=False)

    def contents(corpus):
        return {str(path.relative_to(corpus)): path.read_bytes() for path in corpus.rglob("*") if path.is_file()}

    for number, inner in enumerate((".", "train")):
        books = folder / f"books{number}"
        for name in ("train/novel1.txt", "train/novel2.txt", "val/novel3.txt"):
            (books / name).parent.mkdir(parents=True, exist_ok=True)
            (books / name).write_text(f"{name} is about a cat that sat on a mat.\n" * 300)
        mine = contents(books)
        for said in ("files read", "the corpus of this text is already there"):
            done = made(books / inner, books)
            now = contents(books)
            expect(done.returncode == 0 and said in done.stdout, done)
            expect({name: now.get(name) for name in mine} == mine, f"{inner}: a text of the folder is gone: {sorted(now)}")
        expect(set(now) - set(mine) == {"corpus_train_000001.bin", "corpus_val_000000.bin", "manifest.json", "text_corpus.sha256",
                                        "tokenizer.json"}, sorted(now))
    with_tokenizer = folder / "with tokenizer"
    shutil.copytree(folder / "books1" / "train", with_tokenizer / "train")
    one = folder / "books0" / "val" / "novel3.txt"
    of_two = (folder / "books0" / "tokenizer.json").read_text()
    # What is no tokenizer is refused before one is trained.
    for tokenizer, trained in (("{}", False), (of_two, True)):
        (with_tokenizer / "tokenizer.json").write_text(tokenizer)
        mine = contents(with_tokenizer)
        done = made(one, with_tokenizer)
        expect(is_refusal(done, f"{with_tokenizer}/tokenizer.json is not the tokenizer that is made of {one}", "move that file away",
                          warned=trained, printed=trained), done)
        expect(contents(with_tokenizer) == mine, sorted(contents(with_tokenizer)))
    # The one of this text may be there already; shards of a lost manifest may not.
    done = made(one, folder / "of one")
    shutil.copy(folder / "of one" / "tokenizer.json", with_tokenizer)
    again = made(one, with_tokenizer)
    expect(done.returncode == 0 and again.returncode == 0, f"{done}\n{again}")
    (with_tokenizer / "manifest.json").unlink()
    expect(is_refusal(made(one, with_tokenizer), f"{with_tokenizer}/corpus_train_000001.bin is there, but not the manifest.json",
                      "first remove corpus_*.bin"), "a lost manifest")


def check_other_text(folder, script):
    """A corpus is not made twice, and never taken for that of another text."""
    corpus, text, other = folder / "one text", folder / "one.txt", folder / "other.txt"
    text.write_text("a" * 100)
    other.write_text("b" * 100)

    def made(of):
        return subprocess.run(["bash", script, of, corpus, folder / "nothing"], capture_output=True, text=True, check=False)

    done = made(text)
    expect(done.returncode == 0, done)
    again = made(text)
    expect(again.returncode == 0 and again.stdout == f"{corpus}: the corpus of this text is already there\n", again)
    expect(is_refusal(made(other), f"{corpus} has the corpus of another text than {other}", "give another folder"), "taken")
    record = corpus / "text_corpus.sha256"
    kept = record.read_text()
    # Made before the script wrote it down, or written over since: only the manifest is known.
    for change in (record.unlink, lambda: (corpus / "manifest.json").write_text('{"format": "assay-corpus-1", "text_bytes": 1}')):
        change()
        unknown = made(other)
        expect(unknown.returncode == 0 and "is not recorded" in unknown.stdout and unknown.stdout.count("\n") == 1, unknown)
        record.write_text(kept)
    # Cut by a power failure it is ours; `assay data prepare` takes it so too.
    whole = '{\n  "format": "assay-corpus-1",\n  "shards": [\n    {}\n  ]\n}\n'
    for end in (0, 1, 12, 20, 40, len(whole) - 3):
        (corpus / "manifest.json").write_text(whole[:end])
        expect(is_refusal(made(text), f"{corpus}/manifest.json is cut short", "first remove manifest.json"), whole[:end])
    (corpus / "manifest.json").write_text(whole)
    expect(made(text).returncode == 0, "a whole manifest is not cut")
    (corpus / "manifest.json").write_text('{"files": []}')
    expect(is_refusal(made(text), f"{corpus}/manifest.json is of another program", "give another folder"), "of another program")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="assay-demo's-"))
    try:
        checkout(folder)
        shrink(folder)
        text = folder / "my texts"
        write_texts(text)
        check_refused(folder)
        check_corpus(folder)
        check_result(folder, text)
        check_seeds(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if failures:
        sys.exit("\n".join(failures))
    print("demo: ok")


if __name__ == "__main__":
    main()
