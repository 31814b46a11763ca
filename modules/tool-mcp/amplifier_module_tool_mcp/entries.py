"""The entry of one server: what it must be, checked without contacting anything."""

import ipaddress
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from amplifier_kit.config import LenientConfig
from amplifier_kit.sandbox.limits import Mode, read_mode
from amplifier_kit.tools.paths import expand_home

from .redaction import Redactor
from .settings import MODULE_ID, Limits, ModuleSettings

logger = logging.getLogger(__name__)

Transport = Literal["stdio", "http", "sse"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_REFERENCE = re.compile(r"\$\{.+?\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_REVISION = re.compile(r"\d{4}-\d{2}-\d{2}")
_FIRST_REVISION = "2026-07-28"  # earlier ones are what the handshake negotiates
_TRANSPORTS: dict[str, Transport] = {
    **{"stdio": "stdio", "http": "http", "sse": "sse"},
    **{"streamable-http": "http", "streamable_http": "http"},
}
_OF_THE_OTHER_KIND = {
    "command": ("headers",),
    "url": ("args", "env", "cwd", "env_inherit", "sandbox", "read", "write", "network"),
}
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_*", "TZ", "TMPDIR")


def _is_any_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class EntryError(Exception):
    """An entry that cannot be used, told without any value of it."""

    def __init__(self, key: str, problem: str, expected: str) -> None:
        super().__init__(f"{key}: {problem}; expected {expected}")


@dataclass(frozen=True, slots=True)
class Program:
    """A server that is run as a child process."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    env_inherit: tuple[str, ...]
    cwd: str | None
    sandbox: Mode = "off"
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] = ()
    has_network: bool = False

    @property
    def redactor(self) -> Redactor:
        return Redactor.of_variables(self.env)

    def environment(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the server gets, besides the markers of process trees.

        `host` is what the session's policy passes on; of that the server inherits what its entry names.
        """
        inherited = {
            name: value
            for name, value in host.items()
            if not value.startswith("()") and _is_any_of(name, (*_INHERITED, *self.env_inherit))
        }
        return {**inherited, **self.env}

    def missed(self, withheld: Iterable[str]) -> list[str]:
        """Return the withheld variables of the host that the entry asks for by more than `*`."""
        asked = [pattern for pattern in self.env_inherit if pattern != "*"]
        return [name for name in withheld if name not in self.env and _is_any_of(name, asked)]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that is reached over HTTP."""

    url: str
    headers: Mapping[str, str]

    @property
    def redactor(self) -> Redactor:
        return Redactor.of_headers(self.headers)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server, as its entry and the module's configuration have it."""

    name: str
    transport: Transport
    target: Program | Endpoint
    protocol: str
    allow: tuple[str, ...] | None
    deny: tuple[str, ...]
    trust_annotations: bool
    limits: Limits
    module: ModuleSettings
    redactor: Redactor

    def admits(self, tool: str) -> bool:
        """True if the filter lets one of the server's tools through."""
        is_allowed = self.allow is None or any(fnmatchcase(tool, pattern) for pattern in self.allow)
        return is_allowed and not any(fnmatchcase(tool, pattern) for pattern in self.deny)

    def cwd(self) -> Path:
        base = self.module.working_dir
        configured = self.target.cwd if isinstance(self.target, Program) else None
        return base.join(configured) if configured else base.path()


def is_enabled(name: Any, entry: Any) -> bool:
    """True if an entry is to be looked at further; one that may be disabled is not."""
    if not isinstance(entry, Mapping):
        return True
    switches = LenientConfig(_place(name), {key: entry[key] for key in ("enabled", "disabled") if key in entry})
    is_disabled = switches.boolean("disabled", False, when_unusable=True)
    return switches.boolean("enabled", not is_disabled, when_unusable=False)


def read_entry(name: Any, entry: Any, module: ModuleSettings) -> ServerSettings:
    """Return what an entry says; raises `EntryError` when it is broken."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "letters, digits, '_', '.', '-', at most 64, and a letter or digit first"
        raise EntryError(f"servers.{str(name)[:64]!r}", "the name of the server cannot be used", expected)
    place = f"servers.{name}"
    if not isinstance(entry, Mapping):
        raise EntryError(place, f"the entry is a {type(entry).__name__}", "a mapping")
    return _Reader(name, entry, module).read()


class _Reader:
    """Reads one entry, key by key."""

    def __init__(self, name: str, entry: Mapping[str, Any], module: ModuleSettings) -> None:
        self._name, self._entry, self._module = name, entry, module
        self._place = f"servers.{name}"
        self._config = LenientConfig(_place(name), entry)

    def read(self) -> ServerSettings:
        config = self._config
        config.accept("enabled", "disabled", "visibility")
        kind = self._kind()
        target: Program | Endpoint = self._program() if kind == "command" else self._endpoint()
        settings = ServerSettings(
            name=self._name,
            transport=self._transport(kind),
            target=target,
            protocol=self._protocol(),
            allow=self._strings("allow"),
            deny=self._strings("deny") or (),
            trust_annotations=config.boolean("trust_annotations", False),
            limits=Limits.read(config, self._entry, self._module.limits),
            module=self._module,
            redactor=target.redactor,
        )
        for key in config.accept(*_OF_THE_OTHER_KIND[kind]):
            logger.warning("%s: %r has no effect beside %r", _place(self._name), key, kind)
        config.warn_unknown()
        return settings

    def _kind(self) -> str:
        found = self._config.accept("command", "url")
        if not found:
            problem = "it is empty" if "command" in self._entry else "neither 'command' nor 'url' is given"
            raise self._error("command", problem, "a program, or 'url' with an address")
        if len(found) > 1:
            raise self._error("command", "'url' is given as well", "one of them")
        return found[0]

    def _program(self) -> Program:
        command = self._config.raw("command")
        if not isinstance(command, str):
            raise self._error("command", f"it is a {type(command).__name__}", "a string")
        if not command.strip() or "\0" in command:
            raise self._error("command", "it is empty or contains a NUL character", "a program")
        args = self._strings("args") or ()
        if any("\0" in argument for argument in args):
            raise self._error("args", "one contains a NUL character", "a list of strings")
        env_inherit = self._strings("env_inherit") or ()
        if "*" in env_inherit:
            logger.warning(
                "%s: 'env_inherit' gives the server all that policy.environment passes on", _place(self._name)
            )
        cwd = self._config.raw("cwd")
        if cwd is not None and (not isinstance(cwd, str | Path) or "\0" in str(cwd)):
            raise self._error("cwd", f"it is a {type(cwd).__name__}", "a path")
        env = self._texts("env")
        if not all(name and "=" not in name and "\0" not in name + value for name, value in env.items()):
            raise self._error("env", "a name or value is not possible in an environment", "names without '='")
        return Program(
            command=str(expand_home(command)),
            args=args,
            env=env,
            env_inherit=env_inherit,
            cwd=str(cwd) if cwd is not None else None,
            sandbox=read_mode(self._config, default="off"),
            read=self._strings("read"),
            write=self._strings("write") or (),
            has_network=self._config.boolean("network", False),
        )

    def _endpoint(self) -> Endpoint:
        url = self._config.raw("url")
        if not isinstance(url, str):
            raise self._error("url", f"it is a {type(url).__name__}", "a string")
        expected = "http:// or https://, a host, no user name, for example https://example.org/mcp"
        try:
            parts = urlsplit(url)
            problem = _url_problem(url, parts.scheme, parts.hostname, parts.netloc, parts.port)
        except ValueError:
            raise self._error("url", "it is not a URL", expected) from None
        if problem:
            raise self._error("url", problem, expected)
        headers = self._texts("headers")
        if not all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(text) for name, text in headers.items()):
            raise self._error("headers", "a name or value is not possible in HTTP", "names and values in plain ASCII")
        headers = {name: text for name, text in headers.items() if text}
        if headers and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            logger.warning("%s: 'headers' are sent over plain http, readable on the way", _place(self._name))
        return Endpoint(url, headers)

    def _transport(self, kind: str) -> Transport:
        given = self._config.raw("type")
        given = self._config.raw("transport") or given
        if given is None:
            return "stdio" if kind == "command" else "http"
        transport = _TRANSPORTS.get(given) if isinstance(given, str) else None
        if transport is None:
            raise self._error("transport", f"{str(given)[:40]!r} is not known", "stdio, http or sse")
        if (transport == "stdio") is not (kind == "command"):
            raise self._error(
                "transport", f"{transport!r} does not fit {kind!r}", "stdio for a command, else http or sse"
            )
        return transport

    def _protocol(self) -> str:
        given = self._config.raw("protocol")
        if given is None or given in ("auto", "legacy"):
            return str(given or "auto")
        if not isinstance(given, str) or not _REVISION.fullmatch(given) or given < _FIRST_REVISION:
            expected = f"auto, legacy, or a revision from {_FIRST_REVISION} on"
            raise self._error("protocol", f"{str(given)[:40]!r} is not known", expected)
        return given

    def _strings(self, key: str) -> tuple[str, ...] | None:
        given = self._config.raw(key)
        if given is None:
            return None
        if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
            raise self._error(key, "it is something else", "a list of strings")
        return tuple(given)

    def _texts(self, key: str) -> dict[str, str]:
        """Return a mapping of names to texts without those that still are references to what was never set."""
        given = self._config.raw(key)
        if given is None:
            return {}
        if not isinstance(given, Mapping) or not all(isinstance(item, str) for pair in given.items() for item in pair):
            raise self._error(key, "it is something else", "a mapping of strings to strings")
        unset = [name for name, text in given.items() if _REFERENCE.search(text)]
        for name in unset:
            logger.warning("%s: %s.%s refers to what is not set and is left out", _place(self._name), key, name)
        return {name: text for name, text in given.items() if name not in unset}

    def _error(self, key: str, problem: str, expected: str) -> EntryError:
        return EntryError(f"{self._place}.{key}", problem, expected)


def _place(name: Any) -> str:
    return f"{MODULE_ID}: servers.{str(name)[:64]}"


def _url_problem(url: str, scheme: str, host: str | None, authority: str, port: int | None) -> str:
    if scheme not in ("http", "https"):
        return "it has another scheme"
    if not host or port == 0:
        return "it has no host"
    if "@" in authority:
        return "it has a user name or password in it"
    return "it has white space or control characters in it" if re.search(r"[\s\x00-\x1f\x7f]", url) else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
