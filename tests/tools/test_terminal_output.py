#!/usr/bin/env python3
"""What others wrote cannot steer a terminal: names in a file that hold escape sequences are shown, not obeyed; a pipe gets
the bytes as they are. Usage: test_terminal_output.py ASSAY"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import configuration
from terminal import Terminal

ASSAY = sys.argv[1]
CLEAR, TITLE, C1 = "\x1b[2J", "\x1b]0;owned\x07", "\u009b31m"
# With these a name is shown as another: "moe\u202enib.exe" as "moeexe.bin".
TURNS = [chr(c) for c in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


def on_terminal(*arguments):
    with Terminal(ASSAY, *arguments) as terminal:
        terminal.end()
        return terminal.shown


def check_dumb(folder):
    """A bar only where the terminal can take it away again."""
    config = folder / "small.yaml"
    config.write_text(configuration())
    for term, bar in (("xterm", True), ("dumb", False), ("", False)):
        with Terminal(ASSAY, "train", config, "--run", folder / f"run-{term}", "--stop-after", "3", term=term) as terminal:
            code = terminal.end()
            if code != 0 or ("\x1b[K" in terminal.shown) != bar or "\x1b" in terminal.shown and not bar:
                sys.exit(f"FAILED: TERM={term}: {terminal.shown!r}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = folder / "evil.yaml"
        config.write_text(f'"{json.dumps(CLEAR + TITLE + C1)[1:-1]}": 1\n', encoding="utf-8")
        shown = on_terminal("train", config, "--plan")
        for sequence in (CLEAR, TITLE, "\x07", "\u009b"):
            if sequence in shown:
                sys.exit(f"FAILED: {sequence!r} reached the terminal: {shown!r}")
        if "\\x1b[2J" not in shown or "\\x9b31m" not in shown:
            sys.exit(f"FAILED: the control characters are not shown: {shown!r}")
        piped = subprocess.run([ASSAY, "train", config, "--plan"], capture_output=True)
        if CLEAR.encode() not in piped.stderr:
            sys.exit(f"FAILED: a pipe did not get the bytes: {piped.stderr!r}")
        shown = on_terminal("train", "turned" + "".join(TURNS) + ".yaml")
        for turn in TURNS:
            if turn in shown or f"\\u{ord(turn):04x}" not in shown:
                sys.exit(f"FAILED: U+{ord(turn):04X} reached the terminal: {shown!r}")
        # A lone first byte does not let the next one pass.
        shown = on_terminal("train", os.fsdecode(b"\xc2\x1b[2J\xc2\x07.yaml"))
        if "\x1b[2J" in shown or "\x07" in shown or "\\x1b[2J" not in shown:
            sys.exit(f"FAILED: a control character after a first byte reached the terminal: {shown!r}")
        if "é" not in subprocess.run([ASSAY, "train", "é.yaml"], capture_output=True, text=True).stderr:
            sys.exit("FAILED: other characters changed")
        for text in ("é", "\u00a0", "ي", "\u2013", "\u2029", "\u202f", "\u2065", "\u206a", "\u20ac", "\U0001f600"):
            if text not in on_terminal("train", text + ".yaml"):
                sys.exit(f"FAILED: {text!r} changed on a terminal")
        check_dumb(folder)
    print("terminal output: ok")


if __name__ == "__main__":
    main()
