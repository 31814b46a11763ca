"""Requirements of several owners, resolved together and installed into a directory; never into the host.

What the host provides is shown to the installer as wheels without code, at the host's versions, so that it fits the
rest to them; they are taken out of the directory again. Each owner is shown as such a wheel as well: where requirements
contradict each other, the installer says whose they are.
"""

import asyncio
import base64
import contextlib
import csv
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from amplifier_foundation.exceptions import BundleError
from amplifier_foundation.sources.resolved import remove_bytecode
from amplifier_foundation.sources.store import remove
from amplifier_system.policy.environment_access import SECRET_VARIABLES, EnvironmentAccess
from amplifier_system.processes import ProcessTree, reading
from amplifier_system.tasks import run_to_end, start_task
from amplifier_system.urls import shown

from .install_limits import DEFAULT_LIMITS, InstallLimits, InstallWatch
from .requirements import HostPackages, name_of, normalise_name

logger = logging.getLogger(__name__)

_OWNER = "needed-by-"
_DEPENDS = re.compile(r"^\s+(\S+) (\S+) depends on (.+?)\s*$", re.MULTILINE)
_UV_DEPENDS = re.compile(
    r"([A-Za-z0-9._-]+)(?:==\S+)?\s+depends\s+on\s+([A-Za-z0-9._-]+[^\s,]*(?:,\s*[<>=!~][^\s,]*)*)"
)
_UV_CAUSE = re.compile(r"\bBecause\s+(.+?),\s+we\s+can\s+conclude", re.DOTALL)
_NO_WHEELS = re.compile(r"no\s+usable\s+wheels|building\s+(?:from\s+)?source|only wheels are installed", re.IGNORECASE)
_KEPT_CHARACTERS = 20_000
_OVERRIDES = "ours.txt"
"""What is ours, which counts for uv whatever a distribution asks for in its place, by version or by address."""
_ADDRESS = re.compile(r"^[^;]*@\s*\S")
_WHEEL = re.compile(r"@\s*\S+?\.whl(?:[#?]\S*)?(?:\s*;|\s*$)")
_INDEX_VARIABLE = re.compile(
    r"PIP_(?:EXTRA_)?INDEX_URL|UV_(?:EXTRA_)?INDEX_URL|UV_(?:DEFAULT_)?INDEX|UV_INDEX_\w+_(?:USERNAME|PASSWORD)"
)
_GUARD = (  # we hold the other end of its stdin: when that closes, and be it that we are killed, the group is ended
    'exec 3<&0; (while read -r _ <&3; do :; done; kill -9 0) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'
)
_TRUE = ("1", "true", "yes", "on")
_PIP_ALONE = """
import runpy, sys
def refuse(event, given):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"):
        program = str(given[0] if given else "")
        if program.rpartition("/")[2].partition(".")[0] not in ("keyring", "ld-musl-x86_64", "ld-musl-aarch64"):
            raise PermissionError(f"only wheels are installed, and {program or event} would run")
sys.addaudithook(refuse)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""Runs pip without other programs: it builds and fetches what a wheel names by its address, `--only-binary` or not."""

_OUR_PACKAGES = frozenset({"amplifier_system", "amplifier_sessions", "amplifier_cli", "amplifierd"})
"""Our packages that are not distributions of their own; `HostPackages.ours` has the others."""

BUILDS_VARIABLE = "AMPLIFIERD_COMPILE__ALLOW_BUILDS"
ALLOW_BUILDS = (
    "only wheels are installed, because building anything else runs its code; compile.allow_builds: true allows it"
)


@dataclass(frozen=True, slots=True)
class InstalledPins:
    """What was installed, and what of the rest the host provides, as `name==version`."""

    build: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


class InstallError(BundleError, subprocess.CalledProcessError):
    """The installer failed; nothing was kept. `stderr` has its words."""

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        returncode: int,
        cmd: Sequence[str],
        output: str,
        claims: tuple[tuple[str, str], ...] = (),
    ) -> None:
        subprocess.CalledProcessError.__init__(self, returncode, list(cmd), output, output)
        self.message, self.hint, self.claims = message, hint, claims

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}"


class RequirementConflict(InstallError):
    """Requirements that cannot be met together; `claims` has who requires what."""


class NoInstallerError(BundleError, FileNotFoundError):
    """Neither uv nor pip is there to install with."""


