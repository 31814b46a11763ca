"""`git/refs.json`: which commit a ref of a repository was last seen at, `{url: {ref: {commit, checked_at, …}}}`."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from .locks import locked_now
from .store import make_directory, now, read_json, write_json

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
