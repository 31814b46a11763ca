"""The names under which the tools of servers are mounted."""

import hashlib
import re
from collections.abc import Callable, Iterable

ToolKey = tuple[str, str]  # the name of the server, and the server's own name of the tool

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
_KEPT = 55


class NameBook:
    """Gives out names: every tool has one for as long as the session lasts, and no name has two tools."""

    def __init__(self) -> None:
        self._names: dict[ToolKey, str] = {}

    def assign(
        self, wanted: Iterable[tuple[str, ToolKey]], is_free: Callable[[str, ToolKey], bool]
    ) -> dict[ToolKey, str | None]:
        """Return a name for each tool, given with its prefix, servers in the order of the configuration.

        `is_free` says whether a name is not taken. None is for a tool that cannot be given any.
        """
        ranks: dict[str, int] = {}
        asked = [(ranks.setdefault(key[0], len(ranks)), prefix, key) for prefix, key in wanted]
        asked.sort(key=lambda item: (item[0], bool(_UNUSABLE.search(item[2][1])), item[2][1]))
        return {key: self._assign(prefix, key, is_free) for _, prefix, key in asked}

    def _assign(self, prefix: str, key: ToolKey, is_free: Callable[[str, ToolKey], bool]) -> str | None:
        taken = {name: owner for owner, name in self._names.items()}
        known = [self._names[key]] if key in self._names else []
        for name in (*known, tool_name(prefix, key), tool_name(prefix, key, is_taken=True)):
            if taken.get(name, key) == key and is_free(name, key):
                self._names[key] = name
                return name
        return None


def tool_name(prefix: str, key: ToolKey, *, is_taken: bool = False) -> str:
    """Return the name of a tool; `is_taken` asks for the one that tells it from its namesakes."""
    server, tool = key
    digits = hashlib.sha256(f"{server}\n{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    name = _UNUSABLE.sub("_", f"{prefix}{server}_{tool}")
    if is_taken:
        name = f"{name}_{digits}"
    return f"{name[:_KEPT]}_{digits}" if len(name) > _LONGEST else name
