"""Our distributions beside others of the ecosystem, in environments of their own, by pip, uv and pipx.

An index on loopback has what is needed to build and to run, and another `amplifier-core` and `amplifier-foundation`: of
the version that ours stands for, and newer.
"""

import contextlib
import functools
import http.server
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

import pytest
from package_index import write_wheel
from packaging.utils import canonicalize_name
from shared_packages import link, needed_by, write_wheel_of

from amplifier_core._version import ECOSYSTEM_VERSION

ROOT = Path(__file__).parents[2]
OURS = {"amplifier", "amplifier-core", "amplifier-foundation"}
IMPORTS = "import amplifier_core, amplifier_foundation.registry\n"
BUILDING = ("hatchling", "editables", "pip")


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


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    index = Index(tmp_path_factory.mktemp("index"))
    for needed in {each.metadata["Name"]: each for each in needed_by("amplifier", *BUILDING)}.values():
        write_wheel_of(needed, index.directory)
    for name in BUILDING:
        write_wheel_of(distribution(name), index.directory)
    for version in ("2.0.2", "2.1.0"):
        for name in ("amplifier_core", "amplifier_foundation"):
            files = {f"{name}/__init__.py": f"REFERENCE = {version!r}\n".encode(), f"{name}/session.py": b""}
            write_wheel(index.directory, name, version, more=files)
    app = ["amplifier-core>=2", "amplifier-foundation"]
    write_wheel(index.directory, "small_app", "1.0", app, IMPORTS)
    write_wheel(index.directory, "small_module", "1.0", app, IMPORTS)
    write_wheel(index.directory, "kernel_app", "1.0", ["amplifier-core>=2,<3"], "import amplifier_core\n")
    write_wheel(index.directory, "eager_app", "1.0", ["amplifier-core>=2.1"], "import amplifier_core\n")

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


