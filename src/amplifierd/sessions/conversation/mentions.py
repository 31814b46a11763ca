"""Mentions in profiles and prompts: where they lead in a home, and the messages that come of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.mentions import ContentDeduplicator, load_mentions
from amplifier_foundation.mentions.protocol import ReadPolicy

MAX_ENTRIES = 200


class ProfileMentionResolver:
    """Finds what a session mentions: in its profile's contexts, in collections, in its working directory.

    What is found must lie inside the root it was searched in, links resolved. `failure_reason` says why not. The root
    of relative paths is the working directory, or a directory above it that is given as `inside`. `declared` are files
    with names of their own.
    """

    def __init__(
        self,
        *,
        contexts_dir: Path,
        collection_roots: Mapping[str, Path],
        working_dir: Path,
        allow_home: bool = False,
        inside: Path | None = None,
        declared: Mapping[str, Path] | None = None,
    ) -> None:
        self._inside = inside or working_dir
        self._contexts_dir = contexts_dir
        self._collections = dict(collection_roots)
        self._working_dir = working_dir
        self._allow_home = allow_home
        self._declared = declared or {}
        self._roots: dict[Path, Path] = {}  # of every file found, the root it was found in
        self._reasons: dict[str, str] = {}

    def resolve(self, mention: str, relative_to: Path | None = None) -> Path | None:
        """Return the file or directory that a mention, `@` included, means, `None` when it means nothing here."""
        body = mention.removeprefix("@")
        self._reasons.pop(mention, None)
        for name in dict.fromkeys((body, body.rstrip(".:"))):
            if name and (found := self._find(mention, name, relative_to)):
                return found
        return None

    def failure_reason(self, mention: str) -> str:
        return self._reasons.get(mention, "not_found")

    def _find(self, mention: str, body: str, relative_to: Path | None) -> Path | None:
        for root, path in self._candidates(mention, body, relative_to):
            try:
                place = (root / path).resolve()
                if not place.is_relative_to(root.resolve()):
                    self._reasons[mention] = "path_traversal_rejected"
                elif place.exists():
                    self._roots[place] = root
                    return place
            except (OSError, ValueError, RuntimeError):  # a name that no file can have
                continue
        return None

    def _candidates(self, mention: str, body: str, relative_to: Path | None) -> list[tuple[Path, str]]:
        """Return roots and paths below them to try, in order."""
        if body in self._declared:
            file = self._declared[body]
            return [(file.parent, file.name)]
        name, colon, path = body.partition(":")
        if colon:
            if name in ("", ".", "..") or "/" in name:
                return []
            shorter = path.removeprefix("context/")
            found = [(self._contexts_dir / name, rest) for rest in dict.fromkeys((path, shorter))]
            known = name in self._collections or (self._contexts_dir / name).is_dir()
            if not known:
                self._reasons[mention] = "bundle_not_registered"
            return [*found, (self._collections[name], path)] if name in self._collections else found
        if body.startswith("~"):
            return [(Path.home(), body[2:])] if self._allow_home and body.startswith("~/") else []
        here = self._working_dir.relative_to(self._inside) / body
        roots = [(self._inside, str(here)), (self._inside, f"{here}.md")]
        if relative_to is not None:
            root = self._root_of(relative_to)
            near = relative_to.resolve().relative_to(root.resolve()) / body
            roots = [(root, str(near)), (root, f"{near}.md"), *roots]
        return roots

    def _root_of(self, directory: Path) -> Path:
        """Return the root in which the file that mentions was found: nothing outside it is meant."""
        found = [root for place, root in self._roots.items() if place.parent == directory.resolve()]
        return found[0] if found else directory


@dataclass(frozen=True)
class LoadedMentions:
    """The messages to add to a conversation, and the mentions, nested ones too, that led nowhere, with the reason."""

    messages: tuple[dict[str, Any], ...]
    unresolved: tuple[tuple[str, str], ...]


async def load_mentioned(
    text: str,
    resolver: ProfileMentionResolver,
    *,
    max_depth: int = 8,
    max_files: int = 200,
    max_file_bytes: int = 1024 * 1024,
    max_total_bytes: int = 4 * 1024 * 1024,
    policy: ReadPolicy | None = None,
) -> LoadedMentions:
    """Load what a text mentions, one developer message per content, crediting every mention that led to it.

    `policy` says what may be read; without one, everything but the places that hold secrets.
    """
    files, asked = ContentDeduplicator(), _Asked(resolver)
    results = await load_mentions(
        text,
        asked,
        files,
        max_depth=max_depth,
        quoted=True,
        nested_relative=True,
        max_files=max_files,
        max_file_bytes=max_file_bytes,
        max_total_bytes=max_total_bytes,
        max_entries=MAX_ENTRIES,
        policy=policy,
    )
    messages, loaded = [], set[Path]()
    for file in files.get_unique_files():
        loaded.update(file.paths)
        credits = [(mention, path) for path in file.paths for mention, found in asked.found if found == path]
        header = ", ".join(f"{mention} → {path}" for mention, path in credits)
        messages.append(
            {
                "role": "developer",
                "content": sys.intern(f"[Context from {header}]\n\n{file.content}"),  # the same in many sessions
                "source_mentions": list(dict.fromkeys(mention for mention, _ in credits)),
                "content_hash": file.content_hash,
                "paths": [str(path) for path in file.paths],
            }
        )
    failed = {result.mention: result.failure_reason for result in results if result.failure_reason}
    unread = {mention: "unknown" for mention, path in asked.found if path not in loaded}
    return LoadedMentions(tuple(messages), tuple({**unread, **asked.refused, **failed}.items()))


class _Asked:
    """A resolver that remembers what became of each mention: those in loaded files are in no result of the loader."""

    def __init__(self, resolver: ProfileMentionResolver) -> None:
        self._resolver = resolver
        self.found: dict[tuple[str, Path], None] = {}
        self.refused: dict[str, str] = {}

    def resolve(self, mention: str, relative_to: Path | None = None) -> Path | None:
        path = self._resolver.resolve(mention, relative_to)
        if path is None:
            self.refused[mention] = self.failure_reason(mention)
        else:
            self.found[mention, path.resolve()] = None
        return path

    def failure_reason(self, mention: str) -> str:
        return self._resolver.failure_reason(mention)
