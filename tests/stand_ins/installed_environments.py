"""Environments with our distributions, by pip, uv and pipx, and a package index on loopback that they install from."""

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from amplifier_core._version import ECOSYSTEM_VERSION

OURS = {"amplifier", "amplifier-core", "amplifier-foundation"}
IMPORTS = "import amplifier_core, amplifier_foundation.registry\n"


@dataclass
class Index:
    """A package index on loopback that knows what was taken from it."""

    directory: Path
    url: str = ""
    taken: list[str] = field(default_factory=list)

    def page(self, path: str) -> bytes | None:
        """Return what is at a path: the links of one distribution, or one file."""
        name = path.strip("/").rpartition("/")[2]
        if path.startswith("/simple/"):
            files = [file.name for file in sorted(self.directory.iterdir())]
            links = [file for file in files if canonicalize_name(file.split("-")[0]) == canonicalize_name(name)]
            return "".join(f'<a href="/files/{file}">{file}</a>\n' for file in links).encode() if links else None
        return (self.directory / name).read_bytes()

    @property
    def foreign(self) -> set[str]:
        return {name for name in self.taken if name.startswith(("amplifier_core", "amplifier_foundation"))}


@contextlib.contextmanager
def served(index: Index) -> Iterator[Index]:
    """Serve an index, and give it its address."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/files/"):
                index.taken.append(self.path.rpartition("/")[2])
            with contextlib.suppress(BrokenPipeError):  # uv reads no more of an archive than it needs
                self.wfile.write(self.do_HEAD())

        def do_HEAD(self) -> bytes:
            content = index.page(self.path)
            self.send_response(200 if content is not None else 404)
            kind = "text/html" if self.path.startswith("/simple/") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            return content or b""

        def log_message(self, *arguments: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    yield index
    server.shutdown()
    thread.join()
    server.server_close()


@functools.cache
def built(tree: Path, kind: str) -> Path:
    """Build a distribution of a tree with the hatchling of our environment."""
    out = tree / "dist"
    out.mkdir(exist_ok=True)
    code = f"from hatchling.build import build_{kind}; print(build_{kind}({str(out)!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True)
    return out / run.stdout.split()[-1]


SOURCES: dict[str, Callable[[Path], list[str]]] = {
    "wheel": lambda tree: [str(built(tree, "wheel"))],
    "sdist": lambda tree: [str(built(tree, "sdist"))],
    "checkout": lambda tree: [str(tree)],
    "editable": lambda tree: ["--editable", str(tree)],
    "git": lambda tree: [f"git+{tree.as_uri()}"],
}


@dataclass
class Environment:
    """An environment with what ours requires, and one installer for it."""

    folder: Path
    index: Index
    installer: str

    @property
    def python(self) -> str:
        return str(self.folder / "bin/python")

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
        path = os.pathsep.join((str(Path(sys.executable).parent), kept["PATH"]))
        pip = {"PIP_INDEX_URL": self.index.url, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        uv = {"UV_DEFAULT_INDEX": self.index.url, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(self.folder / ".uv-cache")}
        tools = {"UV_TOOL_DIR": str(self.folder / "tools"), "UV_TOOL_BIN_DIR": str(self.folder / "tools-bin")}
        home = {"HOME": str(self.folder / "home"), "PIPX_HOME": str(self.folder / "pipx"), "NO_COLOR": "1"}
        return {**kept, **pip, **uv, **tools, **home, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False, timeout=300
        )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Ask the installer for something that works."""
        verb, *rest = arguments
        if self.installer == "uv":
            confirmed = [argument for argument in rest if argument != "--yes"]
            done = self.run("uv", "pip", verb, "--python", self.python, *confirmed)
        else:
            done = self.run(sys.executable, "-m", "pip", "--python", self.python, verb, *rest)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, *arguments: str) -> str:
        done = self.ask("install", *arguments)
        return done.stdout + done.stderr

    def imports(self, code: str) -> str:
        done = self.run(self.python, "-W", "error", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def amplifier(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.folder / "bin/amplifier"), "--home", str(self.folder / "home"), *arguments)

    def listed(self) -> dict[str, str]:
        """Return the distributions of the names that are contested, each with its versions."""
        (site,) = (self.folder / "lib").glob("python*/site-packages")
        infos = [path.name.removesuffix(".dist-info").split("-", 1) for path in site.glob("amplifier*.dist-info")]
        names = sorted({name.replace("_", "-") for name, _ in infos})
        return {name: " ".join(sorted(v for n, v in infos if n.replace("_", "-") == name)) for name in names}

    def is_in_order(self) -> None:
        """Check that ours is installed, complete and alone."""
        assert self.listed() == {"amplifier": "0.1.0", **dict.fromkeys(OURS - {"amplifier"}, ECOSYSTEM_VERSION)}
        self.imports(f"{IMPORTS}import amplifier_cli.main, amplifierd.app")
        self.ask("check")
        shown = self.amplifier("--version")
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, "amplifier 0.1.0\n", "")
