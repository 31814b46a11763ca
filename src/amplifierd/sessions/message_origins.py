"""Where a message of a provider request comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from amplifier_kit.contexts.shortening import STUB_START
from amplifier_kit.contexts.units import COMPACTION_SOURCE

Kind = Literal[
    "instruction",
    "context_file",
    "mention",
    "inherited",
    "message",
    "injection",
    "compaction",
    "orchestrator",
    "other",
]
FindInjector = Callable[[str], tuple[str, str] | None]

ORIGIN = "origin"
"""The key of a message's metadata that says its origin outright: `{"kind": …, "path": …}`."""

_CONTEXT = re.compile(r"\[Context from ([^\n]+)\]\n")
_CONTEXT_FILE = re.compile(r'<context_file paths="([^"\n]+)">')
_REMINDER = re.compile(r'\s*<system-reminder source="([^"\n]+)">')
_KINDS: dict[Any, Kind] = {kind: kind for kind in get_args(Kind)} | {"context": "context_file"}
_SOURCES = ("sources", "mentions", "path", "profile", "bundle", "agent")


@dataclass(frozen=True, slots=True)
class Origin:
    """Why something is in a request: its kind, and the hook with its event or the files that it came from."""

    kind: Kind
    hook: str = ""
    event: str = ""
    sources: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": self.kind}
        for name in ("hook", "event"):
            if value := getattr(self, name):
                plain[name] = value
        return {**plain, "sources": list(self.sources)} if self.sources else plain

    @classmethod
    def from_json(cls, value: object) -> Origin:
        given = value if isinstance(value, Mapping) else {}
        named = (given[key] for key in _SOURCES if given.get(key))
        sources = [str(one) for names in named for one in (names if isinstance(names, list | tuple) else [names])]
        hook, event = str(given.get("hook") or ""), str(given.get("event") or "")
        return cls(_KINDS.get(given.get("kind"), "other"), hook, event, tuple(sources))


MESSAGE = Origin("message")


def origin_of(role: str, text: str, metadata: Mapping[str, Any], find_injector: FindInjector) -> Origin:
    """Return the origin of a message that is not in the transcript."""
    if isinstance(declared := metadata.get(ORIGIN), Mapping):
        return Origin.from_json(declared)
    source = metadata.get("source")
    if source == COMPACTION_SOURCE or text.startswith(STUB_START):
        return Origin("compaction")
    if source == "hook" or metadata.get("ephemeral"):
        return injection(text, metadata, find_injector)
    if found := find_injector(text):
        return Origin("injection", *found)
    if header := _CONTEXT.match(text):
        sources = tuple(header[1].split(", "))
        return Origin(
            "mention" if any(source.startswith("@") for source in sources) else "context_file", "", "", sources
        )
    if reminder := _REMINDER.match(text):
        return Origin("orchestrator", sources=(reminder[1],))
    if role == "system":
        files = tuple(dict.fromkeys(_CONTEXT_FILE.findall(text)))
        return Origin("instruction", sources=files)
    return Origin("other")


def injection(text: str, metadata: Mapping[str, Any], find_injector: FindInjector) -> Origin:
    """Return the origin of a text that a hook injected."""
    hook, event = metadata.get("hook_name"), metadata.get("event")
    found = (str(hook), str(event or "")) if hook else find_injector(text)
    return Origin("injection", *(found or ("", str(event or ""))))
