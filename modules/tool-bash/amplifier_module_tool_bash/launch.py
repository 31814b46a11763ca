"""How a command is started: the shell, its directory, its environment, its sandbox, and what is reported about it."""

import asyncio
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import urlsplit

from amplifier_kit.approval import Consent
from amplifier_kit.concerns import Concern, is_tainted, refusal_of
from amplifier_kit.policy import NetworkAccess, PolicyError, canonical_host
from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.enclosure import Sandbox
from amplifier_kit.sandbox.limits import Confinement
from amplifier_kit.sandbox.permissions import Permissions
from amplifier_kit.sandbox.program import Program
from amplifier_kit.sandbox.proxy import HostProxy
from amplifier_kit.tools.input import ToolFailure, os_failure
from amplifier_kit.tools.runs import announce

from .settings import Settings

_SHOWN_CHARACTERS = 200

# The hosts that a command may reach.


_URL = re.compile(r"\b(?:https?|git|ftp|wss?)://[^\s'\"<>|;&()`\\\\]+", re.IGNORECASE)


_BOUND_TO_HOSTS = (Consent.REMEMBERED, Consent.LEVEL)


@dataclass(frozen=True, slots=True)
class CommandReach:
    """What one command may reach: hosts that the policy or the command itself names, and those a person agrees to."""

    command: str
    named: frozenset[str]
    network: NetworkAccess
    coordinator: Any

    @classmethod
    def of(cls, command: str, network: NetworkAccess, coordinator: Any, *, is_agreed: bool) -> Self:
        """Return the reach of a command; a person who agreed to it agreed to the hosts in it.

        In a tainted session only the policy names hosts.
        """
        named = frozenset(hosts_in(command)) if is_agreed and not is_tainted(coordinator) else frozenset()
        return cls(command, named, network, coordinator)

    def proxy(self) -> HostProxy:
        """Return a proxy for the command; what it opens is closed by `abandon`, or when the command has ended."""
        return HostProxy(self._refusal, self.network.refuses_address)

    async def _refusal(self, host: str, port: int, url: str) -> str | None:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.network.check(f"https://{authority}/")
        except PolicyError as exc:
            return str(exc)
        if host in self.named or self.network.is_named(host):
            return None
        shown = self.command if len(self.command) <= _SHOWN_CHARACTERS else f"{self.command[:_SHOWN_CHARACTERS]}…"
        words = f"the command {shown!r} reaches {authority} ({url})"
        return await refusal_of(self.coordinator, Concern("host", authority, words), "bash")


def hosts_in(command: str) -> set[str]:
    """Return the hosts of the URLs in a command."""
    hosts = set()
    for url in _URL.findall(command):
        try:
            hosts.add(canonical_host(urlsplit(url).hostname or ""))
        except ValueError:
            continue
    return hosts


STARTED = "tool-bash:started"
FINISHED = "tool-bash:finished"
END_GRACE_S = 0.5

