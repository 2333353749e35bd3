#!/usr/bin/env python3
"""Installs the build into an empty prefix, builds examples/ against it in an empty folder, and runs each.

usage: test_examples.py SOURCE BUILD CXX"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

source, build, compiler = map(pathlib.Path, sys.argv[1:4])


def run(*command, expect=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != expect:
        sys.exit(f"FAILED: {' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_scripts(place, prefix, home):
    """The installed scripts for data: what hints and presets say of them, and where they put what they make."""
    tools = prefix / "share" / "assay" / "tools"
    environment = dict(os.environ, HOME=str(home))
    # Presets keep their corpora in ~/.cache/assay: without HOME too, what needs none can be looked at.
    run(prefix / "bin" / "assay", "match", "--like", "models/presets/cpu/moe.yaml", cwd=place / "empty",
        env={name: value for name, value in environment.items() if name != "HOME"})

    def user(*command, **options):
        return run(*command, cwd=place / "empty", env=environment, **options)

    text = user(prefix / "bin" / "assay", "train", "models/presets/speedrun/moe-64.yaml", "--run", "run", expect=1)
    check(f"hint: bash {tools}/get_fineweb.sh --steps N" in text, text)
    text = user(prefix / "bin" / "assay", "train", "models/presets/family/mini.yaml", "--run", "run", expect=1)
    check(f"hint: bash {tools}/get_debian_text.sh; bash {tools}/text_corpus.sh ~/.cache/assay/debian-text "
          "~/.cache/assay/debian-corpus " in text, text)
    text = user(prefix / "bin" / "assay", "train", "models/presets/super/cpu/baseline.yaml", "--run", "run", expect=1)
    check(f"hint: bash {tools}/text_corpus.sh FILE ~/.cache/assay/super-text makes it" in text, text)
    # So do the plan, ranks, and the help.
    text = user(prefix / "bin" / "assay", "train", "models/presets/family/mini.yaml", "--run", "run", "--plan")
    check(f"(bash {tools}/get_debian_text.sh; bash {tools}/text_corpus.sh " in text, text)
    if (prefix / "lib" / "assay" / "libassay_mpi.so").exists():
        text = user(prefix / "bin" / "assay", "train", "models/presets/family/mini.yaml", "--run", "run", "--ranks", "2", "--set",
                    "run.micro_batch=8", expect=1)
        check(f"hint: bash {tools}/get_debian_text.sh; bash {tools}/text_corpus.sh " in text, text)
    text = user(prefix / "bin" / "assay", "report", "--help")
    check(f"bash {tools}/get_anchor_log.sh fetches one" in " ".join(text.split()), text)
    page = (prefix / "share/man/man1/assay.1").read_text()
    scripts = set(re.findall(r"bash (\S*?\.sh)", page.replace("\\-", "-")))
    check(scripts and all(word.startswith(f"{tools}/") and pathlib.Path(word).exists() for word in scripts), scripts)
    # Documents: what the man page, the help, hints, scripts and presets name is there.
    documents = prefix / "share" / "doc" / "assay"
    check(not list(documents.glob("**/*.py")) and (documents / "images" / "balancing.png").exists(), "images and their scripts")
    texts = [page.replace("\\-", "-")] + [file.read_text() for folder in ("share/assay/presets", "share/assay/tools")
                                         for file in (prefix / folder).glob("**/*.*")]
    for command in ("audit", "router", "published", "early-warning", "train", "map"):
        texts.append(user(prefix / "bin" / "assay", command, "--help"))
    for text in texts:
        check(not re.search(r"(^|[ (])docs/\S*\.md|build/assay ", text, re.M), text)
    pages = {word for text in texts for word in re.findall(r"[^\s(]*/share/doc/assay/\S*?\.md", text)}
    check(len(pages) > 20 and all(word.startswith(f"{documents}/") and pathlib.Path(word).exists() for word in pages), pages)
    # A pattern of presets, which the shell leaves as it is.
    names = sorted(file.stem for file in prefix.glob("share/assay/presets/cpu/*.yaml"))
    text = user(prefix / "bin" / "assay", "audit", "models/presets/cpu/*.yaml")
    check(len(names) > 1 and all(name in text for name in names), text)
    # The files of the current folder go before those that were installed.
    here = place / "here" / "models" / "presets" / "cpu"
    here.mkdir(parents=True)
    preset = (prefix / "share/assay/presets/cpu/moe.yaml").read_text()
    (here / "mine.yaml").write_text(preset.replace("../family", str(prefix / "share/assay/presets/family")))
    text = run(prefix / "bin" / "assay", "audit", "models/presets/cpu/*.yaml", cwd=place / "here", env=environment)
    check("mine" in text and "dense-active" not in text, text)
    comments = [file.read_text() for file in prefix.glob("share/assay/presets/**/*.yaml")]
    named = {word for text in comments for word in re.findall(r"bash (\S*?\.sh)", text)}
    check(len(named) == 4 and all(word.startswith(f"{tools}/") and pathlib.Path(word).exists() for word in named), named)
    for script in ("get_anchor_log", "get_core", "get_fineweb", "get_gpt2", "text_corpus", "get_debian_text"):
        check(f"usage: bash {tools}/{script}.sh" in user("bash", tools / f"{script}.sh", "--help"), script)
    if shutil.which("curl") is None:
        print("not run: where an installed script puts its files, curl is not installed")
    else:
        text = user("bash", tools / "get_fineweb.sh", "--dry-run")
        check(f"{home}/.cache/assay/fineweb10B has 0 of 2 files" in text, text)
    lines = (f"The cat saw {i * i % 977} trees and {i} birds.\n" for i in range(9000))
    (place / "empty" / "text.txt").write_text("".join(lines))
    user("bash", tools / "text_corpus.sh", "text.txt", place / "corpus")
    check((place / "corpus" / "manifest.json").exists(), "the installed text_corpus.sh made no corpus")


def check_ranks(place, prefix):
    """A program of one's own with ranks finds the library of MPI in the prefix."""
    if not (prefix / "lib" / "assay" / "libassay_mpi.so").exists() or shutil.which("mpirun") is None:
        print("not run: ranks of a project that uses an installed Assay, there is no MPI")
        return
    project = place / "ranks"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.25)
