#!/usr/bin/env python3
"""assay sample as a user calls it: greedy and random texts, several prompts, files of prompts,
standard input, a terminal, and refusals."""
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import ASSAY, ROOT, Workplace, assay, checkpoints, write_corpus
from refusals import is_refusal
from terminal import Terminal

failures = []


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def sampled(*arguments, **options):
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    done = assay("sample", *arguments, "--json", **options)
    expect(done.returncode == 0, f"sample {arguments}: exit {done.returncode}\n{done.stderr}")
    if done.returncode != 0:
        sys.exit("\n".join(failures))
    return json.loads(done.stdout)


def texts(said):
    return [t["text"] for t in said["texts"]]


def check_one(w):
    """Streamed text on stdout, speeds on stderr, the same text as in --json."""
    arguments = [w.run("moe"), "--prompt", "The old man", "--tokens", "20", "--temperature", "0"]
    done = assay("sample", *arguments)
    said = sampled(*arguments)
    text = said["texts"][0]
    expect(done.returncode == 0 and done.stdout == "The old man" + text["text"] + "\n", done)
    expect(re.search(r"step-00000060, step 60: (20 tokens|<\|endoftext\|> after \d+ tokens)\n", done.stderr) and
           re.search(r"cpu, \w+: \d+ prompt tokens at \d+ tokens/s, then \d+ at \d+ tokens/s\n", done.stderr), done.stderr)
    expect(1 <= len(text["tokens"]) <= 20 and text["end"] in ("tokens", "end_of_text"), text)
    expect(said["step"] == 60 and said["context_tokens"] == 64 and said["device"] == "cpu" and
           said["prompt_tokens"] == len(text["prompt_tokens"]) and
           said["decoded_tokens"] >= len(text["tokens"]) - 1, said)
    expect(sampled(*arguments, "--seed", "9", "--top-k", "3")["texts"] == said["texts"], "greedy texts depend on the seed")
    earlier = sampled(checkpoints(w.run("moe"))[0], *arguments[1:])
    expect(earlier["step"] < 60, earlier)


def check_many(w):
    """A text is the same alone and among others; it depends on seed, prompt and limits."""
    run = w.run("moe")
    prompts = ["The old man", "Once", "She said that the"]
    every = [argument for p in prompts for argument in ("--prompt", p)]
    said = sampled(run, *every, "--tokens", "25", "--seed", "3")
    expect([t["prompt"] for t in said["texts"]] == prompts, said)
    expect(texts(sampled(run, *every, "--tokens", "25", "--seed", "3", "--batch", "1")) == texts(said), "batch 1")
    expect(texts(sampled(run, *every, "--tokens", "25", "--seed", "4")) != texts(said), "seed 4")
    expect(texts(sampled(run, "--prompt", prompts[0], "--tokens", "25", "--seed", "3")) == texts(said)[:1], "alone")
    greedy = texts(sampled(run, *every, "--tokens", "25", "--temperature", "0"))
    for limit in (("--top-k", "1"), ("--top-p", "1e-9")):
        expect(texts(sampled(run, *every, "--tokens", "25", *limit)) == greedy, limit)
    shown = assay("sample", run, *every, "--tokens", "25", "--seed", "3")
    expect(shown.stdout.count("--- prompt ") == 3 and prompts[2] + texts(said)[2] in shown.stdout and
           "3 texts at a time" in shown.stderr, shown)


def check_ends(w):
    """A text ends when the context is full, and at <|endoftext|> unless --past-end is given."""
    run = w.run("moe")
    full = sampled(run, "--prompt", "The old man", "--tokens", "500", "--past-end")["texts"][0]
    expect(full["end"] == "context" and len(full["tokens"]) + len(full["prompt_tokens"]) == 65, full)
    longer = sampled(run, "--prompt", "The old man", "--tokens", "100", "--past-end", "--context", "200")["texts"][0]
    expect(longer["end"] == "tokens" and len(longer["tokens"]) == 100, longer)
    end = full["prompt_tokens"][0]
    many = [argument for _ in range(40) for argument in ("--prompt", "The end.")]
    past = sampled(run, *many, "--temperature", "2", "--past-end", "--tokens", "50")["texts"]
    ended = sampled(run, *many, "--temperature", "2", "--tokens", "50")["texts"]
    for a, b in zip(past, ended):
        cut = a["tokens"].index(end) if end in a["tokens"] else len(a["tokens"])
        expect(b["tokens"] == a["tokens"][:cut] and
               b["end"] == ("end_of_text" if end in a["tokens"] else "tokens"), (a, b))
    expect(any(end in a["tokens"] for a in past), "no text of 40 ended")


