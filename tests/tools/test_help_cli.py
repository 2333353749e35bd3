#!/usr/bin/env python3
"""What the program says of itself: help as wide as the terminal, versions, completion, the man page,
the example of a configuration. Usage: test_help_cli.py ASSAY"""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

ASSAY = str(pathlib.Path(sys.argv[1]).resolve())
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRESETS = ROOT / "models" / "presets"
GROUPS = ("data", "tokenizer", "receipt", "published", "checkpoint")
NAME_COLUMNS = 26  # the names of options and their indent
failures = []


def run(*arguments, columns=None, cwd=None, **options):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = str(columns)
    return subprocess.run([ASSAY, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, **options)


def check(condition, message):
    if not condition:
        failures.append(message)


def commands(prefix=()):
    """Every command and group, from the help itself."""
    found = [prefix]
    section = re.search(r"^Commands:\n((?:  .*\n)+)", run(*prefix, "--help").stdout, re.M)
    if section:
        for word in re.findall(r"^  (\S+)", section[1], re.M):
            found += commands((*prefix, word))
    return found


def breaks(line):
    """Whether a line of help can be broken: not the file that `matrix` shows, nor a single word, such as a path in an
    example, also behind the name that it explains."""
    before = line.rstrip("\\").rstrip().rpartition(" ")[0].rstrip()
    return len(before) > NAME_COLUMNS and not line.startswith("    - {")


def check_help():
    everything = commands()
    check(len(everything) > 25 and ("data", "prepare") in everything, f"commands: {everything}")
    for command in everything:
        for columns, most in ((None, 80), (60, 60), (1000, 100), (7, 40)):
            done = run(*command, "--help", columns=columns)
            text = done.stdout
            check(done.returncode == 0 and not done.stderr, f"{command} --help: exit {done.returncode}, {done.stderr}")
            wide = [line for line in text.splitlines() if len(line) > most and breaks(line)]
            check(text and not wide, f"{command} --help with COLUMNS={columns} has lines wider than {most}: {wide or text}")
        check("Usage: assay" in text, f"{command} --help has no usage")
        if command:
            check("First steps" not in text, f"{command} --help has the program's footer")
        check(not re.search(r"\b(INT|FLOAT|UINT|REQUIRED|POSITIVE)\b", text), f"{command} --help has CLI11's words:\n{text}")
    file = run("matrix", "--help").stdout
    check("\n  models:" in file and "\n    dense: " in file, f"matrix --help does not indent the file it shows:\n{file}")
    for group in GROUPS:
        check(f"  assay {group} " in run(group, "--help").stdout, f"assay {group} --help has no example of its own")


def check_terminal():
    """The width of a real terminal."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 64, 0, 0))
    with subprocess.Popen([ASSAY, "train", "--help"], stdout=side, stderr=side,
                          env={k: v for k, v in os.environ.items() if k != "COLUMNS"}) as process:
        os.close(side)
        text = b""
        try:
            while part := os.read(terminal, 4096):
                text += part
        except OSError:  # the terminal's other side is closed
            pass
    os.close(terminal)
    widest = max(map(len, text.decode().splitlines()))
    check(process.returncode == 0 and 50 < widest <= 64, f"help on a terminal of 64 columns is {widest} wide")


def check_versions():
    texts = {run(word).stdout for word in ("-V", "--version", "version")}
    check(len(texts) == 1 and re.match(r"assay \d+\.\d+\.\d+ \(commit ", texts.pop()), f"versions differ: {texts}")


COMPLETE = """
complete_line() {
  COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
  _assay
  printf '%s\\n' "${COMPREPLY[@]}"
}
"""
# The words typed, the last one unfinished; what must be offered; what must not.
COMPLETIONS = [
    (["tr"], ["train"], ["router", "data"]),
    ([""], ["train", "data", "telemetry", "completion"], ["prepare"]),
    (["data", ""], ["prepare", "inspect", "verify", "synth", "ngrams"], ["train"]),
    (["published", ""], ["list", "show", "check"], ["train"]),
    (["checkpoint", ""], ["list", "merge"], ["train"]),
    (["checkpoint", "merge", ""], ["runs/moe"], ["my.yaml", "runs/empty"]),
    (["data", "prepare", "--val"], ["--val", "--val-share", "--val-every"], ["--json"]),
    (["train", "--de"], ["--device"], []),
    (["train", "--device", ""], ["auto", "cpu", "cuda"], ["runs"]),
    (["train", "--device", "=", "cu"], ["cuda"], ["cpu"]),
    (["train", "--set", "model.moe.router.sc"], ["model.moe.router.score="], ["model.hidden="]),
    (["train", "--set", "model.moe.router.score", "="], ["sigmoid", "softmax"], []),
    (["train", "--set", "model.moe.router.score", "=", "so"], ["softmax"], ["sigmoid"]),
    (["train", "--set", "data.mask_eos", "="], ["true", "false"], []),
    (["train", "my"], ["my config.yaml", "my.yaml"], ["runs"]),
    (["router", ""], ["runs/moe"], ["my.yaml", "runs/empty"]),
    (["router", "runs/m"], ["runs/moe"], ["runs/empty"]),
    (["router", "m"], ["runs/moe"], ["my.yaml"]),
    (["completion", ""], ["bash", "zsh"], []),
    (["telemetry", "runs/moe", "--csv", "ru"], ["runs"], ["my.yaml"]),
    (["train", "--steps", ""], [], ["my.yaml", "train"]),
]


def check_bash(work):
    script = run("completion", "bash").stdout
    for typed, wanted, unwanted in COMPLETIONS:
        words = " ".join("'" + word + "'" for word in ["assay", *typed])
        done = subprocess.run(["bash", "-u"], input=script + COMPLETE + f"complete_line {words}\n", cwd=work,
                              capture_output=True, text=True)
        offered = done.stdout.splitlines()
        check(not done.stderr and not set(wanted) - set(offered) and not set(unwanted) & set(offered),
              f"bash: assay {typed}: offers {offered}, wanted {wanted}\n{done.stderr}")
    registered = subprocess.run(["bash"], input=script + "complete -p assay\n", capture_output=True, text=True).stdout
    check("-F _assay assay" in registered, f"bash: {registered}")


def check_zsh(work):
    script = run("completion", "zsh").stdout
    check(script.startswith("#compdef assay\n") and "_assay_data_prepare()" in script, "zsh script")
    if not shutil.which("zsh"):
        print("not run: completion in zsh, which is not installed")
        return
    (work / "_assay").write_text(script)
    # A terminal of its own, in which a line is typed and Tab is pressed.
    driver = """
zmodload zsh/zpty
zpty z 'PS1= zsh -f -i'
zpty -w z 'stty -echo; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; LISTMAX=1000; bindkey "^I" list-choices; PS1=READY'
zpty -r -m z line '*READY*READY*' || zpty -r -m z line '*READY*'
zpty -w -n z $LINE$'\\t'
sleep 1
zpty -r -t z line; print -r -- $line
while zpty -r -t z line; do print -r -- $line; done
"""
    for line, wanted in (("assay tr", "train"), ("assay data ", "prepare"), ("assay train --device ", "cuda"),
                         ("assay train --set model.moe.router.score=", "softmax"), ("assay router runs/", "moe")):
        done = subprocess.run(["zsh", "-f", "-c", driver], cwd=work, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LINE": line, "TERM": "dumb"})
        check(wanted in done.stdout.replace(line, ""), f"zsh: {line!r} does not offer {wanted}\n{done.stdout}{done.stderr}")


def check_man(work):
    page = run("man").stdout
    for wanted in (".TH ASSAY 1", ".SH NAME", ".SH SYNOPSIS", '.SS "assay data prepare', ".SH \"EXIT STATUS\"", "\\-\\-val\\-share"):
        check(wanted in page, f"the man page has no {wanted}")
    (work / "assay.1").write_text(page)
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-cbou", work / "assay.1"], capture_output=True, text=True)
        check(done.returncode == 0 and not done.stderr, f"groff: {done.stderr[:2000]}")
        check("--val-share" in done.stdout, "groff's page has no --val-share")
    else:
        print("not run: groff over the man page: it is not installed")


def check_example_config(work):
    text = run("train", "--example-config").stdout
    (work / "mine.yaml").write_text(text)
    cache = os.environ.get("ASSAY_TEST_CACHE", str(work / "cache"))
    small = ["run.steps=3", "eval.tokens=2048", "eval.samples.tokens=4", "data.synth.train_tokens=120000", "data.synth.val_tokens=20000",
             f"data.cache={cache}"]
    done = run("train", "mine.yaml", "--run", "trained", *(word for one in small for word in ("--set", one)), "--json", cwd=work)
    check(done.returncode == 0 and 5 < json.loads(done.stdout)["val_loss_nats"] < 9, f"the example does not train: {done.stderr}")
    own = "\n".join(line.replace("# ", "", 1) if re.match(r"  # (train|val|tokenizer): ", line) else line
                    for line in text.splitlines() if not line.startswith("  synth:"))
    (work / "own.yaml").write_text(own)
    done = run("train", "own.yaml", "--plan", cwd=work)
    check(done.returncode == 0 and "no file matches" in done.stderr and "total" in done.stdout, f"with own data: {done.stderr}")

    section = run("train", "--help-config", "model.moe").stdout
    check("top_k" in section and "model.moe.router: " in section and "hidden" not in section, f"--help-config model.moe:\n{section}")
    check("rope_theta" in run("train", "--help-config").stdout, "--help-config")
    done = run("train", "--help-config", "model.mo")
    check(done.returncode == 1 and "no section model.mo" in done.stderr and "did you mean model.moe" in done.stderr, done.stderr)


def check_plans():
    """Before the data is there."""
    speedrun = PRESETS / "speedrun" / "moe-64.yaml"
    if list((ROOT / "data-cache").glob("fineweb10B/*.bin")):
        print("not run: --plan without data, which is there")
        return
    done = run("train", speedrun, "--plan")
    check(done.returncode == 0 and "total" in done.stdout and "tools/get_fineweb.sh" in done.stderr, f"--plan: {done.stderr}")
    plan = json.loads(run("train", speedrun, "--plan", "--json").stdout)
    padding = plan["total_bytes"] - sum(b["bytes"] for b in plan["buffers"])
    check(plan["total_bytes"] == sum(plan["section_bytes"].values()) and 0 <= padding < 256 * len(plan["buffers"]), "--plan --json adds up")
    audited = json.loads(run("audit", speedrun, "--plan", "--json").stdout)["models"]["moe-64"]
    check(audited["total_bytes"] == plan["total_bytes"] > 1e9, "audit and train plan the same")
    done = run("train", speedrun, "--run", "/nowhere/run")
    check(done.returncode == 1 and "hint: bash tools/get_fineweb.sh" in done.stderr, done.stderr)
    for command in ("train", "audit"):
        done = run(command, PRESETS / "matrix" / "cpu.yaml")
        check(done.returncode == 1 and "is a matrix" in done.stderr and f"hint: assay matrix {PRESETS}" in done.stderr, done.stderr)


with tempfile.TemporaryDirectory(prefix="assay-help-") as folder:
    place = pathlib.Path(folder)
    (place / "runs" / "moe").mkdir(parents=True)
    (place / "runs" / "empty").mkdir()
    (place / "runs" / "moe" / "config.yaml").write_text("model: {}\n")
    for name in ("my.yaml", "my config.yaml"):
        (place / name).write_text("model: {}\n")
    check_help()
    check_terminal()
    check_versions()
    check_bash(place)
    check_zsh(place)
    check_man(place)
    check_example_config(place)
    check_plans()
print("\n".join(failures) or f"help: ok ({len(COMPLETIONS)} completions)")
sys.exit(1 if failures else 0)
