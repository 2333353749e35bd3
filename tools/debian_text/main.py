"""Makes text out of Debian packages. tools/get_debian_text.sh starts it."""
import argparse
import concurrent.futures
import ctypes
import errno
import gzip
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import packages as pk
from packages import Failure

SCRIPT = "tools/get_debian_text.sh"
VERSION = 1  # of the script: raised when the same packages give other text
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIST = os.path.join(os.path.dirname(HERE), "debian_text.list")

ABOUT = """Makes 143 MB of English text out of Debian packages: documentation, books, dictionaries, texts of
games. It needs no root: apt-get download fetches the .deb files (their hashes are checked), dpkg-deb unpacks them."""
MORE = """
DIR gets debian_text_NN.jsonl (one document per line, {"text": ..., "source": PACKAGE}, in an order drawn from the
texts), manifest.json (packages, versions, licences, hashes, totals) and, until you remove them, packages/ and
stripped/, with which a stopped command resumes. Left out: markup, listings, tables, indices, licences, what is not
English, and paragraphs that another document has too. The same .deb files give the same bytes, whatever the number of
processes. The list names the version and the SHA-256 of every .deb, and the SHA-256 of the text; another version of
a package is taken if that one is no longer served, and the manifest then says "as_listed": false.

Documents for validation are held out by `assay data prepare --val-share`. docs/data.md has the rest."""