@pytest.fixture(autouse=True)
def nothing_taken(index: Index) -> None:
    index.taken.clear()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what is in this one, committed or not."""
    checkout = tmp_path_factory.mktemp("checkout") / "amplifier"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if "/" not in name or name.startswith(("src/", "modules/", "packages/", "registry/")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(ROOT / name):
                shutil.copy2(ROOT / name, checkout / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
        subprocess.run([*git, *arguments], cwd=checkout, check=True, capture_output=True)
    return checkout


@functools.cache
def _built(tree: Path, kind: str) -> Path:
    """Build a distribution of a tree with the hatchling of our environment."""
    out = tree / "dist"
    out.mkdir(exist_ok=True)
    code = f"from hatchling.build import build_{kind}; print(build_{kind}({str(out)!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True)
    return out / run.stdout.split()[-1]


SOURCES: dict[str, Callable[[Path], list[str]]] = {
    "wheel": lambda tree: [str(_built(tree, "wheel"))],
    "sdist": lambda tree: [str(_built(tree, "sdist"))],
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


@pytest.fixture(params=["pip", "uv"])
def environment(request: pytest.FixtureRequest, tmp_path: Path, index: Index) -> Environment:
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for needed in needed_by("amplifier"):
        link(needed, site)
    (folder / "home").mkdir()
    return Environment(folder, index, request.param)


@pytest.mark.parametrize("source", SOURCES)
def test_others_install_beside_ours_and_fetch_no_other_kernel(
    environment: Environment, checkout: Path, source: str, index: Index
) -> None:
    environment.install(*SOURCES[source](checkout))
    environment.install("small-app")
    environment.install("small-module")

    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    doctor = environment.amplifier("doctor")
    assert not re.search("installation|commands|packages", doctor.stdout), doctor.stdout


def _mend(environment: Environment, said: str) -> None:
    """Type what a message says, in an environment whose own pip is the one of the tests."""
    lines = [line.strip() for line in said.partition("fix: type\n")[2].splitlines() if line.startswith("    ")]
    assert lines, said
    for line in lines:
        command = line.replace(f"{environment.python} -m pip", f"{sys.executable} -m pip --python {environment.python}")
        done = environment.run(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_pipx_injects_others_beside_ours(tmp_path: Path, checkout: Path, source: str, index: Index) -> None:
    environment = Environment(tmp_path, index, "pip")
    (tmp_path / "home").mkdir()

    for command in (["install", *SOURCES[source](checkout)], ["inject", "amplifier", "small-app", "small-module"]):
        done = environment.run(sys.executable, "-m", "pipx", *command)
        assert done.returncode == 0, done.stderr

    pipx, environment = environment, Environment(tmp_path / "pipx/venvs/amplifier", index, "pip")
    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    assert pipx.run(sys.executable, "-m", "pipx", "inject", "amplifier", "eager-app").returncode == 0
    said = environment.amplifier("run", "Hello").stderr
    assert "amplifier-core 2.1.0 replaced files of Amplifier" in said
    assert "eager-app requires amplifier-core>=2.1; " in said
    assert pipx.run(sys.executable, "-m", "pipx", "uninject", "amplifier", "eager-app").returncode == 0
    _mend(pipx, environment.amplifier("run", "Hello").stderr)
    environment.imports("import small_app, small_module")
    environment.is_in_order()


def test_a_tool_of_uv_takes_others_in_a_second_step(tmp_path: Path, checkout: Path, index: Index) -> None:
    outside, environment = Environment(tmp_path, index, "uv"), Environment(tmp_path / "tools/amplifier", index, "uv")
    (tmp_path / "home").mkdir()
    wheel = SOURCES["wheel"](checkout)

    for more in ([], ["--with", "small-app", "--with", "small-module"]):
        done = outside.run("uv", "tool", "install", *more, *wheel)
        assert done.returncode == 0, done.stderr

    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    done = environment.run("uv", "pip", "install", "--python", environment.python, "eager-app")
    refused = environment.amplifier("doctor")
    assert index.foreign == {"amplifier_core-2.1.0-py3-none-any.whl"}, done.stderr
    _mend(outside, refused.stderr + refused.stdout)
    environment.imports("import small_app, small_module")
    environment.is_in_order()


def test_another_kind_of_source_takes_the_place_of_the_one_before(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")

    for source in ("checkout", "editable", "wheel", "git", "git", "sdist"):
        environment.install("--upgrade", *SOURCES[source](checkout))
        environment.is_in_order()

    environment.imports("import small_app")
    assert index.foreign == set()


def test_the_kernel_alone_serves_an_application_and_gives_way_to_everything(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(str(checkout / "packages/amplifier-core"))
    environment.install("kernel-app")
    environment.imports("import kernel_app")
    assert environment.listed() == {"amplifier-core": ECOSYSTEM_VERSION}

    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")
    environment.is_in_order()
    assert index.foreign == set()

    environment.ask("uninstall", "--yes", "amplifier")
    assert environment.run(environment.python, "-c", "import amplifier_core.session").returncode != 0
    assert environment.run(environment.python, "-c", "import amplifier_cli").returncode != 0


def test_kernel_and_bundles_alone_serve_an_application(environment: Environment, checkout: Path, index: Index) -> None:
    environment.install(*(str(checkout / "packages" / name) for name in ("amplifier-core", "amplifier-foundation")))
    environment.install("small-app")

    environment.imports(f"{IMPORTS}import small_app")
    assert index.foreign == set()


def test_one_command_is_enough_if_it_names_our_parts(environment: Environment, checkout: Path, index: Index) -> None:
    trees = (checkout, checkout / "packages/amplifier-core", checkout / "packages/amplifier-foundation")

    environment.install(*(str(_built(tree, "wheel")) for tree in trees), "small-app")

    environment.is_in_order()
    assert index.foreign == set()


PUBLISHED = {  # stand-ins of the modules that bundles name most, with the constraints that are known of them
    "loop_basic": (),
    "loop_streaming": (),
    "context_simple": (),
    "provider_anthropic": ("anthropic",),
    "provider_openai": ("openai",),
    "tool_filesystem": (),
    "tool_bash": (),
    "tool_web": ("ddgs", "primp>=0.15.0,<1.0.0"),
    "tool_search": (),
    "hooks_logging": (),
}


def test_everything_of_ours_and_ten_published_modules_resolve_together(
    environment: Environment, checkout: Path, tmp_path: Path, index: Index
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for needed in {each.metadata["Name"]: each for each in needed_by("amplifier[all]")}.values():
        requires = [line for line in needed.requires or () if "extra ==" not in line]
        write_wheel(links, needed.metadata["Name"].replace("-", "_"), needed.version, requires)
    write_wheel(links, "ddgs", "9.10.0", ["primp>=0.15.0"])
    write_wheel(links, "primp", "0.15.0")
    for name, requires in PUBLISHED.items():
        write_wheel(links, f"published_{name}", "1.0", ["amplifier-core>=2", "amplifier-foundation", *requires])
    (wheel,) = SOURCES["wheel"](checkout)
    parts = [str(_built(checkout / "packages" / name, "wheel")) for name in ("amplifier-core", "amplifier-foundation")]

    asked = ("--dry-run", "--find-links", str(links), f"amplifier[all] @ {Path(wheel).as_uri()}", *parts)
    said = environment.install(*asked, *(f"published-{name.replace('_', '-')}" for name in PUBLISHED))

    assert re.search(r"ddgs[-=]+9\.10\.0", said), said
    assert re.search(r"primp[-=]+0\.15\.0", said), said
    assert index.foreign == set()


def test_an_upgrade_takes_the_claims_along(environment: Environment, checkout: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(checkout, newer, symlinks=True)
    for file in (newer / "src/amplifier_core/_version.py", *newer.glob("packages/*/pyproject.toml")):
        file.write_text(file.read_text().replace("0.1.0", "0.2.0"))
    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")

    environment.install("--upgrade", str(_built(newer, "wheel")))

    claimed = dict.fromkeys(OURS - {"amplifier"}, "2.0.2+amplifier.0.2.0")
    assert environment.listed() == {"amplifier": "0.2.0", **claimed}
    environment.ask("check")
    environment.imports("import small_app")


@pytest.mark.parametrize("name", ["amplifier-core", "amplifier-foundation"])
def test_uninstalling_a_claimed_name_leaves_the_code_and_is_named(
    environment: Environment, checkout: Path, name: str
) -> None:
    environment.install(*SOURCES["wheel"](checkout))

    environment.ask("uninstall", "--yes", name)

    environment.imports(IMPORTS)
    assert f"nothing tells installers that {name} is here" in environment.amplifier("doctor").stdout
    environment.ask("uninstall", "--yes", "amplifier")
    assert environment.listed() == {}


@pytest.mark.parametrize("source", ["wheel", "editable"])
def test_the_other_kernel_first_is_named_and_what_is_said_mends_it(
    environment: Environment, checkout: Path, source: str
) -> None:
    environment.install("amplifier-core==2.0.2", "amplifier-foundation==2.0.2")
    environment.install(*SOURCES[source](checkout))

    said = environment.amplifier("--version").stderr
    doctor = environment.amplifier("doctor")

    assert "amplifier-core 2.0.2 and amplifier-foundation 2.0.2" in said
    assert (doctor.returncode == 0, "installation:" in doctor.stdout or "error:" in doctor.stderr) == (
        source == "wheel",
        True,
    )
    _mend(environment, said)
    environment.is_in_order()


def test_a_requirement_that_ours_does_not_meet_is_named_and_what_is_said_mends_it(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(*SOURCES["wheel"](checkout))

    environment.install("eager-app")

    assert index.foreign == {"amplifier_core-2.1.0-py3-none-any.whl"}
    refused = environment.amplifier("run", "Hello")
    assert (refused.returncode, refused.stderr.count("amplifier-core 2.1.0 replaced files of Amplifier")) == (1, 1)
    imported = environment.run(environment.python, "-c", "import amplifier_foundation")
    assert "ImportError: amplifier-core 2.1.0 replaced files of Amplifier" in imported.stderr
    checked = environment.run(sys.executable, "-m", "pip", "--python", environment.python, "check")
    assert f"amplifier-foundation {ECOSYSTEM_VERSION} has requirement amplifier-core=={ECOSYSTEM_VERSION}" in (
        checked.stdout
    )
    environment.ask("uninstall", "--yes", "eager-app")
    _mend(environment, refused.stderr)
    environment.is_in_order()