async def install_together(
    requirements: Mapping[str, Sequence[str]],
    target: Path,
    host: HostPackages,
    *,
    allow_builds: bool | None = None,
    limits: InstallLimits = DEFAULT_LIMITS,
) -> InstalledPins:
    """Resolve the requirements of all owners (owner → requirement lines) at once and install them into `target`.

    `target` is a directory that is empty or absent; when this fails or is cancelled its content is of no use and the
    caller removes it. Only wheels are installed, so that nothing of a distribution runs here; `allow_builds` permits
    to build others, None lets `AMPLIFIERD_COMPILE__ALLOW_BUILDS` decide. A wheel can unpack to a thousand times its
    size, and to a million empty files: an installer that writes more than the `limits` is ended.

    Raises:
        RequirementConflict: requirements contradict each other or the host; the text names owners and requirements.
        InstallError: the installer failed for another reason. It is a `subprocess.CalledProcessError`.
        NoInstallerError: there is none. It is a `FileNotFoundError`.
    """
    needed = {
        owner: [line for line in lines if name_of(line) not in host.ours] for owner, lines in requirements.items()
    }
    builds = os.environ.get(BUILDS_VARIABLE, "").strip().lower() in _TRUE if allow_builds is None else allow_builds
    if not builds:
        _refuse_sources(needed)
    async with scratch_directory() as directory:
        arguments = await asyncio.to_thread(_write_inputs, directory, needed, host)
        command = [*installer_command(target, allow_builds=builds), *arguments]
        if Path(command[0]).name == "uv":
            command += ["--override", str(directory / _OVERRIDES)]
        returncode, output = await _run(command, target, limits)
    if returncode == 0 and (found := await asyncio.to_thread(limits.excess_of, target)):
        returncode, output = 1, found
    if returncode != 0:
        raise _failure(needed, host, returncode, command, shown(output), builds=builds)
    pins = await asyncio.to_thread(_settle, target, needed, host)
    await asyncio.to_thread(_refuse_ours, target, host)
    await asyncio.to_thread(_remove_bytecode, target)
    compiling = [sys.executable, "-I", "-m", "compileall", "-q", str(target)]
    await _run(compiling, target, limits)  # what cannot be compiled is left as it is
    return pins


def _refuse_sources(needed: Mapping[str, Sequence[str]]) -> None:
    """Refuse requirements that name something to build by its address: installers build those whatever they are told.

    Raises:
        InstallError: there are some.
    """
    named = [(owner, line) for owner, lines in needed.items() for line in lines if _ADDRESS.search(line)]
    built = [f"{owner} requires {shown(line)}" for owner, line in named if not _WHEEL.search(line)]
    if built:
        message = f"only wheels are installed: {'; '.join(built)}"
        raise InstallError(message, hint=ALLOW_BUILDS, returncode=1, cmd=(), output="")


def _refuse_ours(target: Path, host: HostPackages) -> None:
    """Refuse packages that would be imported in place of ours: a guard could be among them.

    Raises:
        InstallError: there are some.
    """
    names = {path.name.partition(".")[0] for path in target.iterdir()} if target.is_dir() else set()
    if ours := sorted(name for name in names if name in _OUR_PACKAGES or normalise_name(name) in host.ours):
        message = f"a distribution brings {', '.join(ours)}, which Amplifier has and modules share with it"
        hint = "remove the requirement that brings it; a module of another origin needs a source and an id of its own"
        raise InstallError(message, hint=hint, returncode=1, cmd=(), output="")


def _remove_bytecode(target: Path) -> None:
    """Remove what distributions brought in place of code that people read, and that hashes cover.

    Raises:
        InstallError: that is all there is of it.
    """
    for file in sorted(target.rglob("*.pyc")):
        if file.parent.name != "__pycache__" and not file.with_suffix(".py").exists():
            message = f"a distribution brings bytecode without its source: {file.relative_to(target).as_posix()}"
            hint = "use a version of it that comes with its source"
            raise InstallError(message, hint=hint, returncode=1, cmd=(), output="")
    remove_bytecode(target)


def installer_command(target: Path, *, allow_builds: bool) -> list[str]:
    """Return how uv, else pip, is called to install into a directory.

    Raises:
        NoInstallerError: there is neither.
    """
    if uv := shutil.which("uv"):
        wheels_only = () if allow_builds else ("--no-build",)
        links = filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))  # an argument of ours would replace them
        found = [argument for link in links for argument in ("--find-links", link)]
        return [uv, "pip", "install", "--python", sys.executable, "--target", str(target), *wheels_only, *found]
    if importlib.util.find_spec("pip") is None:
        raise NoInstallerError(
            f"there is nothing to install dependencies with: neither the command 'uv' nor pip for {sys.executable}",
            hint="install uv, or pip with: python -m ensurepip",
        )
    quiet = ("--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off")
    program = ["-m", "pip", "install"] if allow_builds else ["-c", _PIP_ALONE, "install", "--only-binary", ":all:"]
    return [sys.executable, *program, *quiet, "--no-compile", "--target", str(target)]