def options():
    parser = argparse.ArgumentParser(prog="bash tools/get_debian_text.sh", description=ABOUT, epilog=MORE,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("-o", "--output", metavar="DIR", default=os.path.expanduser("data-cache/debian-text"),
                        help="folder of the text (default: %(default)s)")
    parser.add_argument("--packages", metavar="LIST", default=LIST, help="another list: name [version [sha256 [bytes]]] per line")
    parser.add_argument("--debs", metavar="DIR", help="take the .deb files from DIR (NAME_VERSION_ARCH.deb) and download nothing")
    parser.add_argument("--jobs", metavar="N", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: all cores)")
    parser.add_argument("--dry-run", action="store_true", help="only print the packages, their sizes and what is there already")
    parser.add_argument("--write-list", metavar="FILE", help="also write the list that stands for this text")
    parser.error = lambda message: refuse(Failure(message, "bash tools/get_debian_text.sh --help"))
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        raise Failure(f"--jobs {arguments.jobs}: at least 1 process is needed", "leave the option out to use all cores")
    return arguments


def refuse(failure):
    print(f"error: {failure}\nhint: {failure.hint}", file=sys.stderr)
    sys.exit(1)


def say(line):
    print(line, flush=True)


def library():
    from lxml import etree
    return "lxml " + ".".join(map(str, etree.LXML_VERSION[:3])) + ", libxml2 " + ".".join(map(str, etree.LIBXML_VERSION))


def code_hash():
    """Of the files that decide what is stripped: a package stripped by other code is stripped again."""
    digest = hashlib.sha256(library().encode())
    for name in ("strip.py", "markup.py", "formats.py", "prose.py"):
        with open(os.path.join(HERE, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends this process


def strip_to(deb, path):
    """In a process of its own. Returns an error or ""."""
    import strip
    try:
        documents, licence, counts = strip.strip_package(deb)
        section = subprocess.run(["dpkg-deb", "-f", deb, "Section"], capture_output=True, text=True).stdout.strip()
        with open(path + ".part", "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=3, mtime=0) as out:
                out.write(json.dumps({"licence": licence, "section": section, **counts}).encode() + b"\n")
                for paragraphs in documents:
                    out.write(json.dumps(paragraphs, ensure_ascii=False).encode() + b"\n")
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(path + ".part", path)
    except ValueError as e:
        return f"{deb} is damaged: {e}"
    except OSError as e:
        if os.path.exists(path + ".part"):
            os.remove(path + ".part")
        return f"{e.filename or path}: {e.strerror}"
    return ""


def read_stripped(path):
    """(facts, documents), or None if the file is damaged."""
    try:
        with gzip.open(path) as file:
            facts, *documents = [json.loads(line) for line in file]
            return facts, documents
    except (OSError, EOFError, ValueError, gzip.zlib.error):
        return None


def strip_all(chosen, folder, jobs):
    os.makedirs(folder, exist_ok=True)
    code = code_hash()
    for p in chosen:
        p.stripped = os.path.join(folder, f"{p.name}_{p.sha256[:16]}_{code}.gz")
    missing = [p for p in chosen if not os.path.exists(p.stripped)]
    if len(missing) < len(chosen):
        say(f"stripped already: {len(chosen) - len(missing)} of {len(chosen)} packages")
    if missing:
        say(f"stripping {len(missing)} packages with {jobs} processes, the largest first")
    missing.sort(key=lambda p: (-p.size, p.name))
    total, done, began = sum(p.size for p in missing), 0, time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(max_workers=jobs, initializer=die_with_parent) as pool:
        running = {pool.submit(strip_to, p.deb, p.stripped): p for p in missing}
        try:
            for number, future in enumerate(concurrent.futures.as_completed(running), 1):
                error = future.result()
                if error:
                    raise Failure(error, "remove it and run the same command again" if "is damaged" in error else
                                  "make room or choose another folder with -o DIR, then run the same command again: it resumes")
                done += running[future].size
                left = (time.monotonic() - began) * (total - done) / done
                say(f"stripped: {number} of {len(missing)} packages, {running[future].name}, {left:.0f} s left")
        except concurrent.futures.process.BrokenProcessPool:
            raise Failure("a process that stripped packages was ended",
                          "is there too little memory? Run the same command again with --jobs 1: it resumes") from None
        finally:
            if not all(future.done() for future in running):  # an error: what is running is not waited for
                for process in multiprocessing.active_children():
                    process.kill()


def merge_all(chosen, folder):
    import merge
    seen, rows, entries = merge.Duplicates(), [], []
    for number, p in enumerate(chosen):
        if number % 20 == 0:
            say(f"merging: {number} of {len(chosen)} packages")
        found = read_stripped(p.stripped)
        if found is None:
            os.remove(p.stripped)
            raise Failure(f"{p.stripped} was damaged, and is removed", "run the same command again: the package is stripped again")
        facts, documents = found
        texts, dropped = merge.without_duplicates(documents, seen)
        rows += [(text, p.name) for text in texts]
        entries.append({"package": p.name, "version": p.version, "section": facts["section"], "licence": facts["licence"],
                        "deb_sha256": p.sha256, "deb_bytes": p.size, "files_read": facts["files"],
                        "unreadable_files": facts["unreadable_files"], "documents": len(texts), "duplicate_documents": dropped,
                        "text_bytes": sum(len(t.encode()) for t in texts), "as_listed": not p.note})
    if not rows:
        raise Failure(f"the {len(chosen)} packages hold no English prose", "list other packages")
    files, sha256 = merge.write_files(rows, folder)
    say(f"left out: {seen.exact_paragraphs} paragraphs that are copies, {seen.near_paragraphs} that nearly are, "
        f"{sum(e['duplicate_documents'] for e in entries)} documents")
    return entries, files, sha256, {"copies": seen.exact_paragraphs, "near_copies": seen.near_paragraphs}


def require_own(folder):
    """A manifest that this script did not write stays, and so does the text beside it."""
    path = os.path.join(folder, "manifest.json")
    if not os.path.lexists(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("script") != SCRIPT:
        raise Failure(f"{path} is of another program, and the text has its own file of that name",
                      "choose another folder with -o DIR")


def finish(folder, files, manifest):
    """The old manifest goes first and the new one comes last: it is there only beside its text."""
    path = os.path.join(folder, "manifest.json")
    with open(path + ".part", "w", encoding="utf-8") as out:
        json.dump(manifest, out, indent=1, ensure_ascii=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    if os.path.exists(path):
        os.remove(path)
    names = [f["name"] for f in files]
    for name in os.listdir(folder):
        if re.fullmatch(r"debian_text_\d\d+\.jsonl", name) and name not in names:
            os.remove(os.path.join(folder, name))
    for name in names:
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
    os.replace(path + ".part", path)


def print_plan(chosen, cache):
    there = [p for p in chosen if p.deb is not None or pk.present_in(cache, p)]
    for p in chosen:
        state = "there" if p in there else f"{p.size / 1e6:.1f} MB"
        say(f"{p.name} {p.version}: {state}")
    size = sum(p.size for p in chosen if p not in there)
    say(f"{len(chosen)} packages, {sum(p.size for p in chosen) / 1e6:.0f} MB; {len(there)} are there, "
        f"{size / 1e6:.0f} MB would be downloaded")


def remove_parts(folder):
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(("debian_text_", "manifest.json")) and name.endswith(".part"):
            os.remove(os.path.join(folder, name))


def run():
    arguments = options()
    began = time.monotonic()
    if shutil.which("dpkg-deb") is None:
        raise Failure("dpkg-deb is not installed", "apt-get install dpkg")
    listed, text = pk.read_list(arguments.packages)
    folder, cache = arguments.output, os.path.join(arguments.output, "packages")
    chosen = pk.from_folder(listed, arguments.debs) if arguments.debs else pk.ask_apt(listed)
    for p in listed:
        if p.note and p.listed[1]:
            say(f"{p.name}: {p.note}")
    if arguments.dry_run:
        print_plan(chosen, cache)
        return
    require_own(folder)
    os.makedirs(os.path.join(folder, "stripped"), exist_ok=True)
    remove_parts(folder)
    if not arguments.debs:
        pk.download(chosen, cache, say)
    strip_all(chosen, os.path.join(folder, "stripped"), arguments.jobs)
    entries, files, sha256, duplicates = merge_all(chosen, folder)
    as_listed = not any(p.note for p in listed)
    if as_listed and text.get("sha256") and text["sha256"] != sha256:
        remove_parts(folder)
        raise Failure(f"the packages are as listed, but the text has the SHA-256 {sha256}, not {text['sha256']}",
                      f"the list is of script version {text.get('script')} with {text.get('library', '?').replace('_', ' ')}; "
                      f"this is version {VERSION} with {library()}")
    totals = {key: sum(f[key] for f in files) for key in ("documents", "bytes", "text_bytes")}
    finish(folder, files, {
        "script": SCRIPT, "script_version": VERSION, "library": library(), "as_listed": as_listed,
        "text_sha256": sha256, "totals": {"packages": len(entries), "deb_bytes": sum(p.size for p in chosen), **totals},
        "duplicate_paragraphs": duplicates, "left_out": [p.name for p in listed if p not in chosen],
        "files": files, "packages": entries})
    if arguments.write_list:
        pk.write_list(arguments.write_list, chosen, {"sha256": sha256, "bytes": totals["text_bytes"], "script": VERSION,
                                                     "library": library().replace(" ", "_")})
    say(f"{folder}: {totals['text_bytes'] / 1e6:.1f} MB of text in {totals['documents']} documents of {len(entries)} packages, "
        f"{time.monotonic() - began:.0f} s" + ("" if as_listed else "; not all as listed"))
    shards = os.path.abspath(folder) + "-shards"
    say(f"""next:
  build/assay tokenizer train {folder} --vocab-size 4096 -o {folder}/tokenizer.json
  build/assay data prepare {folder} --tokenizer {folder}/tokenizer.json --val-share 0.005 -o {shards}
  build/assay train models/presets/cpu/moe.yaml --set data.synth=null --set data.tokenizer={shards}/tokenizer.json \\
    --set "data.train=['{shards}/*_train_*.bin']" --set "data.val=['{shards}/*_val_*.bin']\"""")


def main():
    try:
        run()
    except Failure as e:
        refuse(e)
    except OSError as e:
        room = e.errno in (errno.ENOSPC, errno.EDQUOT)
        refuse(Failure(f"{e.filename or 'writing'}: {e.strerror}", "make room, then run the same command again: it resumes"
                       if room else "choose another folder with -o DIR"))
    except KeyboardInterrupt:
        refuse(Failure("interrupted", "run the same command again: it resumes where it stopped"))


if __name__ == "__main__":
    main()
