"""One .deb to documents: which of its files are read and how, which paragraphs are kept."""
import bz2
import gzip
import lzma
import re
import subprocess
import tarfile

import formats
import markup
import prose

MAX_FILE = 48 << 20        # bytes; larger files are not read
MAX_DOCUMENT = 200_000     # characters; longer texts become several documents
MIN_DOCUMENT = 300         # characters

LANGUAGES = frozenset("""af ar ast be bg bn bs ca cs cy da de el eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka
kk km kn ko lt lv mk ml mr ms nb ne nl nn no pa pl pt ro ru si sk sl sq sr sv ta te tg th tr ug uk ur uz vi zh en_gb pt_br
zh_cn zh_tw zh_hk sr@latin""".split())
LANGUAGE_NAME = re.compile(r"[._-](?:" + "|".join(sorted(x for x in LANGUAGES if "@" not in x and x not in
                           ("is", "it", "no", "as", "id", "he", "be", "si", "te", "ne", "ms", "el", "et", "ta", "pa", "ga"))) +
                           r")(?:[._-][A-Za-z]{2})?(?:\.utf-?8)?\.(?:html?|txt|md|rst)$", re.I)
NOT_READ = re.compile(r"""/(copyright|changelog|changes|licen[sc]e|copying|gpl|lgpl|gfdl|fdl|authors|thanks|credits|contributors|
    todo|notes\.|release_notes|install(?=[./]|$)|genindex|search|py-modindex|modindex|index-all|allclasses|
    alphaindex|general-index|ix\d+|hierarchy|classes\.|
    functions[_.]|globals|annotated|namespacemembers|files\.|dir_|graph_legend|deprecated-list|constant-values|serialized-form|
    package-(frame|tree|use|list)|overview-|help-doc|inherits|doxygen|translators|maintainers|requires\.txt|top_level|
    sources\.txt|package-lists|cmakelists|robots)|_8h|_8c|_source\.html|-members\.html|_modules/|/src-html/|/class-use/|
    /(_static|_sources|_downloads|_images|examples?|tests?|fonts|locale|i18n|l10n|translations|releasenotes|release-notes|src)/|
    -(index|idx|symbols|all-index)\.html""", re.I | re.X)
OPEN = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}


def kind_of(path):
    """(kind, name without the ending of a compression) or None for a file that is not read."""
    name = re.sub(r"\.(gz|bz2|xz)$", "", path)
    lower = name.lower()
    base = lower.rpartition("/")[2]
    if name.startswith("usr/share/man/man"):
        return "man"
    if "/sword/" in lower and re.search(r"\.([bcv]z[szv]|conf)$", lower):
        return "sword"
    if lower.endswith((".dict.dz", ".dict")) or "/dictd/" in lower and lower.endswith(".index"):
        return "dict"
    if lower.startswith("usr/share/games/fortunes") and "." not in base:
        return "fortunes"
    if "/wesnoth" in lower and lower.endswith(".cfg"):
        return "wml"
    if "/endless-sky/data/" in lower and lower.endswith(".txt"):
        return "ticks"
    if "/crawl/dat/descript/" in lower or "/crawl/dat/database/" in lower:
        return None if lower.count("/") > 6 else "entries"
    folders = {re.sub(r"^([a-z]{2})[-_](?!us|gb)[a-z]{2}$", r"\1", x) for x in lower.split("/")[:-1]}
    if not LANGUAGES.isdisjoint(folders) or LANGUAGE_NAME.search(lower) or NOT_READ.search("/" + lower):
        return None
    if lower.endswith((".html", ".htm", ".xhtml", ".html.en", ".html.utf8")) or base == "index.cache":
        return "html"
    if lower.endswith((".page", ".docbook")) or lower.endswith(".xml") and ("/help/c/" in lower or "/doc/" in lower):
        return "xml"
    if lower.endswith(".pod"):
        return "pod"
    if "/info/" in lower:
        return "info" if ".info" in lower else None
    if ("/doc/" in lower or "/games/" in lower or "/vim/" in lower or "/state/" in lower) and (
            lower.endswith((".txt", ".text", ".rst", ".md", ".markdown", ".adoc", ".asciidoc", ".asc", ".faq", ".howto"))
            or re.match(r"(readme|faq|howto|guide|manual|tutorial|intro|jargon|usage|overview)\w*$", base)
            or "/state/" in lower):
        return "text"
    return None


def stem_of(path):
    return path.rpartition("/")[2].partition(".")[0].lower()


SIMPLE = {"html": markup.from_html, "xml": markup.from_xml, "man": formats.from_man, "pod": formats.from_pod,
          "info": formats.from_info, "text": formats.from_text, "wml": formats.from_wml, "ticks": formats.from_ticks,
          "entries": formats.from_entries}


def select(blocks, kind):
    """The paragraphs of a document that are kept, with headings before them."""
    kept, headings = [], []
    plain = kind in ("sword", "dict", "fortunes")
    seen = 0
    for block, text in blocks:
        if block == "h":
            text = prose.heading(text)
            if text:
                headings = (headings + [text])[-2:]
            continue
        seen += len(text)
        if not prose.is_prose(text, strict=block == "x"):
            if kept and kept[-1].endswith(":") and len(kept[-1]) < 60:
                kept.pop()  # it announced what is left out
            continue
        if not plain:
            kept += [h for h in headings if not kept or kept[-1] != h]
        headings = []
        kept.append(text)
    return kept, seen