project(ranks LANGUAGES C CXX)
find_package(assay REQUIRED)
add_executable(joins joins.cpp)
target_link_libraries(joins PRIVATE assay::assay)
""")
    (project / "joins.cpp").write_text("""#include <cstdio>

#include "base/check.h"
#include "comm/launch.h"

int main() {
  try {
    const auto world = assay::join_world();
    std::printf("rank %d of %d\\n", world->rank(), world->size());
  } catch (const assay::UserError& error) {
    std::printf("error: %s\\nhint: %s\\n", error.what(), error.hint().c_str());
    return 1;
  }
}
""")
    run("cmake", "-S", project, "-B", place / "joins", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
    run("cmake", "--build", place / "joins")
    text = run("bash", source / "tests/comm/run_ranks.sh", "2", place / "joins/joins")
    check(sorted(re.findall(r"^rank \d of 2$", text, re.M)) == ["rank 0 of 2", "rank 1 of 2"], text)
    # Where that folder is gone, the hint names the variable.
    library = prefix / "lib/assay/libassay_mpi.so"
    library.rename(place / "libassay_mpi.so")
    text = run(place / "joins/joins", expect=1)
    check("there is no libassay_mpi.so in" in text and "name the file in ASSAY_MPI_LIBRARY" in text, text)
    text = run(place / "joins/joins", env={**os.environ, "ASSAY_MPI_LIBRARY": str(place / "libassay_mpi.so")})
    check("rank 0 of 1" in text, text)
    (place / "libassay_mpi.so").rename(library)


def check_search(place, prefix):
    """find_package in a project that can do without, or not, where one of Assay's libraries is absent; its options."""
    project = place / "search"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.25)
project(search LANGUAGES C CXX)
set(ZLIB_FOUND mine)
set(CMAKE_CXX_STANDARD ${standard})
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(assay ${how})
message(STATUS "found ${assay_FOUND}, zlib ${ZLIB_FOUND}: ${assay_NOT_FOUND_MESSAGE}")
if(assay_FOUND)
  add_library(other OBJECT other.c other.cpp)
  target_link_libraries(other PRIVATE assay::assay)
  if(cuda)
    enable_language(CUDA)
    target_sources(other PRIVATE kernel.cu)
  endif()
