"""Whether a command refused as every one does: on standard error a line `error:` and a line `hint:`, and exit 1."""

WORDS = ("error: ", "hint: ")


def has(line, parts):
    parts = (parts,) if isinstance(parts, str) else parts
    return all(line.startswith(part) if part.startswith(WORDS) else part in line for part in parts)


def is_refusal(done, error="", hint="", warned=False, said_before=False, printed=False):
    """done: the process, with its output as text or bytes. error, hint: what the line has, one text or several; one that
    begins with `error: ` or `hint: ` begins the line. Each is said once, and nothing else is, unless warned: lines `warning:`
    before them, said_before: any lines before them, or printed: standard output."""
    told = done.stderr.decode(errors="replace") if isinstance(done.stderr, bytes) else done.stderr
    lines = told.splitlines()
    if done.returncode != 1 or len(lines) < 2:
        return False
    *before, first, last = lines
    if not first.startswith("error: ") or not last.startswith("hint: ") or len(last) <= 12:
        return False
    if any(line.startswith(WORDS) for line in before):
        return False
    if done.stdout and not printed:
        return False
    expected = said_before or all(warned and line.startswith("warning: ") for line in before)
    return expected and has(first, error) and has(last, hint)
