#!/usr/bin/env python3
"""Ranks on two machines, which are network namespaces of this one with names of their own: mpirun starts a rank on each
over TCP. The run has the bits of one process, and a cable that is pulled names the rank behind it. Needs root and
`ip netns`; says so where it cannot run."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, assay, check, first_difference

# Names of this process: another may run the same test. The end of a cable, to-NAME, may have 15 characters.
HOSTS = [f"asya{os.getpid()}", f"asyb{os.getpid()}"]
HEAD, NET = f"asyh{os.getpid()}", "10.213.77"  # where mpirun is, and the network between the three, which is theirs alone
SETTINGS = ["--set", "run.micro_batch=2", "--set", "run.steps=40", "--set", "parallel.parts=2"]
# Starts a command on a host as mpirun's ssh does; the first argument is the host's address.
AGENT = f"""#!/bin/sh
case $1 in
  {NET}.2) host={HOSTS[0]} ;;
  {NET}.3) host={HOSTS[1]} ;;
esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""


def ip(*words, may_fail=False):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0 and not may_fail:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def remove_hosts():
    for name in (*HOSTS, HEAD):
        ip("netns", "del", name, may_fail=True)  # and with it its cables


def make_hosts():
    """A bridge at the head with a cable to each host."""
    for name in (HEAD, *HOSTS):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("-n", HEAD, "link", "add", "bridge", "type", "bridge")
    ip("-n", HEAD, "addr", "add", f"{NET}.1/24", "dev", "bridge")
    ip("-n", HEAD, "link", "set", "bridge", "up")
    for i, host in enumerate(HOSTS):
        ip("-n", HEAD, "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("-n", HEAD, "link", "set", f"to-{host}", "master", "bridge", "up")
        ip("-n", host, "addr", "add", f"{NET}.{i + 2}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")


def mpirun(place, name, *more):
    agent = place.path / "agent.sh"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    options = {"plm_rsh_agent": str(agent), "plm_rsh_no_tree_spawn": "1", "btl": "self,tcp",
               "btl_tcp_if_include": f"{NET}.0/24", "oob_tcp_if_include": f"{NET}.0/24"}
    words = ["ip", "netns", "exec", HEAD, "mpirun", "--allow-run-as-root", "-n", "2", "--bind-to", "none",
             "--host", f"{NET}.2:1,{NET}.3:1"]
    for key, value in options.items():
        words += ["--mca", key, value]
    return [*words, str(ASSAY), "train", str(place.config), "--run", str(place.run(name)), *more]


def check_bits(place):
    place.train("one", *SETTINGS)
    done = subprocess.run(mpirun(place, "hosts", *SETTINGS), capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    check(assay("checkpoint", "merge", place.run("hosts")).returncode == 0, "merge")
    difference = first_difference(place.run("one"), place.run("hosts"))
    check(difference is None, f"two hosts: {difference}")
    last = (place.run("hosts") / "ranks" / "last.txt").read_text()
    check(all(host in last for host in HOSTS), f"ranks are on both hosts: {last}")
    meta = json.loads((place.run("hosts") / "meta.json").read_text())
    check((meta["ranks"], meta["nodes"]) == (2, 2), f"{meta['ranks']} ranks on {meta['nodes']} machines")


def check_pulled_cable(place):
    """The second host's cable is pulled in the middle of a run: the first names its rank within silence_s and a bit."""
    silence = 4
    command = mpirun(place, "pulled", *SETTINGS, "--set", "run.steps=100000", "--set", f"parallel.silence_s={silence}",
                     "--set", "run.checkpoint_every=50")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, bufsize=1)
    said, pulled, named = [], None, None
    try:
        for line in process.stderr:
            said.append(line)
            if pulled is None and line.startswith("step 60/"):
                ip("-n", HEAD, "link", "set", f"to-{HOSTS[1]}", "down")
                pulled = time.monotonic()
            if pulled and "has said nothing" in line:
                named = time.monotonic() - pulled
                break
        ip("-n", HEAD, "link", "set", f"to-{HOSTS[1]}", "up")
        process.wait(timeout=60)
    finally:
        process.kill()
        subprocess.run(["pkill", "-KILL", "-f", str(place.run("pulled"))])
    text = "".join(said[-20:])
    check(named is not None, f"nobody was named:\n{text}")
    check(re.search(rf"error: rank 1 \({HOSTS[1]}, pid \d+\) has said nothing for \d+ s; its last word: step \d+", text), text)
    check(named < silence + 3, f"named after {named:.1f} s")
    print(f"a pulled cable was named after {named:.1f} s (silence_s {silence})")


def main():
    try:
        make_hosts()
    except (OSError, FileNotFoundError) as error:
        print(f"not run: ranks on two hosts ({error})")
        remove_hosts()
        return
    try:
        with Workplace(moe=True) as place:
            check_bits(place)
            check_pulled_cable(place)
    finally:
        remove_hosts()
    print("ranks on two hosts: ok")


main()
