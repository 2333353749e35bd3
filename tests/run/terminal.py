"""A program on a terminal of its own: what is typed reaches it as from a keyboard, Ctrl-C included."""
import codecs
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time

PATIENCE_S = 60


class Terminal:
    """Runs a command; `shown` is what appeared since the last until(), with plain line ends."""

    def __init__(self, *command, cwd=None, term="xterm"):
        self.keyboard, inside = pty.openpty()
        attributes = termios.tcgetattr(inside)
        attributes[3] |= termios.ICANON | termios.ISIG | termios.ECHO
        termios.tcsetattr(inside, termios.TCSANOW, attributes)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.program = subprocess.Popen([str(c) for c in command], stdin=inside, stdout=inside, stderr=inside,
                                        preexec_fn=own_terminal, cwd=cwd, env={**os.environ, "TERM": term})
        os.close(inside)
        self.shown, self.unread = "", ""
        self.text = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        os.close(self.keyboard)

    def send(self, keys):
        os.write(self.keyboard, keys.encode())

    def _read(self, deadline):
        """Reads what is there; False at the end."""
        ready, _, _ = select.select([self.keyboard], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            sys.exit(f"FAILED: nothing more within {PATIENCE_S} s on the terminal after: {self.unread[-500:]!r}")
        try:
            data = os.read(self.keyboard, 65536)
        except OSError:  # the program closed its side
            return False
        self.unread = (self.unread + self.text.decode(data)).replace("\r\n", "\n")
        return bool(data)

    def until(self, text):
        """Waits until `text` appears; returns everything up to its end."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.unread:
            if not self._read(deadline):
                sys.exit(f"FAILED: the program ended before {text!r} appeared: {self.unread[-500:]!r}")
        end = self.unread.index(text) + len(text)
        self.shown, self.unread = self.unread[:end], self.unread[end:]
        return self.shown

    def end(self):
        """Waits for the end of the program; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        self.shown, self.unread = self.shown + self.unread, ""
        return self.program.wait(PATIENCE_S)
