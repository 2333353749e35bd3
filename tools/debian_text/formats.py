"""Formats that are no XML to blocks (see markup.py): manual pages, POD, info, plain text,
dictionaries, fortunes, texts of games, SWORD modules."""
import re
import struct
import zlib

from markup import from_html
from prose import clean


def decode(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


# ---- manual pages ----

ESCAPES = (
    (re.compile(r"\\\".*"), ""), (re.compile(r"\\f\[[^\]]*\]|\\f\([A-Za-z]{2}|\\f."), ""), (re.compile(r"\\s[-+]?\d+"), ""),
    (re.compile(r"\\(?:\*\(|\()(?:lq|rq|Lq|Rq|dq|L\"|R\")"), '"'), (re.compile(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]"), "'"),
    (re.compile(r"\\\[(?:dq|lq|rq)\]"), '"'), (re.compile(r"\\\((?:em|en)|\\\[(?:em|en)\]"), " - "),
    (re.compile(r"\\\(bu|\\\[bu\]"), ""), (re.compile(r"\\\(co|\\\[co\]"), "(c)"), (re.compile(r"\\[&|^/,:%)]"), ""),
    (re.compile(r"\\\((?:ti|ha|rs|sl|pl|mi|eq|at|sh|Do|ga)|\\\[(?:ti|ha|rs|ga)\]"), " "),
    (re.compile(r"\\\*\(..|\\\*\[[^\]]*\]|\\\*."), ""),
    (re.compile(r"\\[hvwxzbDLlno]'[^']*'"), ""), (re.compile(r"\\m\[[^\]]*\]|\\[kgnY](?:\(..|\[[^\]]*\]|.)"), ""),
    (re.compile(r"\\-"), "-"), (re.compile(r"\\[ ~0]"), " "), (re.compile(r"\\e"), "\\\\"), (re.compile(r"\\'"), "'"),
    (re.compile(r"\\`"), "`"), (re.compile(r"\\\(..|\\\[[^\]]*\]"), ""), (re.compile(r"\\c$"), ""), (re.compile(r"\\(.)"), r"\1"))
MAN_SKIP = re.compile(r"synopsis|see also|copyright|licen[sc]e|authors?\b|reporting bugs|bug reports|colophon|conforming|"
                      r"standards|availability|name\b|history|version|attributes|maintainer|resources", re.I)
MAN_PARAGRAPH = frozenset("PP P LP sp RS RE br TP TQ IP HP Pp It Bl El Bd Ed Sp Vb Ve".split())
MAN_FONTS = frozenset("B I BR RB BI IB IR RI SM SB R".split())


def unescape(line):
    if "\\" in line:
        for pattern, to in ESCAPES:
            line = pattern.sub(to, line)
    return line


def arguments(line):
    return [quoted or word for quoted, word in re.findall(r'"((?:[^"]|"")*)"|(\S+)', line)]


def from_man(data):
    blocks, pieces = [], []
    skip, literal, tag_next, macro_depth = False, False, False, False

    def flush():
        if pieces and not skip:
            text = clean(" ".join(unescape(p) for p in pieces))
            if text:
                blocks.append(("p", text))
        pieces.clear()

    for line in decode(data).split("\n"):
        if macro_depth:  # the definition of a macro
            macro_depth = not line.startswith("..")
            continue
        if line.startswith((".\\\"", "'\\\"", "'''")):
            continue
        if line.startswith((".", "'")):
            parts = line[1:].split(None, 1)
            name, rest = (parts[0], parts[1] if len(parts) > 1 else "") if parts else ("", "")
            if name in ("de", "de1", "ig", "am"):
                macro_depth = True
            elif name in ("SH", "SS", "Sh", "Ss"):
                flush()
                title = clean(unescape(" ".join(arguments(rest))))
                if name in ("SH", "Sh"):
                    skip = bool(MAN_SKIP.match(title))
                if not skip and title:
                    blocks.append(("h", title.capitalize() if title.isupper() else title))
                literal = False
            elif name in ("nf", "EX", "TS", "Vb", "Bd") or name == "DS":
                flush()
                literal = True
            elif name in ("fi", "EE", "TE", "Ve", "Ed", "DE"):
                literal = False
            elif literal or skip:
                continue
            elif name in MAN_PARAGRAPH:
                flush()
                tag_next = name in ("TP", "TQ")
            elif tag_next:
                tag_next = False  # the name of an option is left out: its description follows
            elif name in MAN_FONTS:
                words = arguments(rest)
                pieces.append((" " if name in ("B", "I", "SM", "SB", "R") else "").join(words))
            elif name in ("Nm", "Ar", "Fl", "Xr", "Pa", "Va", "Dv", "Ev", "Cm", "Em", "Sy", "Ic", "Li", "Fa", "Fn", "Vt", "Tn", "Dq",
                          "Sq", "Ql", "Pq", "Qq", "Er", "An", "No", "Ns", "Bx", "Ux", "Fx", "Nx", "Ox", "At", "St", "Lk", "Mt"):
                pieces.append(mdoc(name, rest))
            continue
        if literal or skip:
            continue
        if tag_next:
            tag_next = False
            continue
        if not line.strip():
            flush()
        elif line[0] in " \t" and len(line) - len(line.lstrip()) > 3:
            flush()
        else:
            pieces.append(line)
    flush()
    return blocks


def mdoc(name, rest):
    words, out, closing = arguments(rest), [], ""
    if name in ("Dq", "Qq"):
        closing = '"'
        out.append('"')
    for word in words:
        if word in ("Ns", "No", "Ar", "Fl", "Xr", "Pa", "Va", "Dv", "Ev", "Cm", "Em", "Sy", "Ic", "Li", "Fa", "Nm"):
            continue
        if word in (".", ",", ";", ":", ")", "?", "!"):
            out.append(closing + word)
            closing = ""
        else:
            out.append((" " if out and out[-1] not in '("' else "") + word)
    return "".join(out) + closing


# ---- POD ----

def from_pod(data):
    blocks, active = [], False
    for part in re.split(r"\n\s*\n", decode(data)):
        match = re.match(r"=(\w+)\s*(.*)", part, re.S)
        if match:
            name, rest = match.groups()
            active = name not in ("cut", "begin", "for", "end")
            if name.startswith("head"):
                blocks.append(("h", pod_codes(rest)))
        elif active and part and not part[0].isspace():
            blocks.append(("p", pod_codes(part)))
    return blocks


def pod_codes(text):
    text = re.sub(r"E<(\w+)>", lambda m: {"lt": "\u2039", "gt": "\u203a", "sol": "/", "verbar": "|"}.get(m[1], ""), text)
    for _ in range(4):
        text, done = re.subn(r"[BICFSL]<<+ (.*?) >>+|[BICFS]<([^<>]*)>|[XZ]<[^<>]*>", lambda m: m[1] or m[2] or "", text, flags=re.S)
        text, links = re.subn(r"L<(?:([^<>|]*)\|)?([^<>]*)>", lambda m: m[1] or m[2].replace("/", " "), text)
        if not done + links:
            break
    return clean(text.replace("\u2039", "<").replace("\u203a", ">"))


# ---- info, plain text ----

def from_info(data):
    blocks = []
    for node in decode(data).split("\x1f"):
        lines = node.strip("\n").split("\n")
        if not lines[0].startswith("File:"):
            continue
        text = re.split(r"^\* Menu:", "\n".join(lines[1:]), flags=re.M)[0]
        text = re.sub(r"\*note\s+([^:]+)::?(\s[^.,:;]{1,60}[.,])?", r"\1", text, flags=re.I)
        blocks += from_text(text.encode())
    return blocks


UNDERLINE = re.compile(r"^\s*([=\-~^*#.\"'+`_])\1{2,}\s*$")


def from_text(data):
    """Paragraphs between blank lines. A line over an underline is a heading; what is indented by 4
    columns more than the text is taken for a listing."""
    blocks = []
    text = decode(data).replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n").expandtabs()
    for part in re.split(r"\n\s*\n", text):
        lines = [line for line in part.split("\n") if line.strip()]
        if not lines or lines[0].lstrip().startswith((".. ", "::", "[[", "////", "|", "+--", "----")):
            continue
        while lines and UNDERLINE.match(lines[0]):
            lines.pop(0)
        if len(lines) >= 2 and UNDERLINE.match(lines[1]):
            blocks.append(("h", clean(lines[0])))
            lines = lines[2:]
        elif lines and lines[0].startswith(("# ", "## ", "### ", "== ", "=== ", "==== ")):
            blocks.append(("h", clean(lines[0].strip("#= "))))
            lines.pop(0)
        item = []
        for line in lines + [None]:
            if line is None or re.match(r"\s*([-*o\u2022]|\d{1,2}[.)]|\([a-z0-9]\))\s+\S", line):
                if item:
                    indents = [len(x) - len(x.lstrip()) for x in item]
                    ragged = len(set(indents[1:])) > 2
                    body = " ".join(x.strip() for x in item)
                    body = re.sub(r"(\w)- (?=[a-z])", r"\1-", body)
                    blocks.append(("x" if ragged else "p", clean(light_markup(body))))
                item = [] if line is None else [re.sub(r"^\s*([-*o\u2022]|\d{1,2}[.)]|\([a-z0-9]\))\s+", "", line)]
            else:
                item.append(line)
    return blocks


def light_markup(text):
    """Without the marks of reStructuredText, Markdown and AsciiDoc around words."""
    text = re.sub(r":[a-z:+-]+:`([^`<]*?)\s*(?:<[^>]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^>]*>`__?", r"\1", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*([^*]+)\*\*|``([^`]+)``|`([^`]+)`_{0,2}", lambda m: m[1] or m[2] or m[3], text)
    return re.sub(r"(?<!\w)[*_]([\w\"'][^*_]*[\w.,\"'])[*_](?!\w)", r"\1", text).replace("::", ":")


# ---- dictionaries ----

def number64(digits):
    value = 0
    for c in digits:
        value = value * 64 + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".index(c)
    return value


CLASSES = {"n": "noun", "v": "verb", "adj": "adjective", "adv": "adverb"}


def definition(part):
    """A paragraph of an entry without references, pronunciation, etymology and sources."""
    part = re.sub(r"\\[^\\]*\\|<[a-z, ]+>", "", part)
    for _ in range(2):
        part = re.sub(r"\[[^\[\]]*\]", "", part)
    part = re.sub(r"[{}\[\]]|\([^()]{0,12}\^[^()]*\)|\([^()]*[`*][^()]*\)", "", part)
    part = re.sub(r"--\s?[A-Z][\w.&' ]*\s*$", "", part.rstrip())
    text = clean(part)
    text = re.sub(r"^(?:(n|v|adj|adv) )?\d+ ?[:.] ", "", text)
    text = re.sub(r"^([\w' -]{2,40}?) (n|v|adj|adv) (?:1: |: )", lambda m: f"{m[1]} ({CLASSES[m[2]]}): ", text)
    text = re.sub(r" +(?=[,.;:])", "", text)
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?\"')" else ".")


def from_dict(data, index):
    """Entries by the index, as groups of 16 neighbours: a list of lists of blocks."""
    places = {}
    for line in decode(index).split("\n"):
        fields = line.split("\t")
        if len(fields) == 3 and not fields[0].startswith("00-database"):
            places[number64(fields[1])] = number64(fields[2])
    documents, group = [], []
    for place in sorted(places):
        for part in re.split(r"\n\s*\n|\n\s+(?=\d+[:.] )", decode(data[place:place + places[place]])):
            text = definition(part)
            if text:
                group.append(("p", text))
        if len(group) >= 48:
            documents.append(group)
            group = []
    return documents + [group]


def from_fortunes(data):
    entries = [clean(entry) for entry in re.split(r"^%\s*$", decode(data), flags=re.M)]
    blocks = [("p", re.sub(r"\s*--\s.*$", "", entry)) for entry in entries]
    return [blocks[i:i + 16] for i in range(0, len(blocks), 16)]


# ---- games ----

def from_wml(data):
    """Story and dialogue of a scenario: strings marked for translation."""
    text = re.sub(r'"\s*\+\s*(?:\n\s*)?_?\s*"', "", decode(data))
    blocks = []
    for key, value in re.findall(r'\b(message|story|text|description|summary)\s*=\s*_\s*"((?:[^"]|"")*)"', text):
        value = re.sub(r"<[^>]*>|\$\w+(\.\w+)*\|?", "", value.replace('""', '"'))
        value = re.sub(r"^[a-z_ ]+\^", "", value)
        blocks += [("p", clean(part)) for part in value.split("\n\n")]
    return blocks


def from_ticks(data):
    """Strings between back quotes: conversations."""
    return [("p", clean(t)) for t in re.findall(r"`([^`\n]+)`", decode(data)) if "<" not in t]


def from_entries(data):
    """Entries between lines of %%%%, each a name and a text."""
    blocks = []
    for entry in re.split(r"^%%%%\s*$", decode(data), flags=re.M):
        for part in entry.split("\n\n")[1:]:
            if "{{" not in part and "@" not in part:
                blocks.append(("p", clean(part)))
    return blocks


# ---- SWORD ----

def from_sword(files):
    """Compressed texts and commentaries, one document per block (a book or a chapter). files: path -> bytes."""
    documents = []
    for path in sorted(files):
        match = re.match(r"(.*\.[bcv])zs$", path)
        stem = match and match[1]
        if not match or stem + "zz" not in files or stem + "zv" not in files:
            continue
        blocks, verses, text = files[path], files[stem + "zv"], files[stem + "zz"]
        by_block = next(filter(None, (verses_of(verses, form, len(blocks) // 12) for form in ("<IIH", "<III"))), {})
        for block, places in sorted(by_block.items()):
            at, packed, _ = struct.unpack_from("<III", blocks, 12 * block)
            plain = zlib.decompress(text[at:at + packed])
            parts = list(dict.fromkeys(places))
            body = "\n".join(decode(plain[start:start + length]) for start, length in parts)
            body = re.sub(r"<title[^>]*>.*?</title>|<note.*?</note>|<reference.*?</reference>", "", body, flags=re.S)
            page = "<html><body><div>" + body.replace("<chapter", "<p><chapter") + "</div></body></html>"
            documents += chapters(from_html(page.encode()))
    return documents


def verses_of(table, form, num_blocks):
    """block -> [(start, length)] from a table of either width; None if the table has the other one."""
    by_block = {}
    if len(table) % struct.calcsize(form):
        return None
    for block, start, length in struct.iter_unpack(form, table):
        if length:
            if block >= num_blocks:
                return None
            by_block.setdefault(block, []).append((start, length))
    return by_block


def chapters(blocks):
    return [blocks[i:i + 64] for i in range(0, len(blocks), 64)]
