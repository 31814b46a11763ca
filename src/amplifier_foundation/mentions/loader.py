"""Reading what a text mentions, and what that mentions in turn."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.io.files import read_patiently
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_system.policy import default_policy

from .deduplicator import ContentDeduplicator
from .models import ContextFile, MentionResult
from .parser import parse_mentions
from .protocol import MentionResolverProtocol, ReadPolicy
from .utils import format_directory_listing

logger = logging.getLogger(__name__)


async def load_mentions(
    text: str,
    resolver: MentionResolverProtocol,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    max_depth: int = 3,
    *,
    quoted: bool = False,
    nested_relative: bool = False,
    max_files: int | None = None,
    max_file_bytes: int | None = None,
    max_total_bytes: int | None = None,
    max_entries: int | None = None,
    policy: ReadPolicy | None = None,
) -> list[MentionResult]:
    """Load what `text` mentions and return one result per mention, in order. Failures are results, never raised.

    Files are searched for mentions of their own, `max_depth` levels down; what those bring goes to the `deduplicator`
    only. Content the deduplicator knows is neither repeated nor searched again, which is what ends cycles.

    Relative mentions belong to the resolver's folder. `relative_to` is a folder that is tried before it for the text
    itself; with `nested_relative` the folder of a mentioning file is tried first for the mentions in that file.

    Args:
        max_files: files and folders to load in all.
        max_file_bytes: size above which a file is `too_large`.
        max_total_bytes: bytes to load in all.
        max_entries: entries of a folder that are listed.
        policy: says what may be read; without one, all but the places that hold secrets.
    """
    if not parse_mentions(text, quoted=quoted):
        return []
    loading = MentionLoading(
        resolver,
        ContentDeduplicator() if deduplicator is None else deduplicator,
        max_depth=max_depth,
        quoted=quoted,
        nested_relative=nested_relative,
        files_left=max_files,
        max_file_bytes=max_file_bytes,
        bytes_left=max_total_bytes,
        max_entries=max_entries,
        policy=policy,
    )
    return await asyncio.to_thread(loading.load, text, relative_to)


@dataclass
class MentionLoading:
    """One loading of mentions. It blocks while it reads: a text with many of them takes one worker thread, once."""

    resolver: MentionResolverProtocol
    deduplicator: ContentDeduplicator
    max_depth: int = 3
    quoted: bool = False
    nested_relative: bool = False
    files_left: int | None = None
    max_file_bytes: int | None = None
    bytes_left: int | None = None
    max_entries: int | None = None
    policy: ReadPolicy | None = None

    def load(self, text: str, directory: Path | None = None, depth: int = 0) -> list[MentionResult]:
        """Return one result per mention; `directory` is tried first for relative ones."""
        return [self._load_one(mention, directory, depth) for mention in parse_mentions(text, quoted=self.quoted)]

    def _load_one(self, mention: str, directory: Path | None, depth: int) -> MentionResult:
        path: Path | None = None
        try:
            path = self._resolve(mention, directory)
            self._require_readable(path)
            is_directory = path.is_dir()
            content = self._read(path, is_directory)
            is_new = self._admit(path, content)
        except _Refused as refusal:
            return MentionResult(mention, path, None, None, failure_reason=refusal.reason)
        if not is_new and not is_directory:
            return MentionResult(mention, path, None, None)
        if not is_directory and depth < self.max_depth:
            self.load(content, path.parent if self.nested_relative else None, depth + 1)
        return MentionResult(mention, path, content, None, is_directory)

    def _resolve(self, mention: str, directory: Path | None) -> Path:
        resolve: Callable[..., Path | None] = self.resolver.resolve
        try:
            if directory is not None and _takes(resolve, "relative_to"):
                path = resolve(mention, relative_to=directory)
            else:
                path = resolve(mention)
            if path is not None:
                return path
            explain: Any = getattr(self.resolver, "failure_reason", None)
            reason = explain(mention) if callable(explain) else None
        except Exception as error:
            logger.warning("The resolver failed for %s", mention, exc_info=True)
            raise _Refused("unknown") from error
        raise _Refused(reason if isinstance(reason, str) else "not_found")

    def _require_readable(self, path: Path) -> None:
        if reason := why_unreadable(path, self.policy):
            raise _Refused(reason)

    def _read(self, path: Path, is_directory: bool) -> str:
        try:
            if is_directory:
                return format_directory_listing(path, self.max_entries)
            if self.max_file_bytes is not None and path.stat().st_size > self.max_file_bytes:
                raise _Refused("too_large")
            return read_patiently(path)
        except PermissionError as error:
            raise _Refused("permission_error") from error
        except UnicodeDecodeError as error:
            raise _Refused("binary") from error
        except OSError as error:
            raise _Refused("not_found") from error

    def _admit(self, path: Path, content: str) -> bool:
        """Hand the content to the deduplicator, within the limits, and say whether it was new."""
        has_limits = self.files_left is not None or self.bytes_left is not None
        if has_limits and not self.deduplicator.is_seen(content):
            size = len(content.encode())
            if self.files_left is not None and self.files_left <= 0:
                raise _Refused("limit_reached")
            if self.bytes_left is not None and size > self.bytes_left:
                raise _Refused("limit_reached")
            self.bytes_left = None if self.bytes_left is None else self.bytes_left - size
            self.files_left = None if self.files_left is None else self.files_left - 1
        return self.deduplicator.add_file(path, content)


def why_unreadable(path: Path, policy: ReadPolicy | None) -> str | None:
    """Return why a path may not be opened: by the policy, or because it is neither a file nor a folder."""
    try:
        if not _is_fetched(path):
            (policy or default_policy(Path("/"))).check_read(path)
        mode = path.stat().st_mode
    except PermissionError:
        return "permission_error"
    except (OSError, ValueError):
        return None  # opening it says why
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "not_regular_file"


def _is_fetched(path: Path) -> bool:
    """True for a file of a fetched bundle: it lies in a home that is closed otherwise."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(get_amplifier_home() / "cache"))


