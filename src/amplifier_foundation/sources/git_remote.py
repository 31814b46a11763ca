"""Asking a repository where its refs are."""

import re

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_system.urls import shown

from .git_access import git_access
from .git_process import GitCloneTimeoutError, GitError, run_git
from .git_refs import KnownRef, RefKind
from .reference import GitReference, is_commit
from .store import now

_ABBREVIATED = re.compile(r"[0-9a-fA-F]{4,39}")
_MOST_PARTS = 32


def split_commit(ref: str | None) -> tuple[str, str | None] | None:
    """Return the commit and the path behind it when a ref starts with a full commit hash."""
    head, slash, rest = (ref or "").partition("/")
    return (head.lower(), rest if slash else None) if is_commit(head) else None


def abbreviated_commits(ref: str | None) -> list[tuple[str, str | None]]:
    """Return what a ref that the remote does not have could mean as an abbreviated commit, and the path behind it."""
    head, slash, rest = (ref or "").partition("/")
    return [(head.lower(), rest if slash else None)] if _ABBREVIATED.fullmatch(head) else []


async def ask(reference: GitReference, *, timeout_s: float) -> KnownRef | None:
    """Ask the remote for a reference's ref, None when it has no such ref.

    The whole ref is tried first, then its longest part before a `/`: the rest is a path then. A branch comes before a
    tag of the same name, and a tag means the commit it points to.

    Raises:
        GitError, GitCloneTimeoutError: the remote gave no answer.
    """
    candidates = _candidates(reference.ref)
    names = [name for ref, _ in candidates for name, _ in _names(ref)]
    access = git_access(reference)
    lines = await run_git("ls-remote", "--quiet", "--", access.url, *names, access=access, timeout_s=timeout_s)
    answers = (line.partition("\t") for line in lines.decode("utf-8", "replace").splitlines())
    commits = {name: commit for commit, _, name in answers}
    for ref, rest in candidates:
        for name, kind in _names(ref):
            if is_commit(commits.get(name)):
                return KnownRef(commits[name], kind, now(), rest)
    return None


async def no_such_ref(reference: GitReference, *, timeout_s: float) -> RefResolutionError:
    """Return the error for a ref that the remote does not have; it names refs that are spelled alike."""
    import difflib  # only ever needed for this message

    access = git_access(reference)
    try:
        arguments = ("ls-remote", "--quiet", "--heads", "--tags", "--refs", "--", access.url)
        lines = (await run_git(*arguments, access=access, timeout_s=timeout_s)).decode("utf-8", "replace")
    except (GitError, GitCloneTimeoutError):
        lines = ""
    names = [line.split("\t", 1)[1].split("/", 2)[2] for line in lines.splitlines()]
    near = difflib.get_close_matches(reference.ref or "", names, n=3, cutoff=0.5)
    hint = f" (nearest: {', '.join(near)})" if near else ""
    wanted = f"ref {reference.ref!r}" if reference.ref else "commit yet"
    fix = f"write @{near[0]} after the address" if near else "name a branch, a tag or a commit that it has after @"
    return RefResolutionError(
        f"Failed to clone {shown(reference.url)}: the repository has no {wanted}{hint}",
        str(reference),
        "not-found",
        hint=fix if reference.ref else "commit something to it first",
    )


def _candidates(ref: str | None) -> list[tuple[str | None, str | None]]:
    if ref is None:
        return [(None, None)]
    parts = ref.split("/")[:_MOST_PARTS]
    prefixes = ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    return [(ref, None), *((prefix, ref[len(prefix) + 1 :]) for prefix in prefixes if not prefix.endswith("/"))]


def _names(ref: str | None) -> list[tuple[str, RefKind]]:
    if ref is None or ref == "HEAD":
        return [("HEAD", "head")]
    return [(f"refs/heads/{ref}", "branch"), (f"refs/tags/{ref}^{{}}", "tag"), (f"refs/tags/{ref}", "tag")]
