#!/usr/bin/env python3
"""nccl_check where NCCL cannot be opened, which it finds before it needs a GPU: 77 if the machine has none, 1 if the
environment names one. Usage: test_nccl_check.py PROGRAM"""
import os
import pathlib
import subprocess
import sys
import tempfile

# dlopen of a machine without NCCL.
ABSENT = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void* dlopen(const char* name, int mode) {
  void* (*real)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  return real(name && strstr(name, "libnccl") ? "libnccl-is-not-here.so" : name, mode);
}
"""
failures = []
with tempfile.TemporaryDirectory(prefix="assay-nccl-check-") as folder:
    source, library = pathlib.Path(folder) / "absent.c", pathlib.Path(folder) / "absent.so"
    source.write_text(ABSENT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    plain = {k: v for k, v in os.environ.items() if k != "ASSAY_NCCL_LIBRARY"}
    nowhere = f"{folder}/libmine.so"
    for environment, code, name in (({"LD_PRELOAD": str(library)}, 77, "libnccl.so.2"), ({"ASSAY_NCCL_LIBRARY": nowhere}, 1, nowhere)):
        for ranks in ("1", "3"):
            done = subprocess.run([sys.argv[1], ranks], env={**plain, **environment}, capture_output=True, text=True)
            lines = done.stderr.splitlines()
            if not (done.returncode == code and lines[0].startswith("error: rank ") and
                    f": NCCL cannot be used: {name} cannot be loaded (" in lines[0] and
                    lines[1] == "hint: install NCCL 2.27 or later, or name its file in ASSAY_NCCL_LIBRARY"):
                failures.append(f"{ranks} ranks, {environment}: exit {done.returncode}, not {code}\n{done.stderr}")
print("\n".join(failures) if failures else "nccl_check: ok")
sys.exit(1 if failures else 0)
