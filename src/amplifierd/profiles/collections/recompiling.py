"""Compiling what a sync changed: the profiles themselves, and every profile that inherits from one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import ProfileValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue, errors
from amplifierd.paths import Paths
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.lock import DEPENDENCY_MISSING, DEPENDENCY_REASON
from amplifierd.profiles.documents.document import Extends

from .models import ProfileOutcome

logger = logging.getLogger(__name__)

COMPILE_FAILED = "compile-failed"
_INCOMPLETE = {"orchestrator-missing"}

Outcomes = dict[ProfileId, tuple[ProfileOutcome, Issue | None]]


async def recompile(
    profiles: Profiles,
    paths: Paths,
    profile_ids: Collection[ProfileId],
    *,
    parents: Mapping[ProfileId, str | None],
    workers: int,
    moved: Collection[ProfileId] = (),
    force: bool = False,
) -> Outcomes:
    """Compile profiles, some at a time, and say for each what came of it; a failure touches no other.

    `parents` has what each known profile extends; `moved` are those whose remotes have something newer. A profile that
    is incomplete and that others extend is meant to be so; that is not a failure.
    """
    slots = asyncio.Semaphore(workers)
    extended = {extends.name for written in parents.values() if (extends := Extends.parse(written or ""))}

    async def compile_one(profile_id: ProfileId) -> tuple[ProfileOutcome, Issue | None]:
        async with slots:
            before = _stamp(paths, profile_id)
            try:
                build = await profiles.compile(profile_id, force=force, refresh=profile_id in moved)
            except ProfileValidationError as error:
                is_incomplete = {issue.code for issue in errors(error.issues)} <= _INCOMPLETE
                if is_incomplete and profile_id.name in extended:
                    return "unchanged", None
                return "error", _failure(profile_id, error)
            except Exception as error:  # a profile names foreign code and servers; what goes wrong there stays its own
                level = logging.DEBUG if isinstance(error, AmplifierError | OSError) else logging.ERROR
                logger.log(level, "%s cannot be compiled", profile_id, exc_info=True)
                return "error", _failure(profile_id, error)
            return ("unchanged" if before == _stamp(paths, profile_id) else "compiled"), _lack(build)

    ordered = sorted(profile_ids)
    return dict(zip(ordered, await asyncio.gather(*map(compile_one, ordered)), strict=True))


def find_descendants(changed: Iterable[ProfileId], parents: Mapping[ProfileId, str | None]) -> set[ProfileId]:
    """Return the profiles that may inherit, over any number of steps, from one of these names.

    Which profile a bare name means depends on what else there is, so everything that extends the name counts.
    """
    children: dict[str, list[ProfileId]] = {}
    for child, written in parents.items():
        if extends := Extends.parse(written or ""):
            children.setdefault(extends.name, []).append(child)
    found: set[ProfileId] = set()
    names = [profile_id.name for profile_id in changed]
    while names:
        new = [child for child in children.get(names.pop(), ()) if child not in found]
        found.update(new)
        names += [child.name for child in new]
    return found


def is_built(paths: Paths, profile_id: ProfileId) -> bool:
    return _stamp(paths, profile_id) is not None


def _stamp(paths: Paths, profile_id: ProfileId) -> tuple[int, int] | None:
    """Return what tells one published build from another."""
    try:
        status = (paths.profile_dir(profile_id) / "profile.lock").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _lack(build: Build) -> Issue | None:
    """Return what a build lacks and why, as a warning; it can be used all the same."""
    lines = [text for text in build.warnings if text.startswith((DEPENDENCY_MISSING, DEPENDENCY_REASON))]
    if build.status != "degraded" or not lines:
        return None
    message = f"{build.profile_id}: {'; '.join(lines)}"
    return Issue(DEPENDENCY_MISSING, message, location=build.profile_id.name, severity="warning")


def _failure(profile_id: ProfileId, error: Exception) -> Issue:
    code = getattr(error, "code", None) or COMPILE_FAILED
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    return Issue(code, f"{profile_id}: {message}", location=profile_id.name, fix=getattr(error, "hint", ""))