def documents_of(blocks, kind):
    kept, seen = select(blocks, kind)
    size = sum(map(len, kept))
    if size < MIN_DOCUMENT or size < 0.35 * seen or not prose.is_english(kept):
        return
    part, length = [], 0
    for text in kept:
        part.append(text)
        length += len(text)
        if length > MAX_DOCUMENT:
            yield part
            part, length = [], 0
    if part:
        yield part


def files_of(deb):
    """(path, bytes) of the regular files of a package that are read, and its copyright file."""
    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                wanted = re.fullmatch(r"usr/share/doc/[^/]+/copyright(\.gz)?", path) or kind_of(path)
                if member.isreg() and member.size <= MAX_FILE and wanted:
                    yield path, archive.extractfile(member).read()
        process.stdout.read()
    except (tarfile.TarError, EOFError) as e:
        process.kill()
        raise ValueError(str(e) or type(e).__name__)
    finally:
        process.stdout.close()
        said = process.stderr.read().decode(errors="replace").strip()
        process.stderr.close()
        process.wait()
    if process.returncode:
        raise ValueError(said.split("\n")[0] or f"dpkg-deb ended with {process.returncode}")


def unpacked(path, data):
    for ending, opener in OPEN.items():
        if path.endswith(ending):
            return opener(data)
    if path.endswith(".dz"):
        return gzip.decompress(data)
    return data


def strip_package(deb):
    """(documents, licence, counts): a document is a list of paragraphs. The order is that of the paths."""
    groups, copyright_text = {}, ""
    counts = {"files": 0, "bytes_read": 0, "unreadable_files": 0}
    documents = []

    def take(path, convert, kind):
        try:
            found = convert()
            lists = found if kind in ("sword", "dict", "fortunes") else [found]
            for blocks in lists:
                for paragraphs in documents_of(blocks, kind):
                    documents.append((path, len(documents), paragraphs))
        except Exception:  # whatever is wrong with one file: the manifest has their number
            counts["unreadable_files"] += 1

    def take_simple(path, data, kind):
        counts["files"] += 1
        counts["bytes_read"] += len(data)
        convert = formats.from_fortunes if kind == "fortunes" else SIMPLE[kind]
        take(path, lambda: convert(unpacked(path, data)), kind)

    stems, texts = set(), []
    for path, data in files_of(deb):
        kind = kind_of(path)
        if kind is None:
            try:
                copyright_text = copyright_text or unpacked(path, data).decode(errors="replace")
            except (OSError, EOFError):
                pass
        elif kind in ("sword", "dict"):
            groups[path] = (kind, data)
            counts["files"] += 1
            counts["bytes_read"] += len(data)
        elif kind in ("text", "info"):
            texts.append((path, data, kind))
        else:
            if kind == "html":
                stems.add(stem_of(path))
            take_simple(path, data, kind)
    for path, data, kind in texts:
        if stem_of(path) not in stems if kind == "text" else len(stems) < 10:  # else it is the source of pages
            take_simple(path, data, kind)
    sword = {path: data for path, (kind, data) in groups.items() if kind == "sword"}
    if sword:
        take("sword", lambda: formats.from_sword(sword), "sword")
    for path, (kind, data) in sorted(groups.items()):
        index = re.sub(r"\.dict(\.dz)?$", ".index", path)
        if kind == "dict" and not path.endswith(".index") and index in groups:
            take(path, lambda: formats.from_dict(unpacked(path, data), groups[index][1]), "dict")
    documents.sort(key=lambda d: (d[0], d[1]))
    return [paragraphs for _, _, paragraphs in documents], licence_of(copyright_text), counts


NAMES = (  # of licences, and what they are found by
    ("GFDL", r"free documentation licen[sc]e"), ("LGPL", r"(lesser|library) general public licen[sc]e"), ("AGPL", r"affero general public"),
    ("GPL", r"(?<!lesser )(?<!library )(?<!affero )general public licen[sc]e"), ("Apache", r"apache license"),
    ("Artistic", r"artistic licen[sc]e"), ("CC-BY-SA", r"creative commons attribution.share"), ("public-domain", r"public domain"),
    ("MPL", r"mozilla public"), ("MIT", r"permission is hereby granted, free of charge"), ("BSD", r"redistribution and use in source"),
    ("PostgreSQL", r"postgresql licen[sc]e"), ("PSF", r"python software foundation licen[sc]e"))


def licence_of(text):
    """The License fields of a machine-readable copyright file, else the names found in it."""
    if re.match(r"\s*Format(-Specification)?:", text):
        names = re.findall(r"^License:[ \t]*(\S.*)$", text, re.M)
    else:
        flat = re.sub(r"\s+", " ", text)
        names = [name for name, pattern in NAMES if re.search(pattern, flat, re.I)]
    return ", ".join(sorted({prose.clean(name) for name in names})) or "see copyright file"
