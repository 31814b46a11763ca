"""The ledger of a session: what it was given by a person, by the web and by this machine.

The guard judges by it which addresses may be read unasked. It is kept in memory and bounded: `_URLS` addresses, and the
last `_CHARACTERS` characters that were read from files, commands and MCP servers. Once more than that was read, an
address is judged as if each long part of it had been among what is gone.
"""

import base64
import binascii
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from amplifier_core.boundary import Boundary
from amplifier_kit.concerns import Concern, concerns_of, host_and_port
from amplifier_kit.mounting import working_dir
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.effects import EXECUTE, NETWORK, READ, WRITE, effects_of

from .verdict import GuardedCall, Verdict

logger = logging.getLogger(__name__)

VALUE_CHARACTERS = 12
UNASKED_PER_HOST = 10

_URLS = 10_000
_CHARACTERS = 2 << 20
_MAPPINGS = (dict, Mapping)  # a dict is recognized without asking the abstract class
_BLOCK = VALUE_CHARACTERS // 2  # whatever two texts have in common has a block of one of them whole in it
_URL = re.compile(r"https?://[^\s<>\"'`\\^{}|\x00-\x20\x7f]+", re.IGNORECASE)
_TRAILING = ".,;:!?)]*_>"
_SEPARATORS = re.compile(r"[/?#&=;,]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
_FILES = frozenset({READ, WRITE})
_PATH_KEYS = frozenset({"path", "file_path", "paths", "directory", "dir", "cwd"})
_REACHES_OUT = re.compile(r"://|\b(?:curl|wget|git\s+(?:clone|fetch|pull)|pip|npm|ssh|scp|nc|ftp)\b")
_ENVIRONMENT = re.compile(r"\b(?:env|printenv|set|declare|export|typeset|compgen)\b|\$\{?[A-Za-z_]")
_OUTSIDE = re.compile(r"(?:^|[\s='\"<>(]|:(?!//))(?:~|\.\.(?:/|$|\s)|/(?!dev/null\b)[^\s'\"]*)")


class Ledger:
    """What one session and its children have been given so far."""

    def __init__(self) -> None:
        self.has_outside_content = False
        """Something from the web or from an MCP server was read."""
        self.has_private_data = False
        """Files outside the working directory, the environment or an MCP server were read."""
        self._urls: dict[str, None] = {}
        self._read: deque[str] = deque()
        self._size = 0
        self._has_forgotten = False
        self._unasked: dict[str, set[str]] = {}

    @property
    def is_tainted(self) -> bool:
        """True for a session that can be told by others what to do, and knows what is not theirs."""
        return self.has_outside_content and self.has_private_data

    def taint(self) -> None:
        """Take over what is known of the session from an earlier process."""
        self.has_outside_content = self.has_private_data = True

    def note_prompt(self, text: str) -> None:
        """Take down the addresses in what a person wrote."""
        self._note_urls((text,))

    def note_files(self, text: str, paths: Iterable[str], working_dir: Path) -> None:
        """Take down what a session was given of files without a tool, because a person mentioned them."""
        self.has_private_data = self.has_private_data or any(_is_outside(path, working_dir) for path in paths)
        self._note_read((text,))

    def note_result(
        self, tool: Any, identity: str, tool_input: Any, result: Any, working_dir: Callable[[], Path]
    ) -> None:
        """Take down what a call of a tool returned."""
        given = tool_input if isinstance(tool_input, _MAPPINGS) else {}
        effects = effects_of(tool, identity, given)
        texts = _texts(_content(result))
        if NETWORK in effects and is_of_mcp(tool, identity):
            self.has_outside_content = self.has_private_data = True
            self._note_read(texts)
        elif EXECUTE in effects:
            command = given.get("command")
            command = command if isinstance(command, str) else ""
            self.has_outside_content |= _REACHES_OUT.search(command) is not None
            self.has_private_data = self.has_private_data or _is_private_command(command, working_dir())
            self._note_read(texts)
        elif NETWORK in effects:
            self.has_outside_content = True
            self._note_urls(texts)
        elif not _FILES.isdisjoint(effects):
            if not self.has_private_data and (paths := _paths(given)):
                self.has_private_data = any(_is_outside(path, working_dir()) for path in paths)
            self._note_read(texts)

    def note_history(
        self, messages: Iterable[Any], find_tool: Callable[[str], Any], working_dir: Callable[[], Path]
    ) -> None:
        """Take down the results in the history of a session that is resumed; none of its texts counts as a person's."""
        calls: dict[str, tuple[str, Any]] = {}
        for message in messages:
            if not isinstance(message, Mapping):
                continue
            for call in message.get("tool_calls") or ():
                if isinstance(call, Mapping) and isinstance(name := call.get("tool") or call.get("name"), str):
                    calls[str(call.get("id"))] = (name, call.get("arguments"))
            if message.get("role") == "tool" and (found := calls.get(str(message.get("tool_call_id")))):
                name, given = found
                tool = find_tool(name)
                identity = getattr(tool, "name", name)
                content = {"content": message.get("content")}
                self.note_result(tool, identity if isinstance(identity, str) else name, given, content, working_dir)

    def may_read(self, url: str, host: str) -> bool:
        """True for an address that may be read unasked: one of the first few of its host; it counts as read then."""
        address, known = _comparable(url), self._unasked.setdefault(host, set())
        if self.is_tainted or address not in self._urls or self.carries_read_value(url):
            return False
        if address not in known and len(known) >= UNASKED_PER_HOST:
            return False
        known.add(address)
        return True

    def carries_read_value(self, url: str) -> bool:
        """True where path, query or fragment have a value in them that was read from files, commands or MCP."""
        parts = urlsplit(url)
        carried = f"{parts.path}?{parts.query}#{parts.fragment}"
        return any(self._has_read(form) for form in _forms(carried))

    def _has_read(self, text: str) -> bool:
        text = text.casefold()
        if self._has_forgotten and any(len(piece) >= VALUE_CHARACTERS for piece in _SEPARATORS.split(text)):
            return True
        return any(_has_common(read, text) for read in self._read)

    def _note_read(self, texts: Iterable[str]) -> None:
        for text in texts:
            if len(text) < VALUE_CHARACTERS:
                continue
            if len(text) > _CHARACTERS:
                self._has_forgotten, text = True, text[-_CHARACTERS:]
            self._read.append(text.casefold())
            self._size += len(text)
            while self._size > _CHARACTERS:
                self._size -= len(self._read.popleft())
                self._has_forgotten = True

    def _note_urls(self, texts: Iterable[str]) -> None:
        for text in texts:
            for found in _URL.findall(text):
                for url in {found, found.rstrip(_TRAILING)}:
                    self._urls[_comparable(url)] = None
        while len(self._urls) > _URLS:
            del self._urls[next(iter(self._urls))]


def is_of_mcp(tool: Any, identity: str) -> bool:
    """True for a tool of an MCP server."""
    if identity.startswith(("mcp_", "mcp-", "mcp.")):
        return True
    metadata = getattr(tool, "metadata", None)
    describe = getattr(tool, "get_metadata", None)
    if callable(describe):
        with Boundary(logger, "hooks-approval: a tool cannot describe itself: %s"):
            metadata = describe()
    return isinstance(metadata, Mapping) and "mcp" in metadata


def _content(result: Any) -> Any:
    if isinstance(result, dict):
        return result
    output, error = getattr(result, "output", result), getattr(result, "error", None)
    return output if error is None else (output, error)


def _texts(value: Any, depth: int = 8) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode("utf-8", "replace")]
    if not depth or not isinstance(value, (dict, list, tuple, Mapping)):
        return []
    items = value.values() if isinstance(value, _MAPPINGS) else value
    return [text for item in items for text in _texts(item, depth - 1)]