def _write_inputs(directory: Path, needed: Mapping[str, Sequence[str]], host: HostPackages) -> list[str]:
    """Write the wheels and constraints an installer is given, and return its arguments."""
    stubs = directory / "host"
    stubs.mkdir()
    for name, version in host.versions.items():
        write_stub(stubs, name, version, host.metadata_of(name))
    constraints = directory / "host-constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in host.constraints()), encoding="utf-8")
    overrides = "".join(f"{line}\n" for line in host.constraints(host.ours))
    (directory / _OVERRIDES).write_text(overrides, encoding="utf-8")
    owners = [
        write_stub(directory, _anchor(owner), "0", _anchor_metadata(_anchor(owner), lines))
        for owner, lines in needed.items()
    ]
    return ["--find-links", str(stubs), "--constraint", str(constraints), *map(str, owners)]


def _anchor(owner: str) -> str:
    return _OWNER + (normalise_name(re.sub(r"[^A-Za-z0-9._-]+", "-", owner)).strip("-") or "module")


def _anchor_metadata(name: str, lines: Sequence[str]) -> str:
    requires = "".join(f"Requires-Dist: {line}\n" for line in lines)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n{requires}"


def _settle(target: Path, needed: Mapping[str, Sequence[str]], host: HostPackages) -> InstalledPins:
    """Take out of the target what the host provides, and say what is left."""
    target.mkdir(parents=True, exist_ok=True)
    installed = installed_in(target)
    provided = [name for name in installed if host.provides(name)]
    uninstall(target, [*provided, *map(_anchor, needed)])
    build = sorted(f"{name}=={version}" for name, (version, _) in installed_in(target).items())
    named = host.constraints(line for lines in needed.values() for line in lines)
    return InstalledPins(tuple(build), tuple(sorted({*named, *(f"{n}=={host.versions[n]}" for n in provided)})))


async def _run(command: Sequence[str], target: Path, limits: InstallLimits) -> tuple[int, str]:
    """Run an installer, which is ended with everything it started when it writes too much, or the caller is
    interrupted, or dies."""
    settings = {"PIP_USER": "0", "PIP_NO_COLOR": "1", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    environment = {**installer_environment(os.environ), **settings}
    guarded = ["/bin/sh", "-c", _GUARD, "sh", *command]
    pipe, errors = subprocess.PIPE, subprocess.STDOUT
    tree = await ProcessTree.start(guarded, environment=environment, stdin=pipe, stderr=errors)
    watch = InstallWatch(tree, target, limits)
    watching = start_task(watch.end_beyond())
    try:
        async with reading(tree.stdout) as stream:
            output = await stream.read()
        returncode = await tree.wait()
    finally:
        watching.cancel()
        tree.close_pipes()
        await tree.kill()  # the guard, and all the rest if this was interrupted
    if watch.excess:
        return 1, watch.excess
    return returncode, output.decode("utf-8", "replace")[-_KEPT_CHARACTERS:]


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what an installer is given of an environment: nothing that looks like a secret, but what names the
    package index and the proxy, and the credentials in them or for them."""
    needed = tuple(name for name in environ if _INDEX_VARIABLE.fullmatch(name) or name.upper().endswith("_PROXY"))
    return EnvironmentAccess(("*", *needed), SECRET_VARIABLES).filtered(environ)


def _failure(
    needed: Mapping[str, Sequence[str]],
    host: HostPackages,
    returncode: int,
    command: Sequence[str],
    output: str,
    *,
    builds: bool,
) -> InstallError:
    owners = {_anchor(owner): owner for owner in needed}
    listed = ", ".join(owners.values())
    lacks_wheels = not builds and _NO_WHEELS.search(output) is not None
    claims = () if lacks_wheels else _claims(output, owners, needed)
    entries = [f"{owner} requires {line}" for owner, line in claims]
    entries += [_provided(line, host) for line in host.constraints(line for _, line in claims)]
    if len(entries) > 1:  # one alone contradicts nothing: uv explains in the same words what it does not find
        return RequirementConflict(
            f"the requirements of {listed} cannot be met together: {'; '.join(entries)}",
            hint="loosen one of these requirements, use versions of the modules that agree, or take what requires the"
            " host's version out of the environment that Amplifier is installed in",
            returncode=returncode,
            cmd=command,
            output=output,
            claims=claims,
        )
    entries = [f"; {_provided(line, host)}" for line in host.constraints(_in_doubt(needed, host))]
    words = _last_words(output)
    for anchor, owner in owners.items():
        words = words.replace(anchor, owner)
    lines = ", ".join(line for lines in needed.values() for line in lines)
    hint = "check names and versions, and that the package index can be reached; uv's and pip's own settings count"
    return InstallError(
        f"cannot install what {listed} requires ({shown(lines)}): {words}{''.join(entries)}",
        hint=hint if builds else f"{hint}; {ALLOW_BUILDS}",
        returncode=returncode,
        cmd=command,
        output=output,
    )


def _claims(output: str, owners: Mapping[str, str], needed: Mapping[str, Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Return who requires what in a conflict, from the installer's explanation.

    A requirement of a distribution that an owner requires shows as `<distribution> requiring it`, with that owner.
    """
    found = [(match[1], match[3]) for match in _DEPENDS.finditer(output)]
    found += [(match[1], "".join(match[2].split())) for match in _UV_DEPENDS.finditer(output)] if not found else []
    claims = []
    for subject, requirement in found:
        name = normalise_name(subject)
        requirement = requirement.replace(" and ", ",")
        if name in owners:
            owner = owners[name]
            written = [line for line in needed[owner] if name_of(line) == name_of(requirement)]
            claims += [(owner, line) for line in written or (requirement,)]
            continue
        users = [owner for owner, lines in needed.items() if any(name_of(line) == name_of(subject) for line in lines)]
        claims.append((f"{', '.join(users) or 'a dependency'} (through {subject})", requirement))
    return tuple(dict.fromkeys(claims))


def _provided(pin: str, host: HostPackages) -> str:
    return f"the host provides {pin}{host.users_of(pin)}"


def _in_doubt(needed: Mapping[str, Sequence[str]], host: HostPackages) -> list[str]:
    """Return the requirements that the host's version does not plainly meet."""
    return [line for lines in needed.values() for line in lines if not host.satisfies(line)]


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    relevant = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith(("ERROR:", "error:", "×"))]
    relevant += [" ".join(cause.split()) for cause in _UV_CAUSE.findall(output)[:1]]
    return "; ".join((relevant or lines)[-4:]) or "it gave no reason"


