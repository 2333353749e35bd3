#!/usr/bin/env python3
"""Checks that each layer includes only the layers that ALLOWED lists, that base, cuda, comm, ops and machine
include no third-party libraries, and the others those that docs/decisions/0001-*.md gives them. Prints one line
per violation and exits with 1.

usage: check_layers.py"""
import argparse
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "cuda": {"base"},
    "comm": {"base", "cuda"},
    "ops": {"base", "cuda"},
    "machine": {"base", "cuda", "ops"},
    "data": {"base", "cuda"},
    "engine": {"base", "cuda", "comm", "ops", "data"},
    "models": {"base", "cuda", "comm", "ops", "data", "engine"},
    "eval": {"base", "cuda", "comm", "ops", "data", "engine"},
    "interop": {"base", "cuda", "ops", "data", "engine", "models"},
    "lab": {"base", "cuda", "comm", "ops", "data", "engine", "models", "eval"},
    "session": {"base", "cuda", "comm", "ops", "machine", "data", "engine", "models", "eval", "lab"},
    "tools": {"base", "cuda", "comm", "ops", "machine", "data", "engine", "models", "eval", "interop", "lab", "session"},
    # Benches run the case lists of tests/ops.
    "bench": {"base", "cuda", "comm", "ops", "machine", "data", "engine", "models", "session", "tests"},
}
# Layers that may use only standard and system headers.
BARE_LAYERS = {"base", "cuda", "comm", "ops", "machine"}
MPI_FILES = {"comm/mpi_world.cpp"}
# Compiled where there is an nccl.h, all but these two.
NCCL_FILES = re.compile(r"comm/nccl_(?!absent|group\.h)\w+\.(h|cpp)")
# Where JSON is parsed: elsewhere data/json_text.h does it, which bounds the depth.
JSON_PARSERS = {"data/json_text.h", "data/documents.cpp", "engine/run/safetensors.cpp"}
THIRD_PARTY = re.compile(r"^(yaml-cpp|nlohmann|spdlog|fmt|CLI|sqlite3|openssl|pcre2|zlib|zstd|httplib|catch2|oneapi|dnnl|boost)")


# Every library is for engine and the layers above, but for these limits.
DATA_LIBRARIES = {"nlohmann", "openssl", "pcre2", "zlib", "zstd"}
LIBRARIES_OF_ONE_LAYER = {"boost": "lab"}


def library_refused(layer, header):
    """Why the layer may not include the header of a library; "" if it may."""
    library = THIRD_PARTY.match(header)
    if not library:
        return ""
    if layer in BARE_LAYERS:
        return f"{layer} may not use third-party libraries"
    if layer == "data" and library[1] not in DATA_LIBRARIES:
        return f"data may use {', '.join(sorted(DATA_LIBRARIES))} only"
    if layer != LIBRARIES_OF_ONE_LAYER.get(library[1], layer):
        return f"only {LIBRARIES_OF_ONE_LAYER[library[1]]} may use {library[1]}"
    return ""


def violations(root):
    for layer, allowed in ALLOWED.items():
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu"}:
                continue
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                angled = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
                if quoted:
                    target = quoted[1].split("/")[0]
                    if target != layer and target not in allowed:
                        yield f"{name}:{number}: {layer} may not include {quoted[1]}"
                if angled and angled[1] == "mpi.h" and name not in MPI_FILES:
                    yield f"{name}:{number}: only {', '.join(sorted(MPI_FILES))} may include <mpi.h>"
                if angled and angled[1] == "nccl.h" and not NCCL_FILES.fullmatch(name):
                    yield f"{name}:{number}: only comm/nccl_*.cpp may include <nccl.h>"
                if quoted and NCCL_FILES.fullmatch(quoted[1]) and not NCCL_FILES.fullmatch(name):
                    yield f"{name}:{number}: {quoted[1]} includes <nccl.h>; comm/nccl_group.h does not"
                if re.search(r"\b(ordered_)?[jJ]son::parse\(", line) and name not in JSON_PARSERS:
                    yield f"{name}:{number}: JSON is parsed by json_of() and others of data/json_text.h, bounded in depth"
                refused = library_refused(layer, angled[1]) if angled else ""
                if refused:
                    yield f"{name}:{number}: {refused}, includes <{angled[1]}>"


def main():
    argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]).parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
