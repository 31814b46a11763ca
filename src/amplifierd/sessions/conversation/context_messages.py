"""What a session is told beside its conversation: the instruction, context files, `AGENTS.md`, mentioned files.

Each piece is a message in the context that says where it came from. They are kept beside the transcript, not in it, and
are installed again when the session is resumed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_foundation.mentions.protocol import ReadPolicy
from amplifierd.settings import MentionSettings
from amplifierd.store.protocol import Message

from .mentions import LoadedMentions, ProfileMentionResolver, load_mentioned

DOCUMENT = "context_messages"
_AGENTS_FILE = "AGENTS.md"


@dataclass(frozen=True)
class MentionPlaces:
    """Where a session's mentions lead: its profile's contexts, the collections, its working directory."""

    working_dir: Path
    contexts_dir: Path
    collection_roots: Mapping[str, Path] = field(default_factory=dict)
    allow_home: bool = False

    def resolver(
        self,
        working_dir: Path | None = None,
        inside: Path | None = None,
        *,
        declared: Mapping[str, Path] | None = None,
    ) -> ProfileMentionResolver:
        return ProfileMentionResolver(
            contexts_dir=self.contexts_dir,
            collection_roots=self.collection_roots,
            working_dir=working_dir or self.working_dir,
            allow_home=self.allow_home,
            inside=inside,
            declared=declared,
        )


@dataclass
class ContextMessages:
    """The messages of one session, in the order in which they were added; `turn` 0 stands before the first turn.

    `reworded` has prompts as hooks or the orchestrator changed them on their way into the context, by the ids of their
    lines in the transcript, which has what was typed. `in_system_prompt` returns the hashes of the files that a
    bundle's system prompt has: they are not told again.
    """

    places: MentionPlaces
    settings: MentionSettings
    policy: ReadPolicy | None = None
    in_system_prompt: Callable[[], Awaitable[frozenset[str]]] | None = None
    entries: list[Message] = field(default_factory=list)
    reworded: dict[str, Any] = field(default_factory=dict)
    unresolved: list[tuple[str, str]] = field(default_factory=list)
    is_begun: bool = False

    def document(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"begun": self.is_begun, "messages": self.entries}
        return {**stored, "reworded": self.reworded} if self.reworded else stored

    def restore(self, document: Any) -> None:
        """Take up what was stored."""
        self.entries, self.reworded = _entries_of(document), _reworded_in(document)
        self.is_begun = bool(document.get("begun", self.entries)) if isinstance(document, Mapping) else False

    def inherit(self, messages: Sequence[Message]) -> None:
        """Take in what a child is told of its parent's conversation."""
        origin = {"kind": "other", "sources": ["the parent's conversation"]}
        self.entries += [
            {**_entry(str(message.get("role")), message.get("content") or "", origin, digest(str(message))), "turn": 0}
            for message in messages
        ]

    async def begin(
        self, instruction: str, *, source: Mapping[str, Any] | None, declared: Mapping[str, Path] | None = None
    ) -> None:
        """Take in what the session starts with: the instruction and what it mentions, then every `AGENTS.md`.

        `declared` are the context files that a behaviour adds to the instruction, by name.
        """
        self.is_begun = True
        if instruction:
            origin = {"kind": "instruction", "sources": [str(value) for value in (source or {}).values()]}
            self._keep([_entry("system", instruction, origin, digest(instruction))], 0)
            await self._mentioned(instruction, self.places.resolver(), 0, "context_file")
        if declared:
            names = " ".join(f'@"{name}"' for name in declared)
            await self._mentioned(names, self.places.resolver(declared=declared), 0, "context_file")
        root, directories = await asyncio.to_thread(_find_agents_files, self.places.working_dir)
        for directory in directories:
            await self._mentioned(f"@{_AGENTS_FILE}", self.places.resolver(directory, root), 0, "context_file")

    async def for_prompt(self, prompt: str, turn: int) -> list[Message]:
        """Return the files that a prompt mentions and that are not in the context as they are now."""
        return await self._mentioned(prompt, self.places.resolver(), turn, "mention") if "@" in prompt else []

    def installed_before(self, transcript: Sequence[Message]) -> list[tuple[Message, bool]]:
        """Return the conversation with the context messages in their places; True marks those of the transcript."""
        whole: list[tuple[Message, bool]] = [(entry, False) for entry in self.entries if not entry.get("turn")]
        waiting = [entry for entry in self.entries if entry.get("turn")]
        for message in transcript:
            turn = message.get("turn")
            while waiting and isinstance(turn, int) and waiting[0]["turn"] <= turn:
                whole.append((waiting.pop(0), False))
            whole.append((self._as_message(message), True))
        return [*whole, *((entry, False) for entry in waiting)]

    def _as_message(self, message: Message) -> Message:
        """Return a message of the transcript as the context had it."""
        content = self.reworded.get(str(message.get("id")))
        return message if content is None else {**message, "content": content}

    def forget_after(self, turn: int) -> None:
        """Drop what later turns brought in."""
        self.entries = [entry for entry in self.entries if (entry.get("turn") or 0) <= turn]

    def take_unresolved(self) -> list[tuple[str, str]]:
        """Return the mentions that led nowhere since this was last asked, with the reason."""
        found, self.unresolved = self.unresolved, []
        return found

    async def _mentioned(self, text: str, resolver: ProfileMentionResolver, turn: int, kind: str) -> list[Message]:
        loaded: LoadedMentions = await load_mentioned(
            text,
            resolver,
            max_depth=self.settings.max_depth,
            max_files=self.settings.max_files,
            max_file_bytes=self.settings.max_file_bytes,
            max_total_bytes=self.settings.max_total_bytes,
            policy=self.policy,
        )
        self.unresolved += loaded.unresolved
        entries = [
            {**message, "origin": {"kind": kind, "sources": message["source_mentions"]}} for message in loaded.messages
        ]
        if entries and self.in_system_prompt is not None:
            found = await self.in_system_prompt()
            entries = [entry for entry in entries if entry["content_hash"] not in found]
        return self._keep(entries, turn)

    def _keep(self, entries: Sequence[Message], turn: int) -> list[Message]:
        """Take in what is not in the context as it is now."""
        latest = {path: entry["content_hash"] for entry in self.entries for path in entry.get("paths") or ()}
        known = {entry.get("content_hash") for entry in self.entries}
        new = [{**entry, "turn": turn} for entry in entries if not _is_known(entry, known, latest)]
        self.entries += new
        return new