def check_files(w):
    run = w.run("moe")
    (w.path / "prompts.txt").write_text("The old man\nOnce\n")
    (w.path / "prompts.jsonl").write_text('{"prompt": "The old man", "id": 1}\n{"prompt": "Once"}')
    given = texts(sampled(run, "--prompt", "The old man", "--prompt", "Once", "--tokens", "9"))
    for name in ("prompts.txt", "prompts.jsonl"):
        expect(texts(sampled(run, "--prompts", w.path / name, "--tokens", "9")) == given, name)


def check_from_nothing(w):
    """Without a prompt a text follows <|endoftext|> alone."""
    run, limit = w.run("moe"), ("--tokens", "12")
    said = sampled(run, *limit)["texts"][0]
    expect(said["prompt"] == "" and len(said["prompt_tokens"]) == 1 and 1 <= len(said["tokens"]) <= 12, said)
    end = said["prompt_tokens"][0]
    expect(texts(sampled(run, "--prompt", "", *limit)) == [said["text"]], "--prompt ''")
    expect(texts(sampled(run, *limit, input="")) == [said["text"]], "an empty pipe")
    streamed = assay("sample", run, *limit, stdin=subprocess.DEVNULL)
    expect(streamed.returncode == 0 and streamed.stdout == said["text"] + "\n", streamed)
    # <|endoftext|> in a prompt is text, and a note says so; with the option it is the token.
    written = ["--prompt", "<|endoftext|>", *limit]
    as_token = sampled(run, *written, "--special-tokens")["texts"][0]
    expect(as_token["prompt_tokens"] == [end] and as_token["text"] == said["text"], as_token)
    expect(sampled(run, "--prompt", "a<|endoftext|>", *limit, "--special-tokens")["texts"][0]["prompt_tokens"][2:] ==
           [end], "the token in a prompt")
    as_text = assay("sample", run, *written, "--json")
    expect(end not in json.loads(as_text.stdout)["texts"][0]["prompt_tokens"][1:] and
           as_text.stderr.count("note: <|endoftext|> in a prompt is ordinary text; with --special-tokens") == 1, as_text)


def check_samples(w):
    """--samples N: the first sample of a prompt is that of one sample; the others differ."""
    run, some = w.run("moe"), ("--prompt", "The old man", "--prompt", "Once", "--tokens", "25")
    one, three = sampled(run, *some), sampled(run, *some, "--samples", "3")
    expect([(t["prompt"], t["sample"]) for t in three["texts"]] ==
           [(p, s) for p in ("The old man", "Once") for s in (1, 2, 3)], three)
    expect(texts(three)[::3] == texts(one), "the first samples")
    expect(len(set(texts(three))) == 6, texts(three))
    repeated = sampled(run, *some[:2] * 3, *some[4:])
    expect(texts(sampled(run, *some[:2], *some[4:], "--samples", "3")) == texts(repeated), "a repeated prompt")
    shown = assay("sample", run, *some, "--samples", "2")
    expect(re.findall(r"^--- (prompt \d, sample \d): ", shown.stdout, re.M) ==
           [f"prompt {p}, sample {s}" for p in (1, 2) for s in (1, 2)], shown.stdout)


def check_piped(w):
    run, limit = w.run("moe"), ("--tokens", "9")
    given = texts(sampled(run, "--prompt", "The old man", "--prompt", "Once", *limit))
    as_json = '{"prompt": "The old man"}\n{"prompt": "Once"}\n'
    for lines in ("The old man\nOnce\n", as_json):
        expect(texts(sampled(run, "--prompts", "-", *limit, input=lines)) == given, lines)
        expect(texts(sampled(run, *limit, input=lines)) == given, f"without options: {lines}")
    (w.path / "piped.txt").write_text("The old man\nOnce\n")
    with open(w.path / "piped.txt") as file:
        expect(texts(sampled(run, *limit, stdin=file)) == given, "a redirected file")
    expect(texts(sampled(run, "--prompt", "Once", *limit, input="The old man")) ==
           texts(sampled(run, "--prompt", "Once", *limit)), "a prompt and a pipe")
    # A pipe that stays silent is announced.
    ours, theirs = os.pipe()
    waiting = subprocess.Popen([ASSAY, "sample", run, *limit], stdin=ours, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, cwd=ROOT)
    said = waiting.stderr.readline()
    os.close(ours)
    os.close(theirs)
    expect(said.startswith("reading prompts from standard input") and waiting.wait() == 0, said)
    waiting.stderr.close()


