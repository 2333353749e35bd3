#!/usr/bin/env python3
"""assay watch: the page in Chromium while a run trains, ends, is begun anew and disappears, and while
the server is away; the server's answers on a socket; the terminal's screen in a pty. --keep FOLDER
keeps screenshots there."""
import fcntl
import http.client
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from chromium import Browser
from harness import ASSAY, ROOT, Workplace, assay, rows
from refusals import is_refusal

failures = []
# Trains until it is stopped: hundreds of short steps per second.
ENDLESS = ["--set", "run.steps=1000000", "--set", "run.checkpoint_every=0", "--set", "eval.every=100", "--set", "run.threads=1",
           "--set", "model.hidden=32", "--set", "model.heads=1", "--set", "run.batch_tokens=512", "--set", "run.micro_batch=4"]
processes = []  # ended with the test


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def soon(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.03)
    return False


class Server:
    """assay watch, as a script starts it: its first line of stdout is the address. host: a pattern."""

    def __init__(self, *arguments, host=r"127\.0\.0\.1"):
        self.process = subprocess.Popen([str(ASSAY), "watch", *map(str, arguments)], cwd=ROOT, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(self.process)
        self.url = self.process.stdout.readline().strip()
        found = re.fullmatch(rf"http://{host}:(\d+)/", self.url)
        if not found:
            sys.exit(f"assay watch printed {self.url!r}: {self.process.stderr.read()}")
        self.port = int(found[1])

    def ask(self, method="GET", path="/data.json", headers=None, body=None, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def resident_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number=signal.SIGTERM):
        """(exit status, seconds until it ended, the rest of stdout)"""
        begun = time.monotonic()
        self.process.send_signal(number)
        rest, self.errors = self.process.communicate(timeout=30)
        return self.process.returncode, time.monotonic() - begun, rest


def train(w, name, *more):
    trainer = subprocess.Popen(w.command(name, *ENDLESS, *more), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.append(trainer)
    return trainer


def stop(trainer):
    trainer.send_signal(signal.SIGINT)
    trainer.wait(30)


def logged(w, name):
    try:
        return rows(w.run(name), "SELECT max(step) FROM scalar")[0][0] or 0
    except Exception:
        return 0


def check_answers(w):
    server = Server(w.run("first"), "--port", 0)
    answer, content = server.ask()
    data = json.loads(content)
    expect(answer.status == 200 and data["live"]["runs"][0]["state"] == "ended" and len(data["report"]["runs"]) == 1, content[:200])
    tag = answer.getheader("ETag")
    expect(answer.getheader("Cache-Control") == "no-store" and tag, answer.headers)
    same, nothing = server.ask(headers={"If-None-Match": tag})
    expect(same.status == 304 and nothing == b"", f"{same.status} for the same tag")
    packed, content = server.ask(headers={"Accept-Encoding": "gzip, br"})
    expect(packed.getheader("Content-Encoding") == "gzip" and content[:2] == b"\x1f\x8b", packed.headers)
    head, nothing = server.ask("HEAD", "/")
    expect(head.status == 200 and nothing == b"" and int(head.getheader("Content-Length")) > 10000, head.headers)
    for method, path, headers, body, wanted in (
            ("GET", "/config.yaml", {}, None, 404), ("GET", "/..%2f..%2fetc/passwd", {}, None, 404),
            ("GET", "/data.json?x=1", {}, None, 200), ("POST", "/data.json", {}, b"x" * 100000, 405), ("DELETE", "/", {}, None, 405),
            ("GET", "/", {"Host": "evil.example"}, None, 403), ("GET", "/data.json", {"Host": "localhost:1"}, None, 200)):
        try:
            answer, _ = server.ask(method, path, headers, body)
            expect(answer.status == wanted, f"{method} {path} {headers}: {answer.status}, not {wanted}")
            expect(answer.getheader("X-Content-Type-Options") == "nosniff", f"{method} {path}: {answer.headers}")
        except (BrokenPipeError, ConnectionResetError):
            expect(body, f"{method} {path}: no answer")  # the server does not wait for a body
    for junk in (b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000, b"GET " + b"/" * 100000):
        with socket.create_connection(("127.0.0.1", server.port)) as broken:
            try:
                broken.sendall(junk)
            except OSError:
                pass
    part, content = server.ask(headers={"Range": "bytes=0-9"})
    expect(part.status == 200 and json.loads(content)["live"], f"a range of the answer: {part.status}, {content[:40]}")
    deaf = socket.create_connection(("127.0.0.1", server.port))  # asks for the page, megabytes, and reads nothing
    deaf.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    expect(server.ask()[0].status == 200, "an answer beside idle connections")
    status, seconds, rest = server.end(signal.SIGINT)
    expect((status, rest) == (0, "") and seconds < 10, f"SIGINT with idle connections: exit {status} after {seconds:.1f} s, {rest!r}")
    for connection in [deaf, *idle]:
        connection.close()
    refused = assay("watch", w.run("first"), "--text", "--every", "1e300")
    expect(refused.returncode == 1 and "--every" in refused.stderr, f"--every 1e300: {refused.returncode} {refused.stderr}")


def is_refused(client, piece):
    """Whether the server no longer takes what the client sends."""
    try:
        client.sendall(piece)
        return False
    except OSError:
        return True


def check_large_requests(server):
    """A request has at most 32 KiB, whatever it consists of: the rest is neither read nor held."""
    before = server.resident_mb()
    first_line = b"GET / HTTP/1.1\r\n"
    for head, more in ((first_line, b"a:b\r\n"), (b"GET /", b"A"), (first_line + b"X: ", b"A")):
        with server.connect() as client:
            client.sendall(head)
            piece = more * (100_000 // len(more))
            expect(any(is_refused(client, piece) for _ in range(200)), f"20 MB of {more!r} were read")
    grown = server.resident_mb() - before
    expect(grown < 5, f"requests without an end took {grown:.1f} MB of memory")


def keep_busy(clients, act):
    """A thread that calls act(client) for each once a second until it is an OSError or b"": the server has closed it."""
    left = set(clients)

    def work():
        while left:
            for client in list(left):
                try:
                    if act(client) == b"":
                        left.discard(client)
                except OSError:
                    left.discard(client)
            time.sleep(1)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return left


def check_slow_clients(server):
    """As many clients as the server has threads keep nobody waiting for long: neither such as send their request
    slowly, nor such as take the page slowly."""
    slow = [server.connect() for _ in range(8)]
    for client in slow:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    left = keep_busy(slow, lambda client: client.sendall(b"a: b\r\n"))
    expect(server.ask(timeout=60)[0].status == 200, "an answer beside slow requests")
    expect(soon(lambda: not left), f"{len(left)} slow requests are never ended")

    slow = []
    for _ in range(8):
        slow.append(socket.socket())
        slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow[-1].connect(("127.0.0.1", server.port))
        slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    keep_busy(slow, lambda client: client.recv(4096))
    expect(server.ask(timeout=60)[0].status == 200, "an answer beside clients that take theirs slowly")
    for client in slow:
        client.close()


def check_crowd(server):
    """Of many idle connections the server holds 64, and it answers again."""
    own, crowd, most = server.open_files(), [], 0
    for _ in range(200):
        crowd.append(server.connect())
        most = max(most, server.open_files() - own)
    expect(most <= 70, f"{most} connections are held at a time")

    def is_answered():
        try:
            return server.ask()[0].status == 200
        except OSError:  # closed while the others wait
            return False

    expect(soon(is_answered), "no answer after a crowd of idle connections")
    for client in crowd:
        client.close()


def check_bounds(w):
    server = Server(w.run("first"), "--port", 0)
    for _ in range(16):  # each of its threads has answered
        server.ask()
    check_large_requests(server)
    check_slow_clients(server)
    check_crowd(server)
    status, _, rest = server.end()
    expect((status, rest) == (0, ""), f"after hostile clients: exit {status}, {rest!r}")


def check_own_names(w):
    """At every address the printed address has the machine's name, and the machine's names are answered to."""
    name = socket.gethostname()
    try:
        canonical = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        canonical = ""
    first = name.split(".")[0]
    shown = canonical if canonical.startswith(first + ".") else name
    server = Server(w.run("first"), "--port", 0, "--address", "0.0.0.0", "--allow-remote", host=re.escape(shown))
    for host in {name, first, canonical or name, f"{shown}:{server.port}", "127.0.0.1"}:
        expect(server.ask(headers={"Host": host})[0].status == 200, f"Host: {host}")
    expect(server.ask(headers={"Host": f"{first}.evil.example"})[0].status == 403, "another machine's name is answered to")
    server.end()
    expect(f"anyone who can reach {shown} can read" in server.errors, server.errors)


def check_ports(w):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = assay("watch", w.run("first"), "--port", port)
        expect(is_refusal(done, f"port {port} of 127.0.0.1 is in use"), f"port in use: {done}")
    first, second = Server(w.run("first")), Server(w.run("first"))  # the usual port is free for one at most
    expect(first.port != second.port, "two servers at one port")
    expect(first.end(signal.SIGHUP)[0] == 0 and second.end()[0] == 0, "exit status after SIGHUP, SIGTERM")


def state(browser):
    return browser.js("const box = document.querySelector('#live'); return box ? box.innerText : ''")


def page_step(browser):
    """The last step of the loss chart."""
    return browser.js("""const plot = document.querySelector('#chart-loss .plot');
        return plot && plot.data ? Math.max(0, ...plot.data.map((t) => Math.max(0, ...(t.customdata || []).flat()))) : 0""")


def picture(browser, keep, name):
    if keep:
        for width in (1280, 400):
            browser.size(width)
            time.sleep(0.5)
            browser.picture(keep / f"watch-{name}-{width}.png")
        browser.size(1280)


def check_page(w, keep):
    """A run begins, trains, is stopped, begun anew and deleted while the page is open."""
    server = Server(w.run("live"), w.run("first"), "--port", 0, "--every", 0.3, "--wait")
    with Browser(w.path) as browser:
        browser.driver.get(server.url)
        expect(soon(lambda: "live: not started yet" in state(browser)), f"before the run: {state(browser)!r}")
        trainer = train(w, "live")
        expect(soon(lambda: "live: training, step" in state(browser)), f"while it trains: {state(browser)!r}")
        expect(soon(lambda: page_step(browser) > 0), "no curve in the page")
        before = page_step(browser)
        expect(soon(lambda: page_step(browser) > before), f"the page stays at step {before}; telemetry is at {logged(w, 'live')}")
        picture(browser, keep, "training")
        stop(trainer)
        last = logged(w, "live")
        expect(soon(lambda: f"live: stopped, step {last:,} of 1,000,000" in state(browser) and "No run is training" in state(browser)),
               f"after its end at {last}: {state(browser)!r}")
        expect(f"{last:,} of 1,000,000 steps" in browser.one("#runs").text, f"the page's facts: {browser.one('#runs').text}")
        expect(not (w.run("live") / "telemetry.db-wal").exists(), "a WAL file is left")

        browser.js("window.served = window.fetch; window.fetch = async () => new Response('', {status: 500}); "
                   "document.dispatchEvent(new Event('visibilitychange'))")
        expect(soon(lambda: "assay watch answers with status 500: it could not read the runs. The page shows the data of " in state(browser)),
               f"a failing server: {state(browser)!r}")
        browser.js("window.fetch = window.served")
        port = server.port
        status, seconds, rest = server.end()
        expect((status, rest) == (0, "") and seconds < 10, f"SIGTERM with an open page: exit {status} after {seconds:.1f} s, {rest!r}")
        browser.js("document.dispatchEvent(new Event('visibilitychange'))")  # asks at once, not in half a minute
        expect(soon(lambda: "assay watch does not answer" in state(browser)), f"without a server: {state(browser)!r}")
        picture(browser, keep, "lost")
        trainer = train(w, "live", "--fresh")
        expect(soon(lambda: 0 < logged(w, "live") < last), "the run was not begun anew")
        server = Server(w.run("live"), w.run("first"), "--port", port, "--every", 0.3)
        expect(soon(lambda: "live: training" in state(browser) and "does not answer" not in state(browser)),
               f"with a server again: {state(browser)!r}")
        stop(trainer)
        shutil.rmtree(w.run("live"))
        browser.js("document.dispatchEvent(new Event('visibilitychange'))")
        expect(soon(lambda: "live: gone" in state(browser) and "first: finished" in state(browser)), f"deleted: {state(browser)!r}")
        expect(soon(lambda: 0 < page_step(browser) <= 60), f"the other run's curve: {page_step(browser)}")
        picture(browser, keep, "gone")
        complaints = [c for c in browser.complaints() if "ERR_CONNECTION_REFUSED" not in c]
        expect(complaints == [], f"console: {complaints}")
        expect(server.end()[0] == 0, "exit status")


def screen(command, size=(24, 80), until="", environment=None, signals=()):
    """What a command writes to a terminal until `until` appears in it; then the signals, and its exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **(environment or {})})
        os.environ.pop("NO_COLOR", None) if "NO_COLOR" not in (environment or {}) else None
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    written, pending, seen, end = b"", list(signals), 0, time.monotonic() + 60
    while time.monotonic() < end:
        whole = [f for f in written[seen:].split(b"\033[H")[1:] if b"\033[J" in f and until.encode() in f]
        if pending and whole:  # a frame that began after the last signal
            what, seen = pending.pop(0), len(written)
            if isinstance(what, tuple):  # a new size
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *what, 0, 0))
            else:
                os.kill(pid, what)
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                written += os.read(terminal, 65536)
            except OSError:  # the command has ended
                break
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return written.decode(), os.waitstatus_to_exitcode(status)


def check_text(w):
    watch = [str(ASSAY), "watch", str(w.run("first")), "--text"]
    text, status = screen([*watch, "--every", "0.2"], until="router:", signals=[(30, 100), signal.SIGINT])
    expect(status == 0, f"--text after Ctrl-C: exit {status}")
    # What is printed after the screen is left is no frame.
    frames = text.split("\033[?1049l")[0].split("\033[H")[1:]
    visible = [re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", frame).replace("\r", "").split("\n") for frame in frames]
    expect(visible and len(visible[0]) <= 24 and max(map(len, visible[0])) <= 80, f"first frame: {visible[:1]}")
    expect(any(80 < max(map(len, frame)) <= 100 for frame in visible[1:]), f"no frame of 100 columns: {len(visible)}")
    expect("\033[?1049h" in text and text.index("\033[?1049l") > text.rindex("\033[H") and "\033[?25h" in text, "the screen is not left")
    expect("\u28ff" > max(text) > "\u2800", "no Braille characters")
    plain, _ = screen([*watch, "--once"], environment={"NO_COLOR": "1"})
    expect("\033" not in plain and "router:" in plain, f"NO_COLOR: {plain!r}")
    ascii_only, _ = screen([*watch, "--once"], environment={"LC_ALL": "C"})
    expect(ascii_only.isascii() and "\033[" in ascii_only, f"LC_ALL=C: {ascii_only!r}")

    piped = assay(*watch[1:], env={**os.environ, "LC_ALL": "C.UTF-8"})
    lines = piped.stdout.splitlines()
    expect(piped.returncode == 0 and "\033" not in piped.stdout and len(lines) <= 24 and max(map(len, lines)) <= 80, piped.stdout)
    for part in ("first: finished, step 60 of 60", "training loss, nats", "router: ", "K*max_load", "val "):
        expect(part in piped.stdout, f"{part!r} is not in\n{piped.stdout}")
    (w.path / "damaged").mkdir()
    shutil.copy(w.run("first") / "config.yaml", w.path / "damaged")
    (w.path / "damaged" / "telemetry.db").write_bytes(b"x" * 5000)
    done = assay("watch", w.path / "damaged", "--text", "--once")
    expect(is_refusal(done), done)
    both = assay("watch", w.run("first"), w.path / "damaged", w.path / "later", "--text", "--once", "--wait")
    expect(both.returncode == 0 and "unreadable" in both.stdout and "not started" in both.stdout and "finished" in both.stdout, both.stdout)


def check_matrix(w):
    """The folder of a matrix stands for its runs, in their order, those that have not begun among them."""
    text = w.path / "two.yaml"
    text.write_text(f"name: two\nmodels: {{a: {w.config}, b: {{config: {w.config}, set: {{optimizer.lr: 0.002}}}}}}\n"
                    "contracts: [{kind: steps}]\nprecisions: [fp32]\nset: {run.steps: 20}\n")
    folder = w.path / "matrix"
    trained = assay("matrix", text, "--run-dir", folder, "--only", "b")
    expect(trained.returncode == 0, trained.stderr)
    shown = assay("watch", f"{folder}/", "--text", "--once").stdout
    expect(re.search(r"a\S+ +not started.*\n.*b\S+ +finished", shown), shown)
    served = Server(folder, "--port", "0")
    page = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    page.request("GET", "/data.json")
    runs = [run["path"] for run in json.loads(page.getresponse().read())["live"]["runs"]]
    expect(runs == [f"{folder}/{model}-steps-fp32-seed1" for model in "ab"], runs)
    page.request("GET", "/")
    expect(f"<title>Live: {folder}" in page.getresponse().read().decode(), "title")
    served.process.kill()


def writes(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def main():
    keep = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
    with Workplace(moe=True) as w:
        w.train("first")
        before = writes(w.run("first"))
        check_answers(w)
        check_bounds(w)
        check_own_names(w)
        check_ports(w)
        check_text(w)
        check_matrix(w)
        expect(writes(w.run("first")) == before, "assay watch wrote in the run")
        try:
            check_page(w, keep)
        finally:
            for process in processes:
                process.kill()
    print("\n".join(failures) or "watch: ok")
    sys.exit(1 if failures else 0)


main()
