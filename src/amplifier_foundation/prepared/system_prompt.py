"""The system prompt of a bundle: its instruction, and the context files that it declares and mentions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.boundary import emit_quietly
from amplifier_foundation.io.files import read_patiently
from amplifier_foundation.mentions import BaseMentionResolver, ContentDeduplicator, ContextFile
from amplifier_foundation.mentions.loader import MentionLoading, format_files, names_by_path, why_unreadable
from amplifier_foundation.mentions.protocol import ReadPolicy
from amplifier_system.policy import default_policy

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle

MENTIONS_RESOLVED = "mentions:resolved"

_SHORTCUTS = {"user": "user_shortcut", "project": "project_shortcut"}


def namespaces_of(bundle: Bundle) -> dict[str, Bundle]:
    """Return the bundle under each of its namespaces, rooted at the namespace's own directory."""
    places: dict[str, Path | None] = dict(bundle.source_base_paths)
    if bundle.namespace:
        places.setdefault(bundle.namespace, None)
    return {name: replace(bundle, base_path=path) if path else bundle for name, path in places.items()}


def has_content(bundle: Bundle) -> bool:
    """True if there is anything to make a system prompt of."""
    return bool(bundle.instruction or bundle.context or bundle._pending_context)


async def give_system_prompt(context: Any, factory: Callable[[], Awaitable[str]]) -> None:
    """Hand the factory to a context manager; one that takes none gets the prompt of this moment as a message."""
    if context is None:
        return
    take = getattr(context, "set_system_prompt_factory", None)
    if take is None:
        await context.add_message({"role": "system", "content": await factory()})
    else:
        await take(factory)


@dataclass(frozen=True, slots=True)
class _Collected:
    """A system prompt, the files in it, the names they were reached by, and what could not be read."""

    text: str
    files: list[ContextFile]
    names: dict[Path, list[str]]
    failed: list[tuple[str, str]]


@dataclass
class SystemPrompt:
    """Builds a session's system prompt for each request, and announces once which files went into it."""

    bundle: Bundle
    session: Any
    base_path: Path
    _announced: set[str] = field(default_factory=set)
    _reported_failures: set[tuple[str, str]] = field(default_factory=set)

    async def build(self) -> str:
        """Return the instruction, followed by the context files as they are now. Never raises for a file."""
        collected = await asyncio.to_thread(self._collect)
        await self._announce(collected)
        return collected.text

    async def file_hashes(self) -> frozenset[str]:
        """Return the hashes of the files that the prompt has now."""
        collected = await asyncio.to_thread(self._collect)
        return frozenset(file.content_hash for file in collected.files)

    def _collect(self) -> _Collected:
        """Read everything, in one go: a worker thread for each of a hundred files costs more than reading them.

        Files that the instruction mentions come first: what is said first is what the author wants to be read first.
        """
        instruction = self.bundle.instruction or ""
        files = ContentDeduplicator()
        paths: dict[str, Path] = {}
        failed: list[tuple[str, str]] = []
        policy = policy_of(self.session) or default_policy(Path("/"))
        literal = self.bundle._agent_instruction
        resolver = BaseMentionResolver(namespaces_of(self.bundle), self.base_path, literal=literal)
        for result in MentionLoading(resolver, files, policy=policy).load(instruction):
            if result.failure_reason is not None:
                failed.append((result.mention, result.failure_reason))
            elif result.resolved_path is not None:
                paths[result.mention] = result.resolved_path
        for name, path in self.bundle.context.items():
            if reason := why_unreadable(path, policy) or _add_declared(files, path):
                failed += [(name, reason)] if reason != "not_found" else []
            else:
                paths[name] = path
        unique, names = files.get_unique_files(), names_by_path(files, paths)
        block = format_files(unique, names)
        text = f"{instruction}\n\n---\n\n{block}" if block else instruction
        return _Collected(text, unique, names, failed)

    async def _announce(self, collected: _Collected) -> None:
        new = [file for file in collected.files if file.content_hash not in self._announced]
        new_failures = [failure for failure in collected.failed if failure not in self._reported_failures]
        if not new and not new_failures:
            return
        self._announced.update(file.content_hash for file in new)
        self._reported_failures.update(new_failures)
        payload = {
            "source": "bundle_context",
            "resolutions": [entry for file in new for entry in _resolutions(file, collected.names)],
            "failed": [{"mention": mention, "reason": reason} for mention, reason in new_failures],
            "deduplicated_count": len(collected.files) - len(new),
            "turn": None,
        }
        await emit_quietly(self.session.coordinator.hooks, MENTIONS_RESOLVED, payload)


def policy_of(session: Any) -> ReadPolicy | None:
    """Return what says what a session may read, None where nothing does."""
    find = getattr(session.coordinator, "get_capability", None)  # a stand-in for a session may have none
    policy = find("session.policy") if callable(find) else None
    return policy if hasattr(policy, "check_read") else None


def _add_declared(files: ContentDeduplicator, path: Path) -> str | None:
    """Add a declared context file; returns why it cannot be used, None when it can."""
    try:
        files.add_file(path, read_patiently(path))
    except FileNotFoundError:
        return "not_found"
    except PermissionError:
        return "permission_error"
    except IsADirectoryError:
        return "directory"
    except UnicodeDecodeError:
        return "binary"
    except (OSError, ValueError):  # such as a name that no file system can hold
        return "unknown"
    return None


def _resolutions(file: ContextFile, names: Mapping[Path, list[str]]) -> list[dict[str, Any]]:
    """Return one entry for each path of a file and each name it was reached by."""
    nameless: list[str | None] = [None]
    return [
        {
            "mention": mention,
            "resolved_path": str(path),
            "source_type": _source_type(mention),
            "content_hash": file.content_hash,
            "is_new": True,
        }
        for path in file.paths
        for mention in names.get(path) or nameless
    ]


def _source_type(mention: str | None) -> str:
    if mention is None:
        return "bundle_context_decl"
    body = mention.removeprefix("@")
    prefix, colon, _ = body.partition(":")
    if colon:
        return _SHORTCUTS.get(prefix, "bundle_namespace")
    return "home_shortcut" if body == "~" or body.startswith("~/") else "relative_path"