class _Refused(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _takes(function: Callable[..., Any], parameter: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == parameter or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def format_context_block(deduplicator: ContentDeduplicator, mention_to_path: Mapping[str, Path] | None = None) -> str:
    """Return all collected files as blocks that name their paths and the mentions that led to them."""
    return format_files(deduplicator.get_unique_files(), names_by_path(deduplicator, mention_to_path or {}))


def format_files(files: Iterable[ContextFile], names: Mapping[Path, Sequence[str]]) -> str:
    """Return files as blocks that name their paths and the `names` that led to these."""

    def title(file: ContextFile) -> str:
        return ", ".join(
            part
            for path in file.paths
            for part in ([f"{name} → {path}" for name in names.get(path, ())] or [str(path)])
        )

    return "\n\n".join(f'<context_file paths="{title(file)}">\n{file.content}\n</context_file>' for file in files)


def names_by_path(deduplicator: ContentDeduplicator, mention_to_path: Mapping[str, Path]) -> dict[Path, list[str]]:
    """Return the mentions that lead to each path, as it stands in the collected files."""
    names: dict[Path, list[str]] = {}
    for mention, path in mention_to_path.items():
        names.setdefault(deduplicator.place_of(path), []).append(mention)
    return names


async def expand_mentions_in_instruction(
    instruction: str,
    *,
    resolver: MentionResolverProtocol,
    deduplicator: ContentDeduplicator | None = None,
    relative_to: Path | None = None,
    policy: ReadPolicy | None = None,
) -> str:
    """Return the instruction with the files it mentions put in front of it; the mentions stay where they are."""
    if not parse_mentions(instruction):
        return instruction
    files = ContentDeduplicator() if deduplicator is None else deduplicator
    results = await load_mentions(instruction, resolver, files, relative_to, policy=policy)
    paths = {result.mention: result.resolved_path for result in results if result.resolved_path is not None}
    block = format_context_block(files, paths)
    return f"{block}\n\n{instruction}" if block else instruction