def _comparable(url: str) -> str:
    """Return an address without its fragment, which is sent to nobody, and with its host in lower case."""
    scheme, separator, rest = url.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{separator}{host.lower()}{slash or '/'}{path}"


def _forms(text: str) -> set[str]:
    """Return a text as it stands, decoded (percent signs, base64, hexadecimal), and each without separators."""
    forms = {text}
    for _ in range(2):
        forms |= {unquote_plus(form) for form in forms}
    for form in tuple(forms):
        forms.update(_decoded(form))
    return forms | {_SEPARATORS.sub("", form) for form in forms}


def _decoded(text: str) -> Iterator[str]:
    for found in _HEX.findall(text):
        yield bytes.fromhex(found).decode("utf-8", "replace")
    for found in _BASE64.findall(text):
        padded = found.translate(str.maketrans("-_", "+/"))
        try:
            yield base64.b64decode(padded[: len(padded) - (len(padded) % 4 == 1)] + "==", validate=False).decode(
                "utf-8", "replace"
            )
        except (binascii.Error, ValueError):
            continue


def _has_common(read: str, text: str) -> bool:
    """True where two texts have `VALUE_CHARACTERS` characters in a row in common."""
    for start in range(0, len(text) - _BLOCK + 1, _BLOCK):
        block = text[start : start + _BLOCK]
        place = read.find(block)
        while place >= 0:
            if _common_around(read, place, text, start) >= VALUE_CHARACTERS:
                return True
            place = read.find(block, place + 1)
    return False


def _common_around(read: str, place: int, text: str, start: int) -> int:
    before = 0
    while place > before and start > before and read[place - before - 1] == text[start - before - 1]:
        before += 1
        if before == VALUE_CHARACTERS:
            return before
    after = 0
    while place + after < len(read) and start + after < len(text) and read[place + after] == text[start + after]:
        after += 1
        if before + after == VALUE_CHARACTERS:
            break
    return before + after


