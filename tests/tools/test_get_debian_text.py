#!/usr/bin/env python3
"""tools/get_debian_text.sh on small packages made here, with a folder in place of apt's server.
Usage: test_get_debian_text.py"""
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "tools" / "get_debian_text.sh")
if shutil.which("dpkg-deb") is None:
    print("not run: dpkg-deb is not installed")
    sys.exit(0)
if all(subprocess.run([python, "-c", "import lxml.etree"], capture_output=True).returncode
       for python in ("python3", "/usr/bin/python3") if shutil.which(python)):
    print("not run: python3-lxml is not installed")
    sys.exit(0)
temporary = tempfile.TemporaryDirectory()
work = pathlib.Path(temporary.name)
debs, out, full_list = work / "debs", work / "out", work / "full.list"
debs.mkdir()
failures = []

# Sentences from a few words, so that every paragraph differs from every other.
NAMES = ("river tower garden signal market bridge harbour valley station forest castle window summer winter morning evening "
         "village captain teacher doctor engine kitchen mountain island letter mirror shadow silver copper marble timber cotton").split()
VERBS = "crosses guards follows repairs measures describes carries opens".split()


def paragraph(seed):
    state, sentences = seed * 7919 + 1, []
    for _ in range(4):
        picks = []
        for _ in range(6):
            state = (state * 1103515245 + 12345) % 2**31
            picks.append(state >> 16)
        name = [NAMES[p % len(NAMES)] for p in picks]
        sentences.append(f"The {name[0]} of that {name[1]} {VERBS[picks[2] % 8]} an old {name[3]}, and it is not the {name[4]} "
                         f"which you see from my {name[5]}.")
    return " ".join(sentences)


def html(*seeds):
    paragraphs = "".join(f"<p>{paragraph(s)}</p>" for s in seeds)
    return (f"<html><head><title>No</title><style>p {{}}</style></head><body><div class='navigation'>Next page of the manual, which "
            f"is not text that one would like to read.</div><h1>1.2 About towers</h1>{paragraphs}<pre>int main() {{ return 0; }}"
            "</pre><table><tr><td>0x12</td><td>A</td></tr></table><script>alert(1)</script><p>Copyright (C) 2001 by the authors "
            "of this page, and all rights are reserved by them.</p></body></html>")


def man(*seeds):
    body = "\n.PP\n".join(paragraph(s).replace("tower", "\\fBtower\\fR").replace("that", "\\%that") for s in seeds)
    return f'.TH TOOL 1\n.SH NAME\ntool \\- does it\n.SH DESCRIPTION\n{body}\n.nf\nfoo(bar)\n.fi\n.SH "SEE ALSO"\n.BR ls (1)\n'


GERMAN = " ".join(["Der Turm steht nicht weit vom alten Hafen, und wer dort wohnt, hört die Glocken am Morgen."] * 12)
DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: Tower-1.0\n Text.\n"


def build(name, files, version="1.0", folder=debs):
    tree = work / "tree" / name
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(f"Package: {name}\nVersion: {version}\nArchitecture: all\nSection: doc\n"
                                             "Maintainer: Nobody <nobody@example.org>\nDescription: test\n")
    for path, content in files.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    deb = folder / f"{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)], check=True, capture_output=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
    return deb


doc = "usr/share/doc/"
build("t-html", {doc + "t-html/page.html": html(1, 2, 3), doc + "t-html/copyright": DEP5,
                 doc + "t-html/changelog.html": html(90, 91), doc + "t-html/de/page.html": html(92, 93)})
build("t-man", {"usr/share/man/man1/tool.1.gz": gzip.compress(man(11, 12, 13).encode(), mtime=0),
                "usr/share/man/de/man1/tool.1": man(94, 95), doc + "t-man/copyright": "GNU General Public License, version 2"})
build("t-text", {doc + "t-text/README": "Towers\n======\n\n" + "\n\n".join(map(paragraph, (21, 22, 23))) + "\n\n    x = 1\n    y = 2\n"})
build("t-zcopy", {doc + "t-zcopy/copy.html": html(1, 2, 3), doc + "t-zcopy/near.txt": "\n\n".join(
    paragraph(s).replace("old", "OLD (1)") for s in (11, 12, 13))})
build("t-german", {doc + "t-german/index.html": f"<html><body><p>{GERMAN}</p><p>{GERMAN}</p></body></html>"})
build("t-info", {"usr/share/info/t.info": "This is t.info\n\n\x1f\nFile: t.info,  Node: Top,  Up: (dir)\n\n" + "\n\n".join(
    map(paragraph, (31, 32))) + "\n\n* Menu:\n\n* Other:: The menu of the manual that is not for reading.\n\x1f\nTag Table:\n",
    doc + "t-info/broken.html.gz": b"\x1f\x8b no gzip"})