def for_other_agent(document: Any) -> dict[str, Any]:
    """Return what stays of a session's context messages when another agent goes on: the files that prompts mention."""
    kept = {"begun": False, "messages": [entry for entry in _entries_of(document) if entry.get("turn")]}
    return {**kept, "reworded": reworded} if (reworded := _reworded_in(document)) else kept


def for_kernel(entry: Mapping[str, Any]) -> Message:
    """Return a context message as the context manager takes it."""
    return {
        "role": entry["role"],
        "content": entry["content"],
        "metadata": {"origin": entry.get("origin") or {}, "content_hash": entry.get("content_hash")},
    }


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _entry(role: str, content: Any, origin: Mapping[str, Any], content_hash: str) -> Message:
    return {"role": role, "content": content, "origin": dict(origin), "content_hash": content_hash}


def _entries_of(document: Any) -> list[Message]:
    stored = document.get("messages") if isinstance(document, Mapping) else None
    return [dict(entry) for entry in stored or () if isinstance(entry, Mapping)]


def _reworded_in(document: Any) -> dict[str, Any]:
    stored = document.get("reworded") if isinstance(document, Mapping) else None
    return dict(stored) if isinstance(stored, Mapping) else {}


def _is_known(entry: Message, known: Set[str | None], latest: Mapping[str, str]) -> bool:
    """True if a content is in the context, and nothing newer from the same file."""
    own = entry["content_hash"]
    return own in known and all(latest.get(path, own) == own for path in entry.get("paths") or ())


def _find_agents_files(working_dir: Path) -> tuple[Path, list[Path]]:
    """Return the repository's root, and the directories down to this one that have an `AGENTS.md`, outermost first."""
    above = (working_dir, *working_dir.parents)
    root = next((directory for directory in above if os.path.lexists(directory / ".git")), working_dir)
    inside = [directory for directory in reversed(above) if directory.is_relative_to(root)]
    return root, [directory for directory in inside if _says_something(directory / _AGENTS_FILE)]


def _says_something(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
