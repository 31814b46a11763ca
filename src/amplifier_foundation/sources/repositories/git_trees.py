"""`git/<commit>/`: the tree of one commit, stored once and never changed, with the sidecar `<commit>.json` beside it.

A tree is put together in a staging directory and renamed into place after its sidecar is written: a directory without
sidecar, or a sidecar without directory, is what a crash left and counts as nothing.
"""

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.reference import GitReference
from amplifier_foundation.sources.resolved import Limits, check_links, hash_content, remove_bytecode
from amplifier_foundation.sources.store import (
    discard,
    make_directory,
    now,
    read_json,
    remove,
    tree_bytes,
    unique,
    write_json,
)
from amplifier_system.threads import in_thread
from amplifier_system.urls import shown

from .git_process import GitCloneTimeoutError, GitError, run_git
from .git_remote import run_remotely

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_VARIABLE = "AMPLIFIER_GIT_CLONE_TIMEOUT_S"
_DEFAULT_TIMEOUT_S = 300.0
_RAW = "* -text -eol -ident -filter -working-tree-encoding\n"  # a tree has the bytes of its commit on every machine
_EVERYTHING = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_FINAL_REASONS = ("auth", "not-found")
_REFUSED = re.compile(r"not our ref|unadvertised object|shallow|dumb http|no such remote ref", re.IGNORECASE)
_RECEIVED = re.compile(rb"Receiving objects:.*, ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {b"bytes": 1, b"KiB": 1024, b"MiB": 1024**2, b"GiB": 1024**3}


class GitTrees:
    """The trees of one cache."""

    def __init__(self, cache_dir: Path, limits: Limits) -> None:
        self._directory = cache_dir / "git"
        self._limits = limits

    def tree(self, commit: str) -> Path:
        return self._directory / commit

    def sidecar(self, commit: str) -> dict[str, Any] | None:
        """Return what is known of a complete tree, None when there is none. Prune goes by when this was last read."""
        return read_json(self._sidecar_path(commit)) if self.tree(commit).is_dir() else None

    async def fetch(
        self, reference: GitReference, commit: str, *, slot: asyncio.Semaphore, on_bytes: Callable[[int], None]
    ) -> None:
        """Fetch exactly one commit; the caller holds the lock of its tree.

        Raises:
            RefResolutionError: it cannot be obtained, and nothing was kept.
        """

        async def attempt() -> None:
            async with self._staging(commit) as staging, slot:
                await self._receive(reference, commit, staging, on_bytes)
                await self._install(reference, commit, staging)

        await in_thread(lambda stop: self._discard_incomplete(commit))
        await self._with_retries(reference, attempt)

    async def fetch_abbreviated(
        self,
        reference: GitReference,
        abbreviation: str,
        *,
        slot: asyncio.Semaphore,
        lock: Callable[[str], AbstractAsyncContextManager[None]],
        on_bytes: Callable[[int], None],
    ) -> str | None:
        """Fetch a whole repository and keep the commit that an abbreviated hash means; None when it means none."""

        async def attempt() -> str | None:
            async with self._staging(abbreviation) as staging:
                async with slot:
                    await self._receive_everything(reference, staging, on_bytes)
                    try:
                        found = await self._git(staging, "rev-parse", "--verify", f"{abbreviation}^{{commit}}")
                    except GitError:
                        return None
                commit = found.decode().strip()
                async with lock(commit), slot:  # in this order everywhere: a slot never waits for a lock
                    if self.sidecar(commit) is None:
                        await in_thread(lambda stop: self._discard_incomplete(commit))
                        await self._install(reference, commit, staging)
                return commit

        return await self._with_retries(reference, attempt)

    def add_rev(self, commit: str, rev: str) -> None:
        """Note another ref in the sidecar of a tree that it led to; the caller holds the lock of the tree."""
        sidecar = self.sidecar(commit)
        if sidecar is not None and rev not in sidecar.get("revs", ()):
            write_json(self._sidecar_path(commit), {**sidecar, "revs": [*sidecar.get("revs", ()), rev]})

    def _sidecar_path(self, commit: str) -> Path:
        return self._directory / f"{commit}.json"

    def _discard_incomplete(self, commit: str) -> None:
        """Remove what a crash left of a tree: no one else works on it while its lock is held."""
        if self.sidecar(commit) is None:
            discard(self.tree(commit))
        for leftover in self._directory.glob(f".staging-{commit}-*"):
            remove(leftover)

    async def _with_retries(self, reference: GitReference, attempt: Callable[[], Awaitable[T]]) -> T:
        for pause_s in (*self._limits.retry_delays_s, None):
            try:
                return await attempt()
            except GitCloneTimeoutError as error:
                message = f"Failed to clone {shown(reference.url)}: {error}"
                hint = f"{_TIMEOUT_VARIABLE} gives it more seconds"
                raise RefResolutionError(message, str(reference), "timeout", hint=hint) from error
            except GitError as error:
                if pause_s is None or error.reason in _FINAL_REASONS:
                    message = f"Failed to clone {shown(reference.url)}: {shown(error)}"
                    raise RefResolutionError(message, str(reference), error.reason) from error
                logger.info("%s: %s; trying again in %g s", shown(reference), shown(error), pause_s)
            await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _staging(self, key: str) -> AsyncIterator[Path]:
        """Give an empty repository in a directory of its own, which is gone afterwards."""
        staging = self._directory / f".staging-{key}-{unique()}"
        make_directory(staging / "repository" / "info")
        try:
            for name in ("objects", "refs"):
                (staging / "repository" / name).mkdir()
            (staging / "repository" / "HEAD").write_text("ref: refs/heads/none\n")
            (staging / "repository" / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
            (staging / "repository" / "info" / "attributes").write_text(_RAW)
            (staging / "tree").mkdir()
            yield staging
        finally:
            await in_thread(lambda stop: remove(staging))

    async def _receive(
        self, reference: GitReference, commit: str, staging: Path, on_bytes: Callable[[int], None]
    ) -> None:
        def check(received: int) -> None:
            on_bytes(received)
            if received > self._limits.tree_bytes:
                raise _too_large(reference, f"more than {self._limits.tree_bytes:,} bytes are sent")

        try:
            await self._fetch(reference, staging, check, "--depth=1", commits=(commit,))
        except GitError as error:
            if not _REFUSED.search(error.stderr):
                raise
            logger.info("%s does not serve single commits; fetching all of it", shown(reference.url))
            await self._receive_everything(reference, staging, on_bytes)

    async def _receive_everything(
        self, reference: GitReference, staging: Path, on_bytes: Callable[[int], None]
    ) -> None:
        await self._fetch(reference, staging, on_bytes, commits=_EVERYTHING)

    async def _fetch(
        self,
        reference: GitReference,
        staging: Path,
        on_bytes: Callable[[int], None],
        *options: str,
        commits: tuple[str, ...],
    ) -> None:
        def on_progress(line: bytes) -> None:
            if received := _RECEIVED.search(line):
                on_bytes(int(float(received[1]) * _UNITS[received[2]]))

        await run_remotely(
            reference,
            ("fetch", "--progress", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", *options),
            commits,
            git_dir=staging / "repository",
            timeout_s=self._timeout_s(),
            on_progress=on_progress,
        )

    async def _install(self, reference: GitReference, commit: str, staging: Path) -> None:
        """Check a fetched commit out, examine it, and put it into its place."""
        listing = TreeListing(self._limits, lambda problem: _too_large(reference, problem))
        try:
            await self._git(staging, "ls-tree", "-r", "-l", "-z", f"{commit}^{{commit}}", on_output=listing.feed)
        except GitError as error:
            message = f"Failed to clone {shown(reference.url)}: the repository has no commit {commit}"
            raise RefResolutionError(message, str(reference), "not-found") from error
        tree = staging / "tree"
        await self._git(staging, f"--work-tree={tree}", "checkout", "--quiet", "--force", "--detach", commit)
        head = (staging / "repository" / "HEAD").read_text().strip()
        if head != commit:
            message = f"Failed to clone {shown(reference.url)}: expected commit {commit}, got {head}"
            raise RefResolutionError(message, str(reference), "integrity")
        await in_thread(lambda stop: self._place(reference, commit, tree, listing.submodules))

    def _place(self, reference: GitReference, commit: str, tree: Path, submodules: list[str]) -> None:
        for name in submodules:  # git leaves an empty directory where a submodule would be
            placeholder = tree / name
            if placeholder.is_dir() and not placeholder.is_symlink():
                placeholder.rmdir()
        remove_bytecode(tree)
        check_links(tree, str(reference))
        sidecar = {
            "url": reference.repository,
            "revs": [reference.ref] if reference.ref else [],
            "fetched_at": now(),
            "bytes": tree_bytes(tree),
            "content_hash": hash_content(tree),
            "submodules": [name.encode("utf-8", "replace").decode() for name in submodules],
        }
        write_json(self._sidecar_path(commit), sidecar)
        try:
            tree.rename(self.tree(commit))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            logger.debug("another process put %s into place first", self.tree(commit))

    async def _git(self, staging: Path, *arguments: str, on_output: Callable[[bytes], None] | None = None) -> bytes:
        return await run_git(
            *arguments, git_dir=staging / "repository", timeout_s=self._timeout_s(), on_output=on_output
        )

    def _timeout_s(self) -> float:
        if self._limits.fetch_timeout_s is not None:
            return self._limits.fetch_timeout_s
        text = os.environ.get(_TIMEOUT_VARIABLE, "")
        if not text:
            return _DEFAULT_TIMEOUT_S
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            logger.warning("%s=%r is not a number of seconds; using %g", _TIMEOUT_VARIABLE, text, _DEFAULT_TIMEOUT_S)
            return _DEFAULT_TIMEOUT_S
        return seconds


def _too_large(reference: GitReference, problem: str) -> RefResolutionError:
    return RefResolutionError(f"Failed to clone {shown(reference.url)}: {problem}", str(reference), "too-large")


_SUBMODULE = b"160000"


class TreeListing:
    """Takes the output of `git ls-tree -r -l -z` in pieces; raises what `refuse` makes of a tree beyond the limits.

    A few hundred bytes of repository can name millions of files, so counting must not wait for the end of the list.
    """

    def __init__(self, limits: Limits, refuse: Callable[[str], Exception]) -> None:
        self.submodules: list[str] = []
        self._limits = limits
        self._refuse = refuse
        self._entries = 0
        self._bytes = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *entries, self._rest = (self._rest + chunk).split(b"\0")
        for entry in entries:
            described, _, name = entry.partition(b"\t")
            mode, _, _, size = described.split()
            if mode == _SUBMODULE:
                self.submodules.append(name.decode("utf-8", "surrogateescape"))
            elif size.isdigit():
                self._bytes += int(size)
        self._entries += len(entries)
        if self._entries > self._limits.tree_entries:
            raise self._refuse(f"it has more than {self._limits.tree_entries:,} files")
        if self._bytes > self._limits.tree_bytes:
            raise self._refuse(f"its files have more than {self._limits.tree_bytes:,} bytes")