names = ["t-german", "t-html", "t-info", "t-man", "t-text", "t-zcopy"]


def sha(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def deb_of(name):
    return next(debs.glob(f"{name}_*.deb"))


def line_of(name):
    return f"{name} 1.0 {sha(deb_of(name))} {deb_of(name).stat().st_size}"


full_list.write_text("# a list\n" + "\n".join(map(line_of, names)) + "\n")


def run(*arguments, packages=full_list, folder=out, source=("--debs", debs), environment=None):
    return subprocess.run(["bash", SCRIPT, *map(str, source), "--packages", str(packages), "-o", str(folder), *map(str, arguments)],
                          capture_output=True, text=True, env={**os.environ, **(environment or {})})


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, hint, done):
    check(f"wants {error!r}, {hint!r}",
          is_refusal(done, error, hint, said_before=True, printed=True) and "Traceback" not in done.stderr, done)


def manifest(folder=out):
    return json.loads((folder / "manifest.json").read_text())


def text_files(folder=out):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("debian_text_*"))}


def documents(folder=out):
    rows = [json.loads(line) for data in text_files(folder).values() for line in data.decode().splitlines()]
    return {row["source"]: row["text"] for row in rows}


done = run("--help")
check("--help", done.returncode == 0 and "--dry-run" in done.stdout and "manifest.json" in done.stdout, done)
done = run("--dry-run")
check("a dry run lists and writes nothing", done.returncode == 0 and "t-html 1.0: there" in done.stdout and not out.exists(), done)

# The text.
done = run("--jobs", 2)
check("a run", done.returncode == 0 and "data prepare" in done.stdout, done)
first = text_files()
texts = documents()
check("the packages with text", sorted(texts) == ["t-html", "t-info", "t-man", "t-text"], done)
check("html", texts.get("t-html") == "\n\n".join(["About towers", *map(paragraph, (1, 2, 3))]), done)
check("man", texts.get("t-man") == "\n\n".join(["Description", *map(paragraph, (11, 12, 13))]), done)
check("text", texts.get("t-text") == "\n\n".join(["Towers", *map(paragraph, (21, 22, 23))]), done)
check("info", texts.get("t-info") == "\n\n".join(map(paragraph, (31, 32))), done)

# The manifest.
facts = manifest()
entries = {e["package"]: e for e in facts["packages"]}
check("packages", sorted(entries) == names and facts["as_listed"] is True, done)
check("licences", [entries[n]["licence"] for n in names] == ["see copyright file", "Tower-1.0", "see copyright file", "GPL",
                                                             "see copyright file", "see copyright file"], done)
check("hashes of packages", all(entries[n]["deb_sha256"] == sha(deb_of(n)) and entries[n]["version"] == "1.0"
                                and entries[n]["section"] == "doc" for n in names), done)
check("duplicates", entries["t-zcopy"]["documents"] == 0 and entries["t-zcopy"]["duplicate_documents"] == 2
      and facts["duplicate_paragraphs"]["copies"] + facts["duplicate_paragraphs"]["near_copies"] == 6, done)
check("a broken file is counted", entries["t-info"]["unreadable_files"] == 1, done)
check("hashes of files", [(f["name"], f["sha256"], f["bytes"]) for f in facts["files"]] ==
      [(n, hashlib.sha256(d).hexdigest(), len(d)) for n, d in first.items()], done)
check("the hash of all", facts["text_sha256"] == hashlib.sha256(b"".join(first.values())).hexdigest(), done)
check("totals", facts["totals"]["documents"] == 4 and facts["totals"]["text_bytes"] == sum(len(t.encode()) for t in texts.values()), done)
check("no .part is left", not list(out.rglob("*.part")), done)

# The same bytes: again, with one process, in another locale and time zone.
done = run("--jobs", 1, folder=work / "other", environment={"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"})
check("one process", text_files(work / "other") == first and manifest(work / "other") == facts, done)
done = run()
check("again", "stripped already: 6 of 6" in done.stdout and text_files() == first and manifest() == facts, done)

# Killed while it strips, then resumed.
resumed = work / "resumed"
process = subprocess.Popen(["bash", SCRIPT, "--debs", debs, "--packages", full_list, "-o", resumed, "--jobs", "1"],
                           stdout=subprocess.PIPE, text=True, start_new_session=True)
for line in process.stdout:
    if line.startswith("stripped: 2 of"):
        os.killpg(process.pid, signal.SIGKILL)
        break
