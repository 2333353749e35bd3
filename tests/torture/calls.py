"""The calls to the system that an undisturbed command makes in its folder and in what all commands read: what a strike
is drawn from."""
import dataclasses
import re
import subprocess
import time

import children
import scenes
from left import left_in

# How each call fails. Those that change something; `short` and EINTR are no errors.
CHANGES = {"write": ("ENOSPC", "EIO", "short", "full"), "fsync": ("EIO", "ENOSPC"), "rename": ("EIO", "ENOSPC", "EACCES"),
           "open": ("ENOSPC", "EACCES", "EMFILE", "EIO"), "truncate": ("EIO", "ENOSPC"), "mkdir": ("ENOSPC", "EACCES"),
           "link": ("EIO", "EMFILE"), "remove": ("EIO", "EACCES")}
READS = {"read": ("EIO", "short", "EINTR"), "open-read": ("EIO", "EACCES", "EMFILE"), "list": ("EIO", "EACCES")}
NO_ERROR = ("short", "EINTR")
SHARED = "../shared/"  # of a case's folder


@dataclasses.dataclass
class Undisturbed:
    """seconds it took; calls: {(call, path with 0 for numbers): how many}; left: left_in()."""
    seconds: float
    calls: dict
    left: dict


def pattern_of(path):
    return re.sub(r"[0-9]+", "*", path)


def full_pattern(here, path):
    """Of the files that this path in calls stands for, in the case's folder `here`."""
    if path.startswith(SHARED):
        return f"{here.parent}/{pattern_of(path[len('../'):])}"
    return f"{here}/{pattern_of(path)}"


def recorded(record, here):
    """The lines of the preloaded library, counted. Of what is shared only the reads."""
    calls = {}
    for line in record.read_text().splitlines():
        call, path = line.split(" ", 1)
        if path.startswith(f"{here}/"):
            name = path[len(str(here)) + 1:]
        elif path.startswith(f"{here.parent}/shared/") and call in READS:
            name = "../" + path[len(str(here.parent)) + 1:]
        else:
            continue
        key = (call, re.sub(r"[0-9]+", "0", name))
        calls[key] = calls.get(key, 0) + 1
    return calls


def undisturbed(scene, place, library):
    """Runs the scene's command without a strike: first its calls are listed, then it is timed. Raises ValueError."""
    here, shared = place / f"whole-{scene.name}", place / "shared"
    record = place / f"calls-{scene.name}"
    seconds = 0.0
    for extra in ({"ASSAY_FAULTS_RECORD": str(record), "LD_PRELOAD": str(library)}, {}):
        scene.fresh(here, shared)
        began = time.monotonic()
        with scene.output_in(here) as output:
            done = children.run(scene.command(here, shared), stdout=output, stderr=subprocess.PIPE, text=True,
                                env=scenes.environment(shared) | extra)
        seconds = time.monotonic() - began
        if done.returncode != 0:
            raise ValueError(f"{scene.name}, undisturbed: exit {done.returncode}: {last_error(done.stderr)}")
    return Undisturbed(seconds, recorded(record, here), left_in(here))


def last_error(said):
    return next((line for line in reversed(said.splitlines()) if line.startswith("error:")), said[-200:])