def _paths(given: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in given.items():
        if key in _PATH_KEYS:
            values = value if isinstance(value, (list, tuple)) else (value,)
            found += [path for path in values if isinstance(path, str)]
    return found


def _is_outside(path: str, working_dir: Path) -> bool:
    try:
        return not (working_dir / Path(path).expanduser()).resolve().is_relative_to(working_dir.resolve())
    except (OSError, ValueError, RuntimeError):
        return True


def _is_private_command(command: str, working_dir: Path) -> bool:
    """True for a command that says it reads beyond the working directory, or its environment."""
    inside = command.replace(f"{working_dir}/", "").replace(str(working_dir), ".")
    return _ENVIRONMENT.search(inside) is not None or _OUTSIDE.search(inside) is not None


# The hosts of a call: which ones it would reach, and whether anybody has to be asked about them.


_URL_KEYS = ("url", "uri", "href", "link", "endpoint", "address")
_HOST_KEYS = ("host", "hostname", "domain", "server")


def concerns_of_call(call: GuardedCall) -> tuple[Concern, ...]:
    """Return what a call touches: what its tool says, else the hosts in the input of a tool that uses the network.

    A tool that can run anything is asked about as such, and the servers of MCP tools are named in the configuration.
    """
    if callable(getattr(call.tool, "concerns_of", None)):
        return concerns_of(call.tool, call.tool_input)
    if NETWORK not in call.effects or EXECUTE in call.effects or is_of_mcp(call.tool, call.identity):
        return ()
    found = {concern.subject: concern for concern in _hosts_in(call)}
    return tuple(found.values()) or (_unknown_host_of(call),)


def judge_host(concern: Concern, ledger: Ledger, coordinator: Any) -> Verdict | None:
    """Return what policy and ledger say about a host that nobody has agreed to; None leaves it to a person."""
    network = session_policy(coordinator, working_dir(coordinator)).network
    host = concern.subject.rpartition(":")[0] or concern.subject
    if concern.detail:
        try:
            network.check(concern.detail)
        except PolicyError as exc:
            return Verdict(False, str(exc), "rule")
    if network.is_named(host.strip("[]")):
        return Verdict(True, "Its host is named in policy.network.allow", "rule")
    if concern.detail and ledger.may_read(concern.detail, concern.subject):
        return Verdict(True, "Its address was given to the session", "rule")
    return None


def _unknown_host_of(call: GuardedCall) -> Concern:
    return Concern("host", f"{call.identity}, host unknown", f"{call.tool_name} reaches the network, host unknown")


def _hosts_in(call: GuardedCall) -> Iterator[Concern]:
    """Yield the hosts that the input of a tool names; only one that sends nothing but the address reads it."""
    sends_more = any(
        key not in _URL_KEYS and not isinstance(value, bool | int | float | None)
        for key, value in call.tool_input.items()
    )
    for url in _urls_in(call.tool_input):
        subject = host_and_port(url)
        if subject is not None:
            words = f"{call.tool_name} reaches {subject}"
            yield Concern("host", subject, f"{words} ({url})") if sends_more else Concern("host", subject, words, url)


def _urls_in(value: Any, key: str = "", depth: int = 5) -> Iterator[str]:
    if isinstance(value, str):
        text = value.strip()
        if text.lower().startswith(("http://", "https://", "ws://", "wss://", "ftp://")):
            yield text
        elif key in _HOST_KEYS or (key in _URL_KEYS and "." in text):
            yield f"https://{text}"
    elif depth and isinstance(value, Mapping):
        for name, item in value.items():
            yield from _urls_in(item, str(name).lower(), depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _urls_in(item, key, depth - 1)


class Agreements:
    """What a person agreed to in this session, and the rules that decide about a concern without a question."""

    def __init__(self, coordinator: Any, ledger: Ledger) -> None:
        self._coordinator, self._ledger = coordinator, ledger
        self._agreed: set[str] = set()

    def open(self, concerns: Iterable[Concern]) -> tuple[Concern, ...]:
        """Return the concerns that nobody has agreed to yet."""
        return tuple(concern for concern in concerns if not self._covers(concern))

    def agree(self, concerns: Iterable[Concern]) -> None:
        """Note a yes to each of the concerns."""
        self._agreed.update(concern.key for concern in concerns if concern.key is not None)

    def forget(self, key: str) -> None:
        self._agreed.discard(key)

    def is_wary(self, concerns: Iterable[Concern]) -> bool:
        """True if no answer of this session stands for these concerns: it could leak what it read to a host."""
        return self._ledger.is_tainted and any(concern.kind == "host" for concern in concerns)

    def judge(self, concern: Concern, tool_name: str) -> Verdict | None:
        """Return what the rules say about a concern that nobody has agreed to; None leaves it to a person."""
        match concern.kind:
            case "place":
                return self._judge_place(concern, tool_name)
            case "host":
                return self._judge_host(concern, tool_name)
        return None

    def _judge_place(self, concern: Concern, tool_name: str) -> Verdict | None:
        return None

    def _judge_host(self, concern: Concern, tool_name: str) -> Verdict | None:
        return judge_host(concern, self._ledger, self._coordinator)

    def _covers(self, concern: Concern) -> bool:
        if concern.key is None or self.is_wary([concern]):
            return False
        host, _, port = concern.subject.rpartition(":")
        is_secured = concern.kind == "host" and port == "443" and f"host:{host}:80" in self._agreed
        return is_secured or concern.key in self._agreed
