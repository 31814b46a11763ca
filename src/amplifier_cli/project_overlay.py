"""What a project changes about the agents that work in it: the overlays in its `.amplifier`, once it is trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifierd.exceptions import ProfileValidationError
from amplifierd.home import Home
from amplifierd.identifiers import LOCAL, ProfileId
from amplifierd.issues import errors
from amplifierd.profiles.documents.document import ReferenceBase
from amplifierd.profiles.documents.inheritance import merge_sections
from amplifierd.profiles.documents.profile_reader import read_document

from .config import ResolvedConfig
from .failures import say

_ANY = ProfileId(LOCAL, "any")


def with_project(home: Home, config: ResolvedConfig) -> Home:
    """Return a home in which the modules of a trusted project may run, those in its `.amplifier`."""
    if not config.is_trusted:
        return home
    security = home.settings.security
    roots = (*security.module_roots, config.files.folder)
    allowed = security.model_copy(update={"module_roots": roots, "allow_override_modules": True})
    return replace(home, settings=home.settings.model_copy(update={"security": allowed}))


def project_overlay(config: ResolvedConfig, profile: ProfileId | None) -> dict[str, Any]:
    """Return what a trusted project changes about an agent: first for all of them, then for its profile.

    Raises:
        ProfileValidationError: an overlay is not valid; with all issues, each with file and line.
    """
    found: dict[str, Any] = {}
    for file in _files(config, profile):
        sections = _read(file, profile or _ANY)
        found = {**merge_sections(found, sections), "exclude": _excluded(found, sections)}
    return {key: value for key, value in found.items() if key != "exclude" or value}


def _files(config: ResolvedConfig, profile: ProfileId | None) -> Iterator[Path]:
    files = config.files
    named = files.overlays / profile.collection / f"{profile.name}.md" if profile else None
    for file in (files.overlay, named):
        if config.is_trusted and file is not None and file.is_file():
            yield file


def _read(file: Path, profile: ProfileId) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8", errors="replace")
    base = ReferenceBase(LOCAL, PurePosixPath(file.parent))
    document = read_document(text, path=file, profile_id=profile, base=base, is_overlay=True)
    if found := errors(document.issues):
        listed = "\n".join(f"  {issue}" for issue in found)
        raise ProfileValidationError(f"The project's overlay cannot be used:\n{listed}", document.issues)
    for issue in document.issues:
        say(f"warning: {issue}")
    if document.body:
        say(f"warning: {file}: the text below the front matter has no effect; an agent reads AGENTS.md")
    sections = MountPlan(dict(document.sections)).map(lambda entry: _with_absolute_source(entry, file.parent))
    if document.replaced:
        sections["exclude"] = {**(sections.get("exclude") or {}), **dict.fromkeys(sorted(document.replaced), "all")}
    return sections


def _with_absolute_source(entry: PlanEntry, folder: Path) -> dict[str, Any]:
    source = entry.spec.get("source")
    if isinstance(source, str) and source.startswith("."):
        return {**entry.spec, "source": str((folder / source).resolve())}
    return dict(entry.spec)


def _excluded(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {**(first.get("exclude") or {}), **(second.get("exclude") or {})}
