"""All documents of all packages to the text: without duplicates, shuffled, in several files."""
import hashlib
import json
import os

from prose import fingerprint

MIN_CHARACTERS = 300        # of a document after duplicates have gone
FILE_BYTES = 16_000_000     # a file ends with the document that exceeds this


class Duplicates:
    """Paragraphs seen so far. One is a duplicate if its words are those of another (case, digits and
    punctuation aside), or if at least 5 of its 6 smallest hashes of 4 words in a row were seen."""

    def __init__(self):
        self.exact, self.sketches = set(), set()
        self.exact_paragraphs = self.near_paragraphs = 0

    def is_new(self, text):
        if len(text) < 40:
            return True  # headings and short replies recur
        exact, sketch = fingerprint(text)
        if exact in self.exact:
            self.exact_paragraphs += 1
            return False
        self.exact.add(exact)
        near = len(sketch) == 6 and sum(x in self.sketches for x in sketch) >= 5
        self.sketches.update(sketch)
        self.near_paragraphs += near
        return not near


def without_duplicates(documents, seen):
    """The documents of a package with their new paragraphs, and how many were dropped whole: those of
    which less than half is new or too little is left."""
    kept, dropped = [], 0
    for paragraphs in documents:
        new = [p for p in paragraphs if seen.is_new(p)]
        size = sum(map(len, new))
        if size < MIN_CHARACTERS or size < 0.5 * sum(map(len, paragraphs)):
            dropped += 1
            continue
        kept.append("\n\n".join(without_bare_headings(new)))
    return kept, dropped


def without_bare_headings(paragraphs):
    """Without headings whose text was a duplicate: of headings in a row the last two stay, at the end none."""
    kept, headings = [], []
    for text in paragraphs:
        if is_heading(text):
            headings = (headings + [text])[-2:]
        else:
            kept += headings + [text]
            headings = []
    return kept


def is_heading(text):
    return len(text) < 100 and text.count(" ") < 9 and text[-1] not in ".!?:;,)\"'"


def write_files(rows, folder):
    """rows: (text, package), written in the order of a hash of the text. Returns the manifest's list of
    files and the SHA-256 of all of them in a row. The files are named *.part."""
    rows.sort(key=lambda row: (hashlib.sha256(b"order\n" + row[0].encode()).digest(), row[1]))
    files, whole, out = [], hashlib.sha256(), None
    try:
        for text, package in rows:
            if out is None:
                name = f"debian_text_{len(files):02d}.jsonl"
                out = open(os.path.join(folder, name + ".part"), "wb")
                files.append({"name": name, "bytes": 0, "documents": 0, "text_bytes": 0})
                digest = hashlib.sha256()
            line = json.dumps({"text": text, "source": package}, ensure_ascii=False).encode() + b"\n"
            out.write(line)
            digest.update(line)
            whole.update(line)
            entry = files[-1]
            entry["bytes"] += len(line)
            entry["documents"] += 1
            entry["text_bytes"] += len(text.encode())
            entry["sha256"] = digest.hexdigest()
            if entry["bytes"] >= FILE_BYTES:
                close(out)
                out = None
    finally:
        if out is not None:
            close(out)
    return files, whole.hexdigest()


def close(out):
    out.flush()
    os.fsync(out.fileno())
    out.close()
