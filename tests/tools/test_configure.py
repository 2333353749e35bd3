#!/usr/bin/env python3
"""Configurations that cannot have what they were made for: an nvcc that does not work with the host's compiler, and Assay as
a subdirectory of another project. Nothing is built. Usage: test_configure.py CMAKE"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = sys.argv[1]


def configure(source, folder, *settings, code=0, **environment):
    without = ("CUDACXX", "CUDAFLAGS", "CUDAHOSTCXX")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run([CMAKE, "-S", source, "-B", folder, *settings], capture_output=True, text=True,
                          env={**kept, **environment})
    check((done.returncode != 0) == (code != 0), f"{settings}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return " ".join((done.stdout + done.stderr).split())


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def check_nvcc(place):
    """One that refuses the host's compiler, as an old toolkit does a new g++."""
    nvcc = place / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'unsupported GNU version! gcc versions later than 13 are not supported' >&2\nexit 1\n")
    nvcc.chmod(0o755)
    path = {"PATH": f"{nvcc.parent}:{os.environ['PATH']}"}
    kernels, why = "-DASSAY_KERNELS_ONLY=ON", f"nvcc at {nvcc} is not there or does not work with this host compiler"
    for _ in range(2):  # the second time it finds what the first left
        text = configure(ROOT, place / "auto", kernels, "-DASSAY_CUDA=AUTO", **path)
        check(f"CUDA: off, {why}" in text and "Generating done" in text, text)
    text = configure(ROOT, place / "on", kernels, "-DASSAY_CUDA=ON", code=1, **path)
    check(why in text and "CMAKE_CUDA_HOST_COMPILER" in text and "-DASSAY_CUDA=OFF" in text, text)


def check_subdirectory(place):
    """What FetchContent does."""
    project = place / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(around LANGUAGES C CXX)\n"
                                            f"add_subdirectory({ROOT} assay)\n")
    text = configure(project, place / "around", "-DASSAY_CUDA=OFF", code=1)
    check("Assay cannot be a subdirectory" in text and "find_package(assay)" in text, text)


def main():
    with tempfile.TemporaryDirectory(prefix="assay-configure-") as folder:
        place = pathlib.Path(folder)
        check_nvcc(place)
        check_subdirectory(place)
    print("configurations: ok")


if __name__ == "__main__":
    main()
