"""What a fetched bundle may not refer to: paths of this machine outside of what was fetched with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import parse_uri
from amplifier_foundation.sources.downloads.backend import LOCAL_BACKENDS
from amplifier_foundation.sources.reference import (
    FileReference,
    GitReference,
    Reference,
    UrlReference,
    ZipReference,
    parse_reference,
)
from amplifier_system.urls import is_loopback

if TYPE_CHECKING:
    from amplifier_foundation.bundle.model import Bundle

LOCAL_PATH = "bad-ref: local path in a remote profile"


def leads_here(reference: Reference) -> bool:
    """True if a reference leads to this machine: to a path, a local repository or archive, or a server of it."""
    match reference:
        case FileReference():
            return True
        case UrlReference() if reference.scheme in LOCAL_BACKENDS:
            return True
        case GitReference() | ZipReference() | UrlReference():
            return reference.url.startswith("file:") or _is_this_machine(urlsplit(reference.url).hostname or "")
    return False


def _is_this_machine(host: str) -> bool:
    name = unquote(host).lower().removesuffix(".")
    own = socket.gethostname().lower()
    return name in (own, f"{own}.local", "0.0.0.0", "::", "0") or name.endswith(".localhost") or is_loopback(name)


def check_remote_paths(bundle: Bundle, root: Path, *, from_elsewhere: bool = False) -> None:
    """Look at what a bundle that was fetched includes, its sources and context files; `root` is the tree it came with.

    One that came `from_elsewhere`, not from a repository or server of this machine, can name none of those either.

    Raises:
        RefResolutionError: one is an absolute or home-relative path of this machine.
    """
    boundary = os.path.realpath(root)
    if from_elsewhere:
        for where, text in _references(bundle):
            if is_of_this_machine(text) and not _is_beside(text, boundary):
                hint = "publish what it names where the bundle is"
                raise RefResolutionError(f"{LOCAL_PATH}: {where} is {text!r}", text, "unsafe-path", hint=hint)
    for where, text in _paths(bundle):
        if text.startswith("~") or not Path(os.path.realpath(text)).is_relative_to(boundary):
            hint = "keep what it names beside it, and write ./path"
            raise RefResolutionError(f"{LOCAL_PATH}: {where} is {text!r}", text, "unsafe-path", hint=hint)


def _is_beside(text: str, boundary: str) -> bool:
    """True if a reference leads into the tree of its bundle: what was written `../x` has become a path by now."""
    local = _local_path(text)
    is_path = local is not None and not local.startswith("~")
    return is_path and Path(os.path.realpath(str(local))).is_relative_to(boundary)


def _paths(bundle: Bundle) -> Iterator[tuple[str, str]]:
    for name, path in bundle.context.items():
        base = bundle.base_path
        written = str(path.relative_to(base)) if base is not None and path.is_relative_to(base) else str(path)
        yield f"context {name}", written if written.startswith("~") else str(path)
    for item in bundle.includes:
        if (local := _local_path(item.get("bundle") if isinstance(item, Mapping) else item)) is not None:
            yield "an include", local
    yield from _sources(vars(bundle))
    yield from ((f"spawn: {where}", text) for where, text in _sources(bundle.spawn))
    for agent, definition in bundle.agents.items():
        yield from ((f"agent {agent}: {where}", text) for where, text in _sources(definition))


def is_of_this_machine(text: Any) -> bool:
    """True if a text is a reference that leads to this machine; `./x`, beside the file, does not."""
    if not isinstance(text, str) or text.startswith(("./", "../")):
        return False
    try:
        return leads_here(parse_reference(text))
    except RefResolutionError:
        return False  # it leads nowhere


def _references(bundle: Bundle) -> Iterator[tuple[str, Any]]:
    for item in bundle.includes:
        yield "an include", item.get("bundle") if isinstance(item, Mapping) else item
    parts = [("", vars(bundle)), ("spawn: ", bundle.spawn)]
    parts += [(f"agent {agent}: ", definition) for agent, definition in bundle.agents.items()]
    for prefix, definition in parts:
        for slot in MountPlan(definition).slots():
            yield f"{prefix}the source of {slot.module_id or slot.place}", slot.source


def _sources(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for slot in MountPlan(definition).slots():
        if (local := _local_path(slot.source)) is not None:
            yield f"the source of {slot.module_id or slot.place}", local


def _local_path(text: Any) -> str | None:
    """Return the path of this machine that a reference names, None for any other; `./x` is beside the file."""
    if not isinstance(text, str) or text.startswith(("./", "../")):
        return None
    parsed = parse_uri(text)
    if text.startswith("~"):
        return text
    return parsed.path if text.startswith("/") or parsed.scheme in ("file", "zip+file") else None
