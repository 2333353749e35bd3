"""The list of packages, what apt serves of it, and the .deb files."""
import hashlib
import os
import re
import shutil
import subprocess
import time


class Failure(Exception):
    """An error that is shown as one line `error:` and one line `hint:`."""

    def __init__(self, error, hint):
        super().__init__(error)
        self.hint = hint


class Package:
    def __init__(self, name, version="", sha256="", size=0):
        self.name, self.version, self.sha256, self.size = name, version, sha256, size
        self.listed = (version, sha256)
        self.deb = None       # path of the file
        self.note = ""        # how it differs from the list


def read_list(path):
    """([Package], {"sha256", "version", ...} of the text that the list stands for, or {})."""
    packages, text = {}, {}
    try:
        lines = open(path, encoding="utf-8").read().split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise Failure(f"{path}: {getattr(e, 'strerror', None) or e}", "give a list of packages, one per line")
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if fields[0] == "@text":
            text = dict(field.split("=", 1) for field in fields[1:] if "=" in field)
            continue
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", fields[0]) or len(fields) > 4 or \
                len(fields) > 2 and not re.fullmatch(r"[0-9a-f]{64}", fields[2]) or len(fields) > 3 and not fields[3].isdigit():
            raise Failure(f"{path}:{number}: {line.strip()!r} is not a line of a list",
                          "write: name [version [sha256 [bytes]]]")
        if fields[0] in packages:
            raise Failure(f"{path}:{number}: {fields[0]} is listed twice", "remove one of the lines")
        packages[fields[0]] = Package(fields[0], *fields[1:3], *[int(x) for x in fields[3:4]])
    if not packages:
        raise Failure(f"{path} lists no package", "write one name per line")
    return [packages[name] for name in sorted(packages)], text


def write_list(path, packages, text):
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write("# Packages of tools/get_debian_text.sh: name, version, SHA-256 and bytes of the .deb. The line @text has the\n"
                  "# SHA-256 of the text that they give, in the order of the files, and by what it was made.\n")
        out.write("@text " + " ".join(f"{key}={value}" for key, value in text.items()) + "\n")
        for p in packages:
            out.write(f"{p.name} {p.version} {p.sha256} {p.size}\n")
    os.replace(path + ".part", path)


def hash_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stanzas(text):
    for part in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): ?(.*)$", part, re.M))
        if "Package" in fields:
            yield fields


def ask_apt(packages):
    """Sets version, sha256 and size of what apt serves: the listed file if it can, else the present one.
    Returns the packages that it serves at all."""
    for tool in ("apt-get", "apt-cache"):
        if shutil.which(tool) is None:
            raise Failure(f"{tool} is not installed", "run it on Debian, or give a folder of .deb files with --debs DIR")
    environment = {**os.environ, "LC_ALL": "C"}
    names = [p.name for p in packages]

    def show(option):
        return subprocess.run(["apt-cache", "show", option, *names], capture_output=True, text=True, env=environment).stdout

    served, present = {}, {}
    for fields in stanzas(show("--all-versions")):
        if "SHA256" in fields:
            served.setdefault((fields["Package"], fields["SHA256"]), fields)
    for fields in stanzas(show("--no-all-versions")):
        if "SHA256" in fields:
            present.setdefault(fields["Package"], fields)
    if not present:
        raise Failure(f"apt knows none of the {len(names)} packages", "apt-get update")
    found = []
    for p in packages:
        fields = served.get((p.name, p.listed[1])) or present.get(p.name)
        if fields is None:
            p.note = "is not served: left out"
            continue
        p.version, p.sha256, p.size = fields["Version"], fields["SHA256"], int(fields["Size"])
        compare_with_list(p)
        found.append(p)
    return found


def compare_with_list(p):
    version, sha256 = p.listed
    if not sha256:
        p.note = "has no hash in the list"
    elif sha256 != p.sha256:
        p.note = f"{version} is not there, {p.version} is taken" if version != p.version else "is another file than the listed one"


def from_folder(packages, folder):
    """Takes the .deb files of a folder. Returns them; one that is missing is an error."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".deb"))
    except OSError as e:
        raise Failure(f"{folder}: {e.strerror}", "give a folder of .deb files")
    wanted = {p.name: p for p in packages}
    for name in names:
        p = wanted.get(name.split("_")[0])
        if p is None:
            continue
        path = os.path.join(folder, name)
        sha256 = hash_of(path)
        if p.deb is not None and sha256 != p.listed[1]:
            continue  # the listed file is preferred, else the first by name
        p.deb, p.sha256, p.size = path, sha256, os.path.getsize(path)
        field = subprocess.run(["dpkg-deb", "-f", path, "Version"], capture_output=True, text=True)
        if field.returncode:
            raise Failure(f"{path} is damaged: {field.stderr.strip().splitlines()[0]}", "remove it and download it again")
        p.version = field.stdout.strip()
        compare_with_list(p)
    missing = [p.name for p in packages if p.deb is None]
    if missing:
        raise Failure(f"{folder} lacks {len(missing)} of {len(packages)} packages, the first: {missing[0]}",
                      "download them there (apt-get download), or list the others in a file for --packages")
    return packages


def file_in(folder, p):
    return os.path.join(folder, f"{p.name}_{p.sha256[:16]}.deb")


def present_in(folder, p):
    path = file_in(folder, p)
    return os.path.exists(path) and os.path.getsize(path) == p.size


def download(packages, folder, say):
    """Downloads what is missing, in batches; a file gets its final name when its hash agrees."""
    os.makedirs(folder, exist_ok=True)
    for p in packages:
        p.deb = file_in(folder, p)
        if os.path.exists(p.deb) and hash_of(p.deb) != p.sha256:
            say(f"{p.name}: {p.deb} is damaged, it is downloaded again")
            os.remove(p.deb)
    missing = [p for p in packages if not os.path.exists(p.deb)]
    total, done, began = sum(p.size for p in missing), 0, time.monotonic()
    partial = os.path.join(folder, "partial")
    for at in range(0, len(missing), 8):
        batch = missing[at:at + 8]
        os.makedirs(partial, exist_ok=True)
        said = subprocess.run(["apt-get", "download", "-q", *[f"{p.name}={p.version}" for p in batch]], cwd=partial,
                              capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        errors = [line[3:] for line in said.stderr.split("\n") if line.startswith("E: ")]
        files = {hash_of(os.path.join(partial, name)): os.path.join(partial, name)
                 for name in sorted(os.listdir(partial)) if name.endswith(".deb")}
        for p in batch:
            if p.sha256 in files:
                os.replace(files[p.sha256], p.deb)
        shutil.rmtree(partial)
        failed = [p for p in batch if p.sha256 not in files]
        if failed:
            reason = errors[0] if errors else "the file that came has another SHA-256"
            raise Failure(f"the download of {failed[0].name} {failed[0].version} failed: {reason}",
                          "apt-get update, then run the same command again: it resumes where it stopped")
        done += sum(p.size for p in batch)
        left = (time.monotonic() - began) * (total - done) / done
        say(f"download: {at + len(batch)} of {len(missing)} packages, {done / 1e6:.0f} of {total / 1e6:.0f} MB, "
            f"{left:.0f} s left")
