"""The cores that this process may use, as base/cores.h counts them: those that it is bound to, or fewer where a cgroup
limits its CPU time."""
import math
import os
import pathlib


def quota(folder, version):
    """The CPU time of a cgroup as a number of cores, or None."""
    try:
        if version == 2:
            words = (folder / "cpu.max").read_text().split()
        else:
            words = [(folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")]
    except OSError:
        return None
    return math.ceil(int(words[0]) / int(words[1])) if words[0].isdigit() and int(words[0]) > 0 else None


def quotas():
    """Of the process's cgroup and those above it, as far as the mounts show them."""
    cgroups = [line.split(":", 2)[1:] for line in open("/proc/self/cgroup").read().splitlines()]
    for line in open("/proc/self/mountinfo"):
        fields, _, filesystem = line.rstrip("\n").partition(" - ")
        top, mounted = fields.split()[3:5]
        kind, options = filesystem.split()[0], filesystem.split()[-1].split(",")
        version = {"cgroup2": 2, "cgroup": 1}.get(kind)
        if version is None or (version == 1 and "cpu" not in options):
            continue
        own = next((name for list_, name in cgroups if (not list_ if version == 2 else "cpu" in list_.split(","))), "")
        above = "" if top == "/" else top
        below = own[len(above):] if own.startswith(above + "/") and "/.." not in own else ""
        folder = pathlib.Path(mounted + below)
        while True:
            yield quota(folder, version)
            if str(folder) == mounted or folder == folder.parent:
                break
            folder = folder.parent


def usable_cores():
    return min([len(os.sched_getaffinity(0)), *(cores for cores in quotas() if cores)])