def check_terminal(w):
    """Lines typed on a terminal are continued, as the prompts of one call would be."""
    run, limit = w.run("moe"), ("--tokens", "20", "--seed", "3")
    line = "The old man"
    want = texts(sampled(run, "--prompt", line, "--prompt", line, *limit))
    with Terminal(ASSAY, "sample", run, "-i", *limit) as t:
        expect("step 60" in t.until("> ") and "Ctrl-D" in t.shown, t.shown)
        for text in want:
            t.send(line + "\n")
            t.until("\n> ")
            expect(t.shown.startswith(f"{line}\n{line}{text}\n["), (text, t.shown))
        t.send("a line that is dropped\x03")
        t.until("\n> ")
        t.send("one " * 80 + "\n")
        expect("error: prompt 1 has 82 tokens" in t.until("\n> "), t.shown)
        t.send("\x04")
        expect(t.end() == 0, (t.end(), t.shown))
    # Ctrl-C ends a text of many tokens, and the next line is continued; an empty line ends.
    endless = ("--past-end", "--tokens", "30000", "--context", "30000")
    with Terminal(ASSAY, "sample", run, "--interactive", *endless) as t:
        t.until("> ")
        for _ in range(2):
            t.send(line + "\n")
            t.until(line + "\n" + line)
            t.send("\x03")
            expect("[stopped]\n" in t.until("\n> "), t.shown[-300:])
        t.send("\n")
        expect(t.end() == 0, t.shown[-300:])
    # Bytes that a terminal would obey are shown as text.
    with Terminal(ASSAY, "sample", run, "--past-end", "--temperature", "90", "--tokens", "60", "--samples", "9") as t:
        expect(t.end() == 0, t.shown)
        expect(re.search(r"\\x[01][0-9a-f]", t.shown) and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", t.shown), repr(t.shown))


def check_changed_tokenizer(w):
    """The tokenizer's file has changed since the run: no text is made of its ids, unless the file is named."""
    write_corpus(w, "corpus", "the old man said that once upon a time she went home".split(), 900)
    tokenizer, kept, run = w.path / "tokenizer.json", w.path / "kept.json", w.run("own")
    w.train("own", "--steps", "3", "--set", "data.synth=null", "--set", f"data.train=[{w.path}/corpus/*_train_*.bin]",
            "--set", f"data.val=[{w.path}/corpus/*_val_*.bin]", "--set", f"data.tokenizer={tokenizer}")
    some = ("--prompt", "The old man", "--tokens", "5", "--temperature", "0")
    before = texts(sampled(run, *some))
    good = tokenizer.read_bytes()
    kept.write_bytes(good)
    changed = json.loads(good)
    ids = changed["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    tokenizer.write_text(json.dumps(changed))
    done = assay("sample", run, *some, stdin=subprocess.DEVNULL)
    lines = done.stderr.splitlines()
    expect(done.returncode == 1 and done.stdout == "" and len(lines) == 2 and
           re.fullmatch(r"error: the data of the run has changed: \S+/tokenizer.json is SHA-256 \w{16}, which the run "
                        "has not read", lines[0]) and
           lines[1] == "hint: give the data it began with, or name the tokenizer: --tokenizer FILE", done)
    expect(texts(sampled(run, *some, "--tokenizer", kept)) == before, "the kept file is the run's tokenizer")
    tokenizer.write_bytes(good)
    expect(texts(sampled(run, *some)) == before, "the restored file")


def check_large_batch(w):
    """A cache of more positions than it can count, and than a machine has memory for."""
    done = assay("sample", w.run("moe"), "--batch", "4096", "--samples", "4096", "--context", 1 << 20, "--tokens", 1 << 20,
                 stdin=subprocess.DEVNULL)
    lines = done.stderr.splitlines()[-2:]  # after the plan
    expect(done.returncode == 1 and lines[0].startswith("error: the run needs ") and " of memory, " in lines[0] and
           lines[1] == "hint: use a smaller --batch", done)


def check_refused(w):
    run, prompt = w.run("moe"), ("--prompt", "Once")
    (w.path / "bad.jsonl").write_text('{"prompt": "Once"}\n{"text": "no"}\n')
    (w.path / "hole.txt").write_text("Once\n\nThe\n")
    (w.path / "empty.txt").write_text("")
    tokenizer = w.path / "large" / "tokenizer.json"
    tokenizer.parent.mkdir()
    (w.path / "corpus.txt").write_text("".join(f"word{i} and word{i * 7} went on\n" for i in range(900)))
    made = assay("tokenizer", "train", w.path / "corpus.txt", "--vocab-size", "600", "-o", tokenizer)
    expect(made.returncode == 0, made.stderr)
    table = [
        ([w.path / "none", *prompt], "no run at", "assay train"),
        ([run, "--prompts", "-"], "standard input has no prompts", "line"),
        ([run, "--interactive"], "--interactive needs a terminal for input and output", "--prompts -"),
        ([run, "-i", *prompt], "--interactive reads its prompts from the terminal", "--prompt"),
        ([run, "-i", "--json"], "--interactive reads its prompts from the terminal", "--json"),
        ([run, *prompt, "--samples", "0"], "--samples", "assay sample --help"),
        ([run, *prompt, "--seed", "-1"], "--seed", "assay sample --help"),
        ([run, *prompt, "--prompts", w.path / "hole.txt"], "both --prompt and --prompts", "only one of them"),
        ([run, "--prompts", w.path / "empty.txt"], "empty.txt has no prompts", "line"),
        ([run, "--prompts", w.path / "bad.jsonl"], 'bad.jsonl:2: not a JSON object with a string "prompt"', "plain lines"),
        ([run, "--prompts", w.path / "gone.txt"], "gone.txt", ""),
        ([run, *prompt, "--temperature", "-1"], "--temperature is -1", "0 is greedy"),
        ([run, *prompt, "--temperature", "nan"], "--temperature is nan", "0 is greedy"),
        ([run, *prompt, "--temperature", "inf"], "--temperature is inf", "0 is greedy"),
        ([run, *prompt, "--top-p", "0"], "--top-p is 0, must be > 0 and <= 1", "0.9"),
        ([run, *prompt, "--top-p", "1.5"], "--top-p is 1.5, must be > 0 and <= 1", "0.9"),
        ([run, *prompt, "--top-p", "nan"], "--top-p is nan, must be > 0 and <= 1", "0.9"),
        ([run, *prompt, "--top-k", "-2"], "--top-k is -2", "0 draws from all"),
        ([run, *prompt, "--tokens", "0"], "--tokens", "assay sample --help"),
        ([run, *prompt, "--tempreature", "1"], "unknown option --tempreature", "did you mean --temperature"),
        ([run, "--prompt", "one " * 80], "prompt 1 has 82 tokens with the <|endoftext|> before it, but the context is 64",
         "--context"),
        ([run, *prompt, "--tokenizer", w.path / "nothing.json"], "nothing.json", ""),
        ([run, *prompt, "--tokenizer", tokenizer], "has 600 tokens, the model 512", "--tokenizer"),
    ]
    for arguments, error, hint in table:
        done = assay("sample", *arguments, stdin=subprocess.DEVNULL)
        expect(is_refusal(done, error, hint),
               f"sample {arguments}: {done.returncode}, wanted {error!r}, {hint!r}\n{done.stdout}{done.stderr}")
    return len(table)


def main():
    with Workplace(moe=True, sequence=64) as w:
        w.train("moe")
        check_one(w)
        check_many(w)
        check_ends(w)
        check_files(w)
        check_from_nothing(w)
        check_samples(w)
        check_piped(w)
        check_terminal(w)
        check_changed_tokenizer(w)
        check_large_batch(w)
        refusals = check_refused(w)
    if failures:
        sys.exit("\n".join(failures))
    print(f"sample: ok ({refusals} refusals)")


if __name__ == "__main__":
    main()