_USUAL_BASH = Path("/bin/bash")
_QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}
_MOST_NAMES = 12
_OWN_PREFIX = "AMPLIFIER"  # variables of ours mean nothing to commands
# What git is told if no one was asked: to run nothing that a repository names.
_CAREFUL_GIT = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null"}
_NO_SANDBOX = (
    "bash: no sandbox works on this machine, and the configuration requires one; install bubblewrap or the extra"
    " `sandbox`, or set `sandbox` to auto or off"
)
_NOT_BOUND = (
    "bash: policy.network.commands is hosts, and no sandbox that can keep commands to hosts works here; install"
    " bubblewrap or the extra `sandbox`, or set policy.network.commands to open"
)


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell that runs commands, and what is to be said about it."""

    name: str
    arguments: tuple[str, ...]
    note: str = ""


def find_shell(usual: Path = _USUAL_BASH) -> Shell:
    """Return bash from its usual place, else from where it is found, else the plain shell of the system."""
    bash = str(usual) if usual.exists() else shutil.which("bash")
    if bash:
        return Shell("bash", (bash, "--norc", "--noprofile", "-c", "--"))
    return Shell("sh", (shutil.which("sh") or "/bin/sh", "-c", "--"), "bash is not installed; sh ran the command")


@dataclass(frozen=True, slots=True)
class Launch:
    """One command, ready to be started."""

    command: str
    shell: Shell
    cwd: Path
    environment: Mapping[str, str]
    confinement: Confinement
    sandbox: Sandbox | None
    misses_sandbox: bool
    withheld: tuple[str, ...] = ()
    """The names of the variables that the command is not given."""
    reach: CommandReach | None = None
    """What it may reach through a proxy; None where the sandbox alone decides about the network."""

    def note_on_environment(self, printed: str) -> str:
        """Return what to say about a command that failed: which variables it did not have, those it named first."""
        if not self.withheld:
            return ""
        words = set(re.findall(r"\w+", f"{self.command}\n{printed}"))
        names = sorted(self.withheld, key=lambda name: (name not in words, name))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"variables the command was not given (policy.environment): {', '.join(names[:_MOST_NAMES])}{more}"

    async def start(self, stdout: int | IO[bytes], stderr: int) -> Program:
        """Start the command; raises `ToolFailure`."""
        arguments: list[str | bytes] = [*self.shell.arguments, self.command.encode()]
        proxy = self.reach.proxy() if self.reach is not None else None
        try:
            program = await Program.start(
                arguments if proxy is None else proxy.before(arguments),
                self.confinement,
                sandbox=self.sandbox,
                environment=self.environment,
                stdout=stdout,
                stderr=stderr,
                descriptors=() if proxy is None else (proxy.descriptor,),
            )
        except BaseException as exc:
            if proxy is not None:
                proxy.abandon()
            if isinstance(exc, OSError):
                raise os_failure(f"bash: the command could not be started: {exc.strerror}", exc) from exc
            raise
        if proxy is not None:
            proxy.serve(program)
        return program


@dataclass(frozen=True, slots=True)
class LaunchPad:
    """Makes launches: what holds for every command of a session."""

    settings: Settings
    coordinator: Any

    def is_containing(self) -> bool:
        """True where commands run in a sandbox that also keeps them from the network."""
        sandbox = self._sandbox()
        return sandbox is not None and sandbox.has_own_network

    def _sandbox(self) -> Sandbox | None:
        return None if self.settings.sandbox == "off" else find_sandbox()

    def prepare(self, command: str, shell: Shell, cwd: Path, consent: Consent, readable: Iterable[Path]) -> Launch:
        """Return the launch of a command; raises `ToolFailure` when it cannot be run here."""
        _check_directory(cwd)
        sandbox = self._sandbox()
        if sandbox is None and self.settings.sandbox == "required":
            raise ToolFailure(_NO_SANDBOX, "sandbox_unavailable", retryable=False)
        permissions = Permissions.of(self.coordinator, cwd)
        is_unasked = consent is Consent.UNASKED
        reach = self._reach(command, permissions, consent, sandbox)
        confinement = Confinement(
            working_dir=cwd.resolve(),
            writable=() if is_unasked else permissions.writable,
            readable=tuple(path.resolve() for path in readable),
            read_only=permissions.read_only,
            hidden=permissions.hidden,
            shown=permissions.shown,
            kept_folders=permissions.kept_folders,
            kept_files=permissions.kept_files,
            has_network=permissions.has_network and not is_unasked and reach is None,
            limits=self.settings.limits,
        )
        inherited = self._inherited(permissions)
        environment = {**_QUIET, **inherited, **self.settings.env}
        withheld = ({*permissions.withheld, *permissions.environment}) - environment.keys()
        if is_unasked:
            environment |= _git_settings(environment, _CAREFUL_GIT)
        misses_sandbox = sandbox is None and self.settings.sandbox == "auto"
        names = tuple(sorted(name for name in withheld if not name.startswith(_OWN_PREFIX)))
        return Launch(command, shell, cwd, environment, confinement, sandbox, misses_sandbox, names, reach)

    def _reach(
        self, command: str, permissions: Permissions, consent: Consent, sandbox: Sandbox | None
    ) -> CommandReach | None:
        """Return what a command reaches through a proxy: one that is bound to hosts, or that a remembered yes covers.

        Raises `ToolFailure` for one that has to be bound and cannot be.
        """
        is_bound = permissions.network.commands == "hosts"
        if consent is Consent.UNASKED or not permissions.has_network:
            return None
        if not is_bound and consent not in _BOUND_TO_HOSTS:
            return None
        if sandbox is None or not sandbox.has_own_network:
            if is_bound:
                raise ToolFailure(_NOT_BOUND, "sandbox_unavailable", retryable=False)
            return None
        is_agreed = consent is not Consent.LEVEL
        return CommandReach.of(command, permissions.network, self.coordinator, is_agreed=is_agreed)

    def _inherited(self, permissions: Permissions) -> dict[str, str]:
        denied = self.settings.env_deny
        return {
            name: value
            for name, value in permissions.environment.items()
            if not any(fnmatchcase(name, pattern) for pattern in denied)
        }


def _check_directory(cwd: Path) -> None:
    try:
        is_there = cwd.is_dir()
    except OSError as exc:
        raise os_failure(f"bash: the working directory {str(cwd)!r} cannot be used: {exc.strerror}", exc) from exc
    if not is_there:
        raise ToolFailure(f"bash: the working directory {str(cwd)!r} does not exist", "not_found", retryable=False)


def _git_settings(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that mean the same to git as `-c name=value` on every command line."""
    count = environment.get("GIT_CONFIG_COUNT", "0")
    first = int(count) if count.isdigit() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for place, (name, value) in enumerate(settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{place}": name, f"GIT_CONFIG_VALUE_{place}": value}
    return variables


@dataclass(slots=True)
class Announcement:
    """Tells the session that a command was started and that it is over, each once."""

    coordinator: Any
    launch: Launch
    pid: int
    timeout_s: float | None
    is_background: bool = False
    _started_s: float = field(default_factory=time.monotonic)

    async def started(self) -> None:
        payload = {"cwd": str(self.launch.cwd), "timeout": self.timeout_s}
        await announce(self.coordinator, STARTED, self._common | payload)

    async def finished(self, returncode: int | None, **facts: Any) -> None:
        """Emit the end; `facts` are the byte counts and flags that differ from nothing."""
        nothing = {"stdout_bytes": 0, "stderr_bytes": 0, "truncated": False, "timed_out": False, "cancelled": False}
        duration_ms = round((time.monotonic() - self._started_s) * 1000)
        payload = {"returncode": returncode, "duration_ms": duration_ms}
        await announce(self.coordinator, FINISHED, self._common | payload | nothing | facts)

    @property
    def _common(self) -> dict[str, Any]:
        command = self.launch.command[:_SHOWN_CHARACTERS]
        return {"command": command, "pid": self.pid, "background": self.is_background}


class Starts:
    """The starts of one session that are not over yet."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Start a program in this block, and note it where it is ended from."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def wait(self) -> None:
        """Wait until every start is over."""
        await self._none.wait()
