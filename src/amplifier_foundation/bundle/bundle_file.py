"""From a bundle file to a bundle."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from amplifier_core.imported_code import retold
from amplifier_core.local_sources import path_of_source
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_foundation.mentions.parser import parse_mentions

from .files import find_file, parse_sections, read_document
from .model import Bundle

logger = logging.getLogger(__name__)


def read_bundle(path: Path, *, reference: str | None = None) -> Bundle:
    """Read a bundle file, or the one in a directory; includes are not followed. Blocks while it reads.

    `reference` is what a person calls that path, if it is a copy.

    Raises:
        BundleLoadError: there is no such file, or it is unusable.
        BundleValidationError: `providers`, `tools` or `hooks` is not a list of mappings.
    """
    file = find_file(path)
    document = read_document(file)
    bundle = Bundle(**parse_sections(document.data, file.parent, file), instruction=document.instruction)
    bundle._file = file
    bundle._agent_instruction = bundle.from_meta
    bundle._remarks = tuple(find_misspelled(document.data))
    if not document.data.keys() & {"bundle", "meta"}:
        place = str(file) if reference is None else retold(str(file), path, reference)
        logger.warning("%s has no section 'bundle:' and is read as a bundle without a name", place)
    return bundle


# What a bundle names and cannot be found: sections that mean nothing, agents, context files and mentioned files.


SECTIONS = frozenset(
    {"bundle", "meta", "includes", "session", "providers", "tools", "hooks", "agents", "context", "spawn"}
)
_SHORTCUTS = frozenset({"user", "project"})  # namespaces that applications give a meaning


def find_misspelled(data: Mapping[str, Any], known: Collection[str] = SECTIONS) -> Iterator[str]:
    """Yield a sentence for every key that looks like a section's; other keys may belong to others."""
    unknown = [key for key in data if isinstance(key, str) and key not in known]
    if not unknown:
        return
    from difflib import get_close_matches  # most files have no unknown key

    for key in unknown:
        if close := get_close_matches(key.lower(), known, n=1, cutoff=0.8):
            yield f"section {key!r} has no effect; did you mean {close[0]!r}?"


def find_gaps(bundle: Bundle, *, is_complete: bool) -> list[str]:
    """Return a sentence for every agent, context file and mentioned file of a bundle that is not there. Reads disks.

    Until a bundle is complete, another one may bring the namespaces that it refers to: then only those are looked at
    that it knows. Mentions without a namespace belong to the session's working directory and are never looked at.
    """
    return [*_agents(bundle, is_complete), *_context(bundle, is_complete), *_mentions(bundle, is_complete)]


def _agents(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for name, definition in bundle.agents.items():
        if not isinstance(definition, dict) or definition.keys() - {"name"}:
            continue
        namespace, colon, _ = name.partition(":")
        if colon and not is_complete and bundle.find_namespace(namespace) is None:
            continue
        if bundle.resolve_agent_path(name) is None:
            yield f"agent {name!r} has no file agents/{name.rpartition(':')[2]}.md"


def _context(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for name, path in bundle.context.items():
        if not _exists(path):
            yield f"context file {name!r} does not exist"
    for reference in bundle._pending_context:
        meant = bundle.find_pending(reference)
        if meant is None and is_complete:
            yield f"context file {reference!r} belongs to a namespace that is not known"
        elif meant is not None and not _exists(meant):
            yield f"context file {reference!r} does not exist"


def _mentions(bundle: Bundle, is_complete: bool) -> Iterator[str]:
    for mention in parse_mentions(bundle.instruction or ""):
        namespace, colon, rest = mention.removeprefix("@").partition(":")
        if not colon or namespace in _SHORTCUTS:
            continue
        base = bundle.find_namespace(namespace)
        if base is None:
            if is_complete:
                yield f"mention {mention!r} belongs to a namespace that is not known"
        elif not any(name in bundle.context or _exists(base / name.lstrip("/")) for name in (rest, rest.rstrip(".:"))):
            yield f"mention {mention!r} leads to nothing in bundle {namespace!r}"


def _exists(path: Path) -> bool:
    try:
        return os.path.exists(path)  # noqa: PTH110 - every bundle names dozens of files
    except ValueError:  # a name that no file can have
        return False


def relocate(bundle: Bundle, old: Path, new: Path) -> None:
    """Have a bundle name the files in `new` that it named in `old`: its modules, context files and namespaces.

    What was read already, such as the instruction, stays as it is.
    """

    def moved(path: Path) -> Path:
        return new / path.relative_to(old) if path.is_relative_to(old) else path

    def with_source(entry: PlanEntry) -> Mapping[str, Any]:
        place = path_of_source(entry.source)
        if entry.is_by_name or place is None or not place.is_relative_to(old):
            return entry.spec
        return {**entry.spec, "source": str(moved(place))}

    plan = bundle.view().map(with_source)
    bundle.session, bundle.providers = plan["session"], plan["providers"]
    bundle.tools, bundle.hooks = plan["tools"], plan["hooks"]
    bundle.agents = {
        name: MountPlan(agent).map(with_source) if isinstance(agent, Mapping) else agent
        for name, agent in bundle.agents.items()
    }
    bundle.context = {name: moved(path) for name, path in bundle.context.items()}
    bundle.source_base_paths = {name: moved(path) for name, path in bundle.source_base_paths.items()}
    bundle.base_path = moved(bundle.base_path) if bundle.base_path else None
    bundle._file = moved(bundle._file) if bundle._file else None


def sourced_entries(plan: Mapping[str, Any]) -> Iterator[PlanEntry]:
    """Yield the entries with a source: the session's, those of the lists, then the same of every agent.

    A session's module that is written by name is left to the kernel, which asks for it when it is mounted.
    """
    whole = MountPlan(plan)
    for part in (whole, *(overlay for _, overlay in whole.overlays())):
        yield from (entry for entry in part.entries() if entry.source and not entry.is_by_name)