process.wait()
process.stdout.close()
done = run(folder=resumed)
already = re.search(r"stripped already: (\d) of 6", done.stdout)
check("resumed after kill -9", done.returncode == 0 and already and int(already[1]) >= 2 and text_files(resumed) == first, done)
stripped = sorted((out / "stripped").glob("t-html_*"))[0]
stripped.write_bytes(stripped.read_bytes()[:-20])
refused("was damaged", "same command again", run())
done = run()
check("a damaged intermediate file is made again", done.returncode == 0 and text_files() == first, done)

# A full disk: what was there stays.
stripped.unlink()
os.symlink("/dev/full", str(stripped) + ".part")
refused("No space left", "resumes", run())
check("the text stays", text_files() == first and manifest() == facts, done)
done = run()
check("resumed after a full disk", done.returncode == 0 and text_files() == first, done)

# The list: its text's hash, another version, nonsense.
listed = work / "listed.list"
done = run("--write-list", listed)
check("a list is written", listed.read_text().count("\n") == 9 and f"@text sha256={facts['text_sha256']}" in listed.read_text(), done)
done = run(packages=listed)
check("its hash agrees", done.returncode == 0 and manifest()["as_listed"], done)
wrong = work / "wrong.list"
wrong.write_text(listed.read_text().replace(facts["text_sha256"], "0" * 64))
refused(f"the text has the SHA-256 {facts['text_sha256']}", "the list is of script version", run(packages=wrong))
check("the text stays", text_files() == first and not list(out.glob("*.part")), done)
wrong.write_text(listed.read_text().replace(sha(deb_of("t-man")), "1" * 64).replace("t-man 1.0", "t-man 0.9")
                 .replace(facts["text_sha256"], "0" * 64))
done = run(packages=wrong)
check("another version", done.returncode == 0 and "t-man: 0.9 is not there, 1.0 is taken" in done.stdout
      and manifest()["as_listed"] is False and not {e["package"]: e for e in manifest()["packages"]}["t-man"]["as_listed"], done)
(work / "names.list").write_text("t-html\nt-man\n")
done = run(packages=work / "names.list")
check("names alone", done.returncode == 0 and manifest()["totals"]["documents"] == 2 and manifest()["as_listed"] is False, done)
for content, error in (("t-html 1.0 xyz\n", ":1:"), ("t-html\nt-html\n", ":2: t-html is listed twice"), ("Rm -rf\n", ":1:"),
                       ("# nothing\n", "lists no package")):
    wrong.write_text(content)
    refused(error, "", run(packages=wrong))
refused("none.list", "list of packages", run(packages=work / "none.list"))
(work / "names.list").write_text("t-html\nt-none\n")
refused("lacks 1 of 2 packages, the first: t-none", "--packages", run(packages=work / "names.list"))
(work / "names.list").write_text("t-german\n")
refused("no English prose", "other packages", run(packages=work / "names.list"))
check("the text of before stays", manifest()["totals"]["documents"] == 2, done)
refused("--jobs 0", "all cores", run("--jobs", 0))
refused("unrecognized arguments: --job", "--help", run("--job", 1))

# A manifest of another program stays, with what is beside it: said before anything is stripped.
foreign = work / "foreign"
foreign.mkdir()
(foreign / "debian_text_99.jsonl").write_text("mine")
for content in ('{"format":"assay-corpus-1"}', "", "[]", "\xff"):
    (foreign / "manifest.json").write_text(content, encoding="latin-1")
    refused(f"{foreign}/manifest.json is of another program", "another folder with -o", run(folder=foreign))
    check("a foreign folder stays", {p.name: p.read_text(encoding="latin-1") for p in foreign.iterdir()} ==
          {"debian_text_99.jsonl": "mine", "manifest.json": content}, done)
# Without a manifest, as a kill between the old text and the new one leaves it, the old text goes.
(foreign / "manifest.json").unlink()
(foreign / "debian_text_mine.jsonl").write_text("mine")
done = run(folder=foreign)
check("text of an earlier call goes, no other", done.returncode == 0 and not (foreign / "debian_text_99.jsonl").exists() and
      (foreign / "debian_text_mine.jsonl").exists(), done)

