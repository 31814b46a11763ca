"""Finding the profiles of a collection: which files count, what they are called, and what is wrong with the others."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from amplifierd.documents.document import ProfileDocument, ReferenceBase
from amplifierd.documents.literal_secrets import KeepSecret, conceal_document
from amplifierd.documents.profile_reader import HEADER_CODES, find_location, read_document
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue

_PROFILE_FILE = "profile.md"
_GROUPS = ((_PROFILE_FILE, f"*/{_PROFILE_FILE}", f"profiles/*/{_PROFILE_FILE}"), ("profiles/*.md",), ("*.md",))
_NO_PROFILE = {"no-frontmatter", "profile-section-missing"}
_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Discovery:
    """The usable profiles of a collection by name, and what is wrong with its files.

    `broken` are the files whose header cannot be read, by the name that each should have.
    """

    profiles: dict[str, ProfileDocument]
    issues: tuple[Issue, ...]
    broken: dict[str, str] = field(default_factory=dict)


def discover(root: Path, collection_id: str, *, boundary: Path, keep: KeepSecret | None = None) -> Discovery:
    """Read the profiles below a collection's root; the first file that defines a name has it.

    Files that are not profiles are skipped. A file that should be one and has a broken header is in `issues`, as is
    one that leads out of `boundary`; the paths in them count from the root. With `keep` secrets in the profiles are put
    into the key store, and references in their place.
    """
    profiles: dict[str, ProfileDocument] = {}
    broken: dict[str, str] = {}
    issues: list[Issue] = []
    limit = Path(os.path.realpath(boundary))
    for relative in _candidates(root):
        if (printable := os.fsencode(relative).decode(errors="replace")) != str(relative):
            message = f"{printable} cannot be used: its name is not UTF-8"
            issues.append(Issue("unreadable", message, file=Path(printable), fix="give it another name"))
            continue
        document, problems = _read(root, relative, collection_id, limit)
        name = document.profile_id.name if document else _default_name(relative, collection_id)
        if problems or document is None:
            issues += problems
            if problems:
                broken.setdefault(name, relative.as_posix())
        elif name in profiles:
            issues.append(_duplicate(document, profiles[name]))
        else:
            profiles[name] = document if keep is None else conceal_document(document, keep)
    return Discovery(profiles, tuple(issues), {name: file for name, file in broken.items() if name not in profiles})


def stamp_texts(root: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when a file that may be a profile is written, added or removed; nothing is read."""
    found = []
    for relative in _candidates(root):
        with contextlib.suppress(FileNotFoundError):  # an editor takes a file away before it puts another there
            status = (root / relative).stat()
            found.append((str(relative), status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(found)


def hash_texts(root: Path) -> str:
    """Return `sha256:<hex>` of the files that may be profiles, with their names; the unreadable count as empty."""
    digest = hashlib.sha256()
    for relative in _candidates(root):
        content = b""
        with contextlib.suppress(OSError):  # what is wrong with it is told where it is read
            path = root / relative
            content = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
        digest.update(os.fsencode(relative) + f"\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _candidates(root: Path) -> Iterator[PurePosixPath]:
    """Yield the files that may be profiles, in the order in which they may claim a name."""
    if not root.is_dir():  # as it is for most people's own profiles, whenever a session is created
        return
    seen: set[PurePosixPath] = set()
    for patterns in _GROUPS:
        found = {PurePosixPath(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}
        for relative in sorted(found - seen):
            seen.add(relative)
            hidden = any(part.startswith(".") for part in relative.parts)
            if not hidden and relative.name.lower() != "readme.md" and (root / relative).is_file():
                yield relative


def _read(
    root: Path, relative: PurePosixPath, collection_id: str, limit: Path
) -> tuple[ProfileDocument | None, list[Issue]]:
    """Return a file's profile, and what keeps it from being used; neither if it is not a profile at all."""
    file = Path(relative)
    path = root / relative
    if not Path(os.path.realpath(path)).is_relative_to(limit):
        return None, [Issue("unsafe-path", f"{relative} leads out of the collection", file=file)]
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None, [Issue("too-large", f"{relative} has more than {_MAX_BYTES:,} bytes", file=file)]
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:  # it was there a moment ago
        return None, []
    except (OSError, UnicodeDecodeError) as error:
        return None, [Issue("unreadable", f"{relative} cannot be read: {error}", file=file)]
    default_name = _default_name(relative, collection_id)
    base = ReferenceBase(collection_id, relative.parent)
    document = read_document(text, path=file, profile_id=ProfileId(collection_id, default_name), base=base)
    problems = [issue for issue in document.issues if issue.code in HEADER_CODES and issue.severity == "error"]
    if relative.name != _PROFILE_FILE and any(issue.code in _NO_PROFILE for issue in problems):
        return None, []
    return document, problems


def _duplicate(document: ProfileDocument, first: ProfileDocument) -> Issue:
    name, file = document.profile_id.name, document.path
    message = f"Profile '{name}' of {file.as_posix()} is defined in {first.path.as_posix()} already"
    line = find_location(document.text, "profile.name")
    fix = "give one of them another name"
    return Issue("duplicate-profile", message, "profile.name", file, line, fix, severity="warning")


def _default_name(relative: PurePosixPath, collection_id: str) -> str:
    if relative.name == _PROFILE_FILE:
        return relative.parent.name or collection_id
    return relative.stem
