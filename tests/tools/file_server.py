"""A server of one folder's files for the tests of downloads: ranges, redirects, hashes in headers, and faults."""
import hashlib
import http.server
import os
import pathlib
import threading


class FileServer:
    """Serves `folder` at `base`. What it does to a request is set by name of the file:
    cut: closes the connection after so many bytes of an answer; no_ranges: sends whole files only; busy: answers 503 so
    many times; hashes: names this SHA-256 ("" = the right one) in x-linked-etag of a redirect, as the hub of a model
    does. A HEAD at the target of a redirect is refused, as storages do that sign their addresses. gets is a list of
    (file, first byte) of all GETs that were answered. Takes proxies out of the environment: they do not know this server."""

    def __init__(self, folder):
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            del os.environ[name]
        self.folder, self.cut, self.no_ranges, self.busy = pathlib.Path(folder), {}, set(), {}
        self.hold, self.hashes, self.gets = {}, {}, []
        serves = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                serves.answer(self, body=False)

            def do_GET(self):
                serves.answer(self, body=True)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):  # a client that was killed
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request, body):
        stored = request.path.startswith("/storage/")
        path = self.folder / request.path.removeprefix("/storage").lstrip("/")
        name = path.name

        def reply(status, **headers):
            request.send_response(status)
            for key, value in headers.items():
                request.send_header(key.replace("_", "-"), value)
            request.end_headers()

        if not path.is_file():
            return reply(404, Content_Length=0)
        data = path.read_bytes()
        if name in self.hashes and not stored:
            sha256 = self.hashes[name] or hashlib.sha256(data).hexdigest()
            return reply(302, Location=f"/storage{request.path}", X_Linked_ETag=f'"{sha256}"', X_Linked_Size=len(data),
                         Content_Length=0)
        if stored and not body:
            return reply(403, Content_Length=0)
        if body and self.busy.get(name, 0) > 0:
            self.busy[name] -= 1
            return reply(503, Content_Length=0)
        first, wanted = 0, request.headers.get("Range")
        if wanted and name not in self.no_ranges:
            first = int(wanted.removeprefix("bytes=").split("-")[0])
            if first >= len(data):
                return reply(416, Content_Range=f"bytes */{len(data)}", Content_Length=0)
            reply(206, Content_Length=len(data) - first, Content_Range=f"bytes {first}-{len(data) - 1}/{len(data)}")
        else:
            reply(200, Content_Length=len(data))
        if not body:
            return None
        self.gets.append((name, first))
        last = first + self.cut[name] if name in self.cut else len(data)
        if name in self.hold:
            middle = (first + last) // 2
            request.wfile.write(data[first:middle])
            request.wfile.flush()
            self.hold[name].wait(20)
            first = middle
        request.wfile.write(data[first:last])
        if last < len(data):
            request.close_connection = True
        return None
