"""Finding the profiles of a collection: which files count, what they are called, and what is wrong with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from amplifierd.documents.document import ProfileDocument, ReferenceBase
from amplifierd.documents.profile_reader import HEADER_CODES, find_location, read_document
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue

_PROFILE_FILE = "profile.md"
_GROUPS = ((_PROFILE_FILE, f"*/{_PROFILE_FILE}", f"profiles/*/{_PROFILE_FILE}"), ("profiles/*.md",), ("*.md",))
_NO_PROFILE = {"no-frontmatter", "profile-section-missing"}
_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Discovery:
    """The usable profiles of a collection by name, and what is wrong with its files."""

    profiles: dict[str, ProfileDocument]
    issues: tuple[Issue, ...]


def discover(root: Path, collection_id: str, *, boundary: Path) -> Discovery:
    """Read the profiles below a collection's root; the first file that defines a name has it.

    Files that are no profiles are passed over. A file that should be one and has a broken header is in `issues`, as is
    one that leads out of `boundary`; the paths in them count from the root.
    """
    profiles: dict[str, ProfileDocument] = {}
    issues: list[Issue] = []
    limit = Path(os.path.realpath(boundary))
    for relative in _candidates(root):
        document = _read(root, relative, collection_id, limit, issues)
        if document is None:
            continue
        name = document.profile_id.name
        if name in profiles:
            first = profiles[name].path.as_posix()
            message = f"Profile '{name}' of {relative} is defined in {first} already"
            line = find_location(document.text, "profile.name")
            fix = "give one of them another name"
            issues.append(
                Issue("duplicate-profile", message, "profile.name", Path(relative), line, fix, severity="warning")
            )
        else:
            profiles[name] = document
    return Discovery(profiles, tuple(issues))


def read_local_profile(file: Path, profile_id: ProfileId) -> ProfileDocument:
    """Read one of the user's own profiles, which is used where it lies; its name is that of its directory."""
    base = ReferenceBase(profile_id.collection, PurePosixPath(profile_id.name))
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    return read_document(text, path=file, profile_id=profile_id, base=base)


def _candidates(root: Path) -> Iterator[PurePosixPath]:
    """Yield the files that may be profiles, in the order in which they may claim a name."""
    seen: set[PurePosixPath] = set()
    for patterns in _GROUPS:
        found = {PurePosixPath(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}
        for relative in sorted(found - seen):
            seen.add(relative)
            hidden = any(part.startswith(".") for part in relative.parts)
            if not hidden and relative.name.lower() != "readme.md" and (root / relative).is_file():
                yield relative


def _read(
    root: Path, relative: PurePosixPath, collection_id: str, limit: Path, issues: list[Issue]
) -> ProfileDocument | None:
    """Return a file's profile; None, and the reason in `issues` where there is one to tell, when it has none."""
    file = Path(relative)
    path = root / relative
    if not Path(os.path.realpath(path)).is_relative_to(limit):
        issues.append(Issue("unsafe-path", f"{relative} leads out of the collection", file=file))
        return None
    if path.stat().st_size > _MAX_BYTES:
        issues.append(Issue("too-large", f"{relative} has more than {_MAX_BYTES:,} bytes", file=file))
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        issues.append(Issue("unreadable", f"{relative} cannot be read: {error}", file=file))
        return None
    default_name = _default_name(relative, collection_id)
    base = ReferenceBase(collection_id, relative.parent)
    document = read_document(text, path=file, profile_id=ProfileId(collection_id, default_name), base=base)
    broken = [issue for issue in document.issues if issue.code in HEADER_CODES and issue.severity == "error"]
    if not broken:
        return document
    if relative.name == _PROFILE_FILE or not any(issue.code in _NO_PROFILE for issue in broken):
        issues += broken
    return None


def _default_name(relative: PurePosixPath, collection_id: str) -> str:
    if relative.name == _PROFILE_FILE:
        return relative.parent.name or collection_id
    return relative.stem
