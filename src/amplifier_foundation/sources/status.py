"""Whether a repository has something newer than the cache."""

from dataclasses import replace
from datetime import datetime

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_system.urls import shown

from .git_source import GitSource
from .protocol import SourceStatus
from .reference import GitReference

_SHORT = 8


async def get_git_status(git: GitSource, reference: GitReference, ref: str) -> SourceStatus:
    """Compare the commit that the cache has of a reference with the one its remote has."""
    known = git.find_known(reference)
    commit = known.commit if known else None
    fetched_at = git.fetched_at(commit) if commit else None
    name = reference.ref or "main"
    status = SourceStatus(
        source_uri=shown(str(replace(reference, subpath=None))),
        is_cached=fetched_at is not None,
        cached_at=_time(fetched_at),
        cached_ref=name,
        cached_commit=commit if fetched_at is not None else None,
        remote_ref=name,
    )
    if status.is_pinned:
        status.has_update = False
        status.summary = f"Pinned to {name[:_SHORT] if len(name) == 40 else name}"
        return status
    try:
        remote = await git.ask(reference, ref)
        problem = "" if remote else "the repository has no such ref"
    except RefResolutionError as error:
        remote, problem = None, error.message
    if remote is None:
        status.error = f"Could not find ref {name!r} of {shown(reference.url)}: {problem}"
        status.summary = f"Error: {status.error}"
        return status
    status.remote_commit = remote.commit
    status.has_update = remote.commit != status.cached_commit
    status.summary = _summary(status, remote.commit[:_SHORT])
    return status


def _summary(status: SourceStatus, remote: str) -> str:
    if status.cached_commit is None:
        return f"Not cached (remote: {remote})"
    if not status.has_update:
        return f"Up to date ({remote})"
    return f"Update available ({status.cached_commit[:_SHORT]} → {remote})"


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