# A damaged package.
broken = work / "broken"
broken.mkdir()
shutil.copy(deb_of("t-text"), broken)
whole = deb_of("t-html").read_bytes()
(broken / deb_of("t-html").name).write_bytes(whole[:len(whole) // 2])
(work / "names.list").write_text("t-html\nt-text\n")
refused("is damaged", "", run(packages=work / "names.list", source=("--debs", broken), folder=work / "from-broken"))
check("no text of a damaged package", not (work / "from-broken" / "manifest.json").exists(), done)

# A missing library.
fake = work / "fake" / "lxml"
fake.mkdir(parents=True)
(fake / "__init__.py").write_text("raise ImportError('hidden')\n")
refused("has no module lxml.etree", "apt-get install python3-lxml", run(environment={"PYTHONPATH": str(fake.parent)}))
done = run("--help", environment={"PYTHONPATH": str(fake.parent)})
check("--help needs no library", done.returncode == 0 and "--dry-run" in done.stdout, done)

# Downloads, with programs that stand for apt-get and apt-cache: a folder is the server.
server, programs = work / "server", work / "programs"
server.mkdir()
programs.mkdir()
(programs / "apt-cache").write_text(f"""#!/bin/bash
shift 2
for name; do for deb in {server}/"$name"_*.deb; do [[ -f $deb ]] || continue
  dpkg-deb -f "$deb"; echo "Size: $(stat -c %s "$deb")"; echo "SHA256: $(sha256sum <"${{deb/server/indexed}}" | cut -d' ' -f1)"; echo
done; done
""")
(programs / "apt-get").write_text(f"""#!/bin/bash
shift 2
for wanted; do cp {server}/"${{wanted/=/_}}"_all.deb . || {{ echo "E: Failed to fetch $wanted" >&2; exit 100; }}; echo "$wanted" >>{work}/fetched; done
""")
for program in programs.iterdir():
    program.chmod(0o755)
for name in names[:4]:
    shutil.copy(deb_of(name), server)
shutil.copytree(server, work / "indexed")
apt = {"PATH": f"{programs}:{os.environ['PATH']}"}
got = work / "got"


def fetch(*arguments):
    return run(*arguments, packages=work / "names.list", folder=got, source=(), environment=apt)


(work / "names.list").write_text("\n".join(map(line_of, names[:3])) + "\nt-gone 1.0 " + "2" * 64 + " 5\n")
done = fetch("--dry-run")
check("a dry run of a download", done.returncode == 0 and "3 packages" in done.stdout and "0 are there" in done.stdout
      and "t-gone: is not served: left out" in done.stdout and not got.exists(), done)
done = fetch()
check("downloaded", done.returncode == 0 and "download: 3 of 3" in done.stdout and len(list((got / "packages").iterdir())) == 3
      and manifest(got)["as_listed"] is False and manifest(got)["left_out"] == ["t-gone"], done)
done = fetch("--dry-run")
check("all there", "3 are there, 0 MB" in done.stdout, done)
(work / "names.list").write_text("\n".join(map(line_of, names[:4])) + "\n")
done = fetch()
check("only the new one is fetched", done.returncode == 0 and (work / "fetched").read_text().split()[3:] == ["t-man=1.0"]
      and manifest(got)["as_listed"], done)
kept = next((got / "packages").glob("t-html_*"))
kept.write_bytes(b"damaged")
done = fetch()
check("a damaged .deb is fetched again", done.returncode == 0 and sha(kept) == sha(deb_of("t-html")), done)
kept.unlink()
(server / deb_of("t-html").name).write_bytes(whole[:-1] + b"?")
refused("t-html 1.0 failed", "apt-get update", fetch())
check("no bad .deb is kept", not kept.exists(), done)
(server / deb_of("t-html").name).unlink()
(work / "indexed" / deb_of("t-html").name).unlink()
for folder in ("server", "indexed"):
    build("t-html", {doc + "t-html/page.html": html(1, 2, 4)}, version="2.0", folder=work / folder)
done = fetch()
check("a newer version", done.returncode == 0 and "t-html: 1.0 is not there, 2.0 is taken" in done.stdout
      and manifest(got)["as_listed"] is False, done)
(work / "names.list").write_text("t-nothing\n")
refused("apt knows none of the 1 packages", "apt-get update", fetch())

# The list of the project: in order, with the hash of its text, and of this version of the script.
lines = [line.split() for line in (ROOT / "tools" / "debian_text.list").read_text().splitlines() if not line.startswith("#")]
head = dict(field.split("=", 1) for field in lines[0][1:])
version = re.search(r"^VERSION = (\d+)", (ROOT / "tools" / "debian_text" / "main.py").read_text(), re.M)[1]
check("the project's list", lines[0][0] == "@text" and re.fullmatch("[0-9a-f]{64}", head["sha256"]) and head["script"] == version
      and lines[1:] == sorted(lines[1:]) and all(len(line) == 4 for line in lines[1:]), done)

print("\n".join(failures) or "get_debian_text: ok")
sys.exit(1 if failures else 0)
