"""Reaching a repository elsewhere, also where it redirects to, and asking it where its refs are."""

import logging
import re
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urljoin, urlsplit

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.downloads.redirects import RedirectError, check_redirect
from amplifier_foundation.sources.reference import GitReference, is_commit
from amplifier_foundation.sources.store import locked_now, make_directory, now, read_json, write_json
from amplifier_system.urls import shown

from .git_process import GitAccess, GitCloneTimeoutError, GitError, git_access, run_git

# `git/refs.json`: which commit a ref of a repository was last seen at, `{url: {ref: {commit, checked_at, …}}}`.


logger = logging.getLogger(__name__)

RefKind = Literal["branch", "tag", "commit", "head"]

DEFAULT_BRANCH = "HEAD"  # the name under which a repository's default branch is stored

_LOCK_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class KnownRef:
    """What a ref was found to be. `rest` is the path behind the ref in the older form `<ref>/<path>`."""

    commit: str
    kind: RefKind
    checked_at: str
    rest: str | None = None

    @property
    def mutable(self) -> bool:
        return self.kind in ("branch", "head")


class RefsFile:
    """The recorded refs of one cache; the file is read again only when it changed."""

    def __init__(self, cache_dir: Path) -> None:
        self._path = cache_dir / "git" / "refs.json"
        self._lock_path = cache_dir / "locks" / "refs.lock"
        self._read: tuple[object, dict[str, Any]] = (None, {})

    def find(self, repository: str, ref: str | None) -> KnownRef | None:
        """Return what is recorded for a ref as written (None: the default branch)."""
        refs = self._load().get(repository)
        entry = refs.get(ref or DEFAULT_BRANCH) if isinstance(refs, dict) else None
        if not isinstance(entry, dict) or not isinstance(entry.get("commit"), str):
            return None
        kind: RefKind = entry["kind"] if entry.get("kind") in get_args(RefKind) else "branch"
        return KnownRef(entry["commit"], kind, str(entry.get("checked_at", "")), entry.get("rest"))

    def record(self, repository: str, ref: str | None, known: KnownRef) -> None:
        """Record an answer of the remote; several processes may do so at the same time."""
        make_directory(self._path.parent)
        entry: dict[str, Any] = {"commit": known.commit, "checked_at": known.checked_at or now(), "kind": known.kind}
        if known.rest:
            entry["rest"] = known.rest
        with locked_now(self._lock_path, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                logger.warning("%s stays as it is: another process holds %s", self._path, self._lock_path)
                return
            refs = dict(self._load())
            known_refs = refs.get(repository)
            refs[repository] = {**(known_refs if isinstance(known_refs, dict) else {}), (ref or DEFAULT_BRANCH): entry}
            write_json(self._path, refs)

    def _load(self) -> dict[str, Any]:
        try:
            status = self._path.stat()
        except OSError:
            return {}
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._read[0] != seen:
            self._read = (seen, read_json(self._path) or {})
        return self._read[1]


_ABBREVIATED = re.compile(r"[0-9a-fA-F]{4,39}")
_MOST_PARTS = 32
_MOST_REDIRECTS = 5
_REDIRECTED = re.compile(r"returned error: 30[12378]\b")
_LOCATION = re.compile(r"<= Recv header: location: *(\S+)", re.IGNORECASE)
_TRACED = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
_ASKED = re.compile(r"/info/refs[?&]service=git-upload-pack$")


async def run_remotely(
    reference: GitReference,
    command: Sequence[str],
    names: Sequence[str] = (),
    *,
    timeout_s: float,
    git_dir: Path | None = None,
    on_progress: Callable[[bytes], None] | None = None,
) -> bytes:
    """Run a command of git on the repository of a reference; `names` are what it is asked for.

    Redirects are followed as those of downloads are. git says where one leads only in its trace, so it is asked again.

    Raises:
        GitError, GitCloneTimeoutError: as `run_git`.
        RefResolutionError: a redirect may not be followed.
    """
    access, url = git_access(reference), reference.url
    for _ in range(_MOST_REDIRECTS + 1):
        arguments = (*command, "--", access.url, *names)
        try:
            return await run_git(
                *arguments, access=access, git_dir=git_dir, timeout_s=timeout_s, on_progress=on_progress
            )
        except GitError as error:
            if not _REDIRECTED.search(error.stderr):
                raise
        try:
            access, url = await _redirected(reference, access, url, timeout_s)
        except RedirectError as error:
            raise _not_followed(reference, str(error)) from None
    raise _not_followed(reference, f"more than {_MOST_REDIRECTS} redirects")


def _not_followed(reference: GitReference, problem: str) -> RefResolutionError:
    return RefResolutionError(f"Failed to clone {shown(reference.url)}: {problem}", str(reference), "network")


async def _redirected(reference: GitReference, access: GitAccess, url: str, timeout_s: float) -> tuple[GitAccess, str]:
    """Return the way to where a repository redirects to, and its URL; credentials are for the named host alone.

    git connects to the addresses that were looked at: a name can change its address between two look-ups.
    """
    traced = replace(access, environment={**access.environment, **_TRACED})
    try:
        await run_git("ls-remote", "--quiet", "--", access.url, "HEAD", access=traced, timeout_s=timeout_s)
    except GitError as error:
        locations = _LOCATION.findall(error.stderr)
    else:
        return access, url  # it does not redirect any more
    if not locations:
        raise RedirectError("it redirects, and does not say where to")
    target = urljoin(f"{url}/info/refs?service=git-upload-pack", locations[-1])
    addresses = await check_redirect(reference.url, url, target)
    asked = _ASKED.search(target)
    if asked is None:
        raise RedirectError(f"it redirects to {shown(target)}, which is no repository")
    named, found = urlsplit(reference.url), urlsplit(target)
    if found.hostname != named.hostname and not addresses and not urllib.request.getproxies():
        raise RedirectError(f"it redirects to {found.hostname}, which is not known here")
    userinfo, at, host = named.netloc.rpartition("@")
    authority = found.netloc.rpartition("@")[2]
    path = target[: asked.start()].partition("://")[2].partition("/")[2]
    base = f"{found.scheme}://{f'{userinfo}{at}' if authority == host else ''}{authority}/{path}"
    there = git_access(replace(reference, url=base, ref=reference.ref or "HEAD"))
    if addresses:
        port = found.port or {"http": 80, "https": 443}[found.scheme]
        pinned = f"http.curloptResolve={found.hostname}:{port}:{','.join(addresses)}"
        there = replace(there, options=(*there.options, pinned))
    return there, base


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
    lines = await run_remotely(reference, ("ls-remote", "--quiet"), names, timeout_s=timeout_s)
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

    try:
        command = ("ls-remote", "--quiet", "--heads", "--tags", "--refs")
        lines = (await run_remotely(reference, command, timeout_s=timeout_s)).decode("utf-8", "replace")
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