endif()
""")
    (project / "other.c").write_text("int other;\n")
    (project / "other.cpp").write_text('#include "session/training_run.h"\nint another;\n')
    (project / "kernel.cu").write_text("__global__ void kernel() {}\n")

    def search(name, how, *settings, expect=0, **environment):
        return run("cmake", "-S", project, "-B", place / name, f"-Dhow={how}", "-Dstandard=17", f"-DCMAKE_PREFIX_PATH={prefix}",
                   f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *settings, expect=expect,
                   env={**os.environ, **environment})

    def commands_of(name):
        return {entry["file"].rsplit("/", 1)[1]: entry["command"]
                for entry in json.loads((place / name / "compile_commands.json").read_text())}

    nothing = {"PKG_CONFIG_LIBDIR": str(project), "PKG_CONFIG_PATH": ""}
    text = search("without", "QUIET", **nothing)
    why = "assay needs libpcre2-8, which pkg-config does not find"
    check(f"found 0, zlib mine: {why}" in text, text)
    text = search("required", "REQUIRED", expect=1, **nothing)
    check(why in " ".join(text.split()), text)
    text = search("with", "QUIET")
    check("found 1, zlib mine" in text, text)
    commands = commands_of("with")
    check("-std=c++20" in commands["other.cpp"] and "-std=" not in commands["other.c"], commands)
    check("-std=c++17" not in commands["other.cpp"], commands)  # the project's own, which Assay's headers are too new for
    run("cmake", "--build", place / "with")
    search("newer", "QUIET", "-Dstandard=23")
    check(re.search(r"-std=c\+\+2[3b]", commands_of("newer")["other.cpp"]), commands_of("newer"))
    # nvcc stops at options of the host's compiler.
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("not run: sources in CUDA of a project that uses an installed Assay, nvcc is not installed")
        return
    search("cuda", "QUIET", "-Dcuda=ON", "-Dstandard=", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_CUDA_ARCHITECTURES=90")
    commands = commands_of("cuda")
    check(not re.search(r" -(m|W)", commands["kernel.cu"]) and " -Wno-psabi" in commands["other.cpp"], commands)


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="assay-install-"))
    try:
        prefix, examples = place / "prefix", place / "build"
        run("cmake", "--install", build, "--prefix", "prefix", cwd=place)  # a relative one
        for file in ("bin/assay", "include/assay/session/training_run.h", "share/assay/presets/cpu/moe.yaml",
                     "share/man/man1/assay.1", "share/bash-completion/completions/assay", "share/zsh/site-functions/_assay"):
            check((prefix / file).exists(), f"{file} is not installed")
        check(not list(prefix.glob("include/**/gpu_timer.h")), "a header is installed whose library is not")
        # The installed program finds presets where no checkout is, and their corpus is the user's.
        (place / "empty").mkdir()
        home = place / "home"
        run(prefix / "bin" / "assay", "data", "synth", "models/presets/tiny/moe.yaml", "--set", "data.synth.train_tokens=20000",
            "--set", "data.synth.val_tokens=5000", "--set", "data.synth.vocab_size=300", cwd=place / "empty",
            env=dict(os.environ, HOME=str(home)))
        check(len(list(home.glob(".cache/assay/*/tokenizer.json"))) == 1, f"no corpus in {home}/.cache/assay")
        presets = {file.name: file.read_text() for file in prefix.glob("share/assay/presets/**/*.yaml")}
        check(presets and not any("../data-cache" in text for text in presets.values()), "../data-cache in an installed preset")
        run(prefix / "bin" / "assay", "matrix", "models/presets/posts/tiny.yaml", "--dry-run", cwd=place / "empty",
            env=dict(os.environ, HOME=str(home)))
        check_scripts(place, prefix, home)
        shutil.copytree(source / "examples", place / "examples")  # nothing of the checkout is beside them
        text = run("cmake", "-S", place / "examples", "-B", examples, f"-DCMAKE_PREFIX_PATH={prefix}",
                   f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release")
        check(f"presets of models: {prefix}/share/assay/presets" in text, text)
        run("cmake", "--build", examples, "--parallel", "2")

        check_search(place, prefix)
        check_ranks(place, prefix)

        text = run(examples / "op_forward_backward")
        check("largest difference" in text, text)

        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        text = run(examples / "train_tiny", place / "run", cwd=place, env=environment)
        losses = [float(x) for x in re.findall(r"^step \d+: loss ([0-9.]+) nats", text, re.M)]
        check(len(losses) == 3 and losses[-1] < losses[0] - 0.1, text)
        check("steps after 30 steps: validation loss" in text, text)
        check((place / "run" / "receipt.json").exists(), "no receipt")
        again = run(examples / "train_tiny", place / "run", cwd=place, env=environment)
        check("step 10: loss" not in again and "steps after 30 steps" in again, f"not resumed: {again}")

        text = run(examples / "read_telemetry", place / "run")
        check("validation loss" in text and len(re.findall(r"^layer \d", text, re.M)) == 2, text)
        check("hint:" in run(examples / "read_telemetry", place, expect=1), "no hint")
        run(prefix / "bin" / "assay", "receipt", "verify", place / "run", cwd=place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("examples: ok")


main()
