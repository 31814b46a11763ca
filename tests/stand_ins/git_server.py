"""A repository over http on loopback, behind a user name and a password."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from git_repository import Repository


class GitServer:
    """Serves the repositories below a folder to those who know `user` and `password`, or `token` in the query.

    `was_asked` is set when somebody came who may; they are answered while `answers` is set. `moved` has where the paths
    below one are now, to which they are redirected.
    """

    def __init__(self, folder: Path, user: str, password: str, token: str = "") -> None:
        wanted = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        self.refused = 0
        self.was_asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()
        self.moved: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

            def _answer(self, body: bytes) -> None:
                url = urlsplit(self.path)
                path, query = url.path, url.query
                if token and query.startswith("access_token="):  # git puts what it asks for behind the whole URL
                    given, _, rest = query.removeprefix("access_token=").partition("/")
                    path, _, query = f"{path}/{rest}".partition("&")
                    is_known = given == token
                else:
                    is_known = self.headers.get("Authorization") == wanted
                if not is_known:
                    server.refused += 1
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="x"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if old := next(filter(self.path.startswith, server.moved), ""):
                    self.send_response(301)
                    self.send_header("Location", server.moved[old] + self.path.removeprefix(old))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                server.was_asked.set()
                server.answers.wait()
                self._pass_on(path, query, body)

            def _pass_on(self, path: str, query: str, body: bytes) -> None:
                environment = {
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                }
                done = subprocess.run(
                    ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
                )
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def git_server(repository: Repository, user: str, password: str, token: str = "") -> Iterator[GitServer]:
    server = GitServer(repository.path.parent, user, password, token)
    try:
        yield server
    finally:
        server.stop()


def files_with(root: Path, secret: str) -> list[str]:
    """Return the files below a folder, and the names, that have a secret in them."""
    found = []
    for path in sorted(root.rglob("*")):
        if secret in path.name or (path.is_file() and secret.encode() in path.read_bytes()):
            found.append(str(path.relative_to(root)))
    return found