# Wheels without code: they tell an installer of something that is there already, or of who requires what.


_WHEEL_FILE = "Wheel-Version: 1.0\nGenerator: amplifier\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_stub(directory: Path, name: str, version: str, metadata: str) -> Path:
    """Write a wheel that has nothing but its metadata, and return its path."""
    stem = f"{normalise_name(name).replace('-', '_')}-{version}"
    contents = {f"{stem}.dist-info/METADATA": metadata, f"{stem}.dist-info/WHEEL": _WHEEL_FILE}
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")
    return wheel


def installed_in(target: Path) -> dict[str, tuple[str, Path]]:
    """Return the distributions in a target directory: normalised name → version and `.dist-info` directory."""
    found = {}
    for directory in sorted(target.glob("*.dist-info")):
        name, _, version = directory.name.removesuffix(".dist-info").rpartition("-")
        found[normalise_name(name)] = (version, directory)
    return found


def uninstall(target: Path, names: Iterable[str]) -> None:
    """Take distributions out of a target directory, with the files they brought."""
    installed = installed_in(target)
    for name in names:
        if name not in installed:
            continue
        _, directory = installed[name]
        for path in _files_of(directory):
            if path.is_relative_to(target) and ".." not in path.parts:
                path.unlink(missing_ok=True)
                _remove_empty(path.parent, target)
        remove(directory)


def _files_of(dist_info: Path) -> list[Path]:
    record = dist_info / "RECORD"
    if not record.is_file():
        return []
    with record.open(encoding="utf-8", newline="") as file:
        return [dist_info.parent / row[0] for row in csv.reader(file) if row]


def _remove_empty(directory: Path, target: Path) -> None:
    while directory != target and directory.is_dir():
        entries = list(directory.iterdir())
        if any(entry.name != "__pycache__" for entry in entries):
            return
        remove(directory)
        directory = directory.parent


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


# Directories for the time of an installation; what a killed process left of them is removed by the next one.


_PREFIX = "amplifier-install-"


@asynccontextmanager
async def scratch_directory() -> AsyncIterator[Path]:
    """Give an empty directory, which is gone afterwards."""
    await asyncio.to_thread(remove_scratch_leftovers)
    directory, descriptor = _held_directory()
    try:
        yield directory
    finally:
        await run_to_end(asyncio.to_thread(remove, directory))
        os.close(descriptor)


def _held_directory() -> tuple[Path, int]:
    """Make a directory and hold it; another process may take it for a leftover in between, then it is made again."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if directory.is_dir():
                return directory, descriptor
            os.close(descriptor)


def remove_scratch_leftovers() -> None:
    """Remove the directories that no process holds; the system takes a lock back when its holder dies."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid != os.getuid():
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(directory)
            finally:
                os.close(descriptor)
