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
from amplifier_kit.tools.effects import EXECUTE, NETWORK, READ, WRITE, effects_of

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
