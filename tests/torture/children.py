"""The processes that a torture has started, each the first of a group of its own: a signal can end all of them."""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
import waiting

lock, running = threading.Lock(), set()
stopped = False


class Stopped(Exception):
    """A signal has ended the torture: nothing more is started, and what the processes did does not count."""


def processes_below(pid):
    found, todo = [], [pid]
    while todo:
        try:
            for task in pathlib.Path(f"/proc/{todo.pop()}/task").glob("*/children"):
                below = [int(child) for child in task.read_text().split()]
                found += below
                todo += below
        except OSError:
            pass
    return found


def kill_all_of(process, folder):
    """Kills a process, those below it, and those whose command names the folder: their names, without zombies."""
    ended = process.poll() is not None  # its number may be another process's by now
    found = set() if ended else {process.pid, *processes_below(process.pid)}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in path.read_bytes():
                found.add(int(path.parent.name))
    names = []
    for pid in found - {os.getpid()}:
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
            os.kill(pid, signal.SIGKILL)
            if state != "Z":
                names.append(name)
    return names


def start(command, **options):
    """As subprocess.Popen(); ended() must follow."""
    with lock:
        if stopped:
            raise Stopped
        process = subprocess.Popen(command, start_new_session=True, **options)
        running.add(process)
        return process


def ended(process):
    """After a process has ended. Raises Stopped if stop() may be why."""
    with lock:
        running.discard(process)
        if stopped:
            raise Stopped


def run(command, **options):
    """As subprocess.run()."""
    process = start(command, **options)
    out, error = process.communicate()
    ended(process)
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def stop():
    """Ends all of them, with those below them: ranks have groups of their own."""
    global stopped
    with lock:
        stopped = True
        for process in running:
            below = processes_below(process.pid)
            for end, pid in [(os.killpg, process.pid), *((os.kill, pid) for pid in below)]:
                with contextlib.suppress(ProcessLookupError):
                    end(pid, signal.SIGKILL)
            process.wait()


def at_once(jobs, work, items):
    """work() of each item, `jobs` at a time: the futures, all of them done. An exception in this thread, a signal's too,
    ends what they have started."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(work, item) for item in items]
        for _ in waiting.as_completed(futures):
            pass
        return futures
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
