"""The checkpoints of one session: what its working directory was, what changed, and the way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import ShortWork, Stop, in_thread
from amplifierd.exceptions import CheckpointError

from .ignore_rules import REPOSITORY
from .manifest import UNKNOWN, Difference, Manifest, ancestors, differences, files_of, write_tree
from .object_store import ObjectStore, PackWriter
from .observation import Bounds, Observation, Observer
from .records import Checkpoint, Records
from .root_directory import RootDirectory, real_path
from .stat_cache import load_cache
from .undo_plan import UndoJournal

if TYPE_CHECKING:
    from .records import Changes, UndoResult

T = TypeVar("T")

MAX_FILES = 20_000
MAX_BYTES = 524_288_000
TIMEOUT_S = 5.0


class Checkpoints:
    """Takes snapshots of `working_dir` into `directory`, which is private to us; knows nothing of sessions.

    Used by one process at a time. Directories in `exclude` are left out wherever they lie. All work is done off the
    event loop; a cancellation waits for what may not be left half done. What cannot be done raises `CheckpointError`.
    """

    def __init__(
        self,
        directory: Path,
        working_dir: Path,
        *,
        max_files: int = MAX_FILES,
        max_bytes: int = MAX_BYTES,
        timeout_seconds: float = TIMEOUT_S,
        exclude: Iterable[Path] = (),
    ) -> None:
        self.working_dir = real_path(working_dir)
        self._directory = directory = directory.absolute()
        self._bounds = Bounds(max_files, max_bytes, timeout_seconds)
        self._excluded = (directory, *exclude)
        self._store = ObjectStore(directory / "store")
        self._records = Records(directory / "records")
        self._journal = UndoJournal(directory / "undo.json")
        self._cache_file = directory / "cache.json"
        self._observer: Observer | None = None
        self._latest: _Kept | None = None
        self._lock = asyncio.Lock()
        self._looking = ShortWork(looks_back=2)  # what took as long twice does so again

    def list(self) -> tuple[Checkpoint, ...]:
        """Return all checkpoints, the oldest first."""
        return self._records.list()

    def get(self, id: str) -> Checkpoint:
        """Return one checkpoint."""
        return self._records.get(id)

    async def take(
        self, turn: int, *, label: str = "", touched: Iterable[Path] = (), lasting: bool = True
    ) -> Checkpoint:
        """Keep what the working directory is now.

        Beyond the bounds only files are kept that are `touched`, or were remembered: `reason` says so. One that is not
        lasting may be missing after a power failure, until `make_lasting` or a later one is through.
        """
        paths = tuple(touched)
        return await self._run(lambda stop: self._take(turn, label, paths, stop, lasting), may_be_short=True)

    @property
    def are_lasting(self) -> bool:
        """True if the disk has every checkpoint that was taken here."""
        return self._records.are_lasting

    async def make_lasting(self) -> None:
        """Wait until the disk has every checkpoint that was taken here."""
        await self._run(lambda _: self._records.make_lasting(), may_be_short=True)

    async def remember(self, path: Path) -> bool:
        """Keep a file that is about to be changed, or will be made, if the latest checkpoint does not know it.

        That is one which is ignored, or any file when the tree is beyond the bounds. False: it cannot be kept, since it
        lies outside, is too large or is not a plain file.
        """
        return await self._run(lambda stop: self._remember(path, stop))

    async def changes(self, before: Checkpoint, after: Checkpoint | None = None) -> Changes:
        """Return what changed between two checkpoints, or until now."""
        from .manifest import describe_modes, diff_trees  # loaded when it is used, as what undoing needs
        from .records import Changes, paths_of

        changed, trees, reason = await self._run(lambda stop: self._compare(before, after, stop))
        added, modified, deleted = paths_of(changed)
        diff, is_cut = await diff_trees(self._store.directory, *trees) if trees[0] != trees[1] else ("", False)
        diff = describe_modes(changed) + diff
        return Changes(added, modified, deleted, diff, is_cut=is_cut, complete=not reason, reason=reason)

    async def undo(self, before: Checkpoint, after: Checkpoint, *, force: bool = False) -> UndoResult:
        """Bring back everything that changed between two checkpoints, and nothing else.

        What is there now is kept in a checkpoint first. If someone else has changed one of the files since `after`,
        nothing is touched unless `force` is set. An undo that was interrupted is finished by calling it again.
        """
        return await self._run(lambda stop: self._undo(before, after, force, stop))

    async def _run(self, work: Callable[[Stop], T], *, may_be_short: bool = False) -> T:
        async with self._lock:
            try:
                return await (self._looking.run(work) if may_be_short else in_thread(work))
            except BaseException as error:
                self._observer = self._latest = None  # they may speak of what was never stored
                if isinstance(error, OSError):
                    raise CheckpointError(f"checkpoint of {self.working_dir}: {error}") from error
                raise

    def _take(self, turn: int, label: str, touched: Iterable[Path], stop: Stop, lasting: bool) -> Checkpoint:
        started_s = time.monotonic()
        watch = {path for each in touched for path in self._relative(each)}
        observation = self._observe(watch, stop)
        return self._record(observation, turn, label, started_s, lasting=lasting)

    def _observe(self, watch: Iterable[str], stop: Stop) -> Observation:
        """Read the working directory; what it holds is in the store then, and named by `_latest`."""
        observer = self._open_observer()
        if self._latest is None and (last := self._records.last()):
            self._latest = _Kept(self._manifest(last), last.manifest, last.tree)
        with self._store.writing() as writer:
            previous = self._latest.manifest if self._latest else None
            observation = observer.observe(writer, previous, watch, stop)
            if self._latest is None or observation.manifest != previous:
                self._latest = _keep(writer, observation.manifest)
        if observer.cache.is_changed:
            observer.cache.save(self._cache_file)
        return observation

    def _open_observer(self) -> Observer:
        if self._observer is None:
            make_directory(self._directory)
            cache = load_cache(self._cache_file, self._store)
            self._observer = Observer(self.working_dir, self._bounds, cache, self._excluded)
            self._clean_after_interruption()
        return self._observer

    def _record(
        self, observation: Observation, turn: int, label: str, started_s: float, *, lasting: bool = True
    ) -> Checkpoint:
        manifest, kept = observation.manifest, self._latest
        assert kept is not None
        return self._records.add(
            Checkpoint(
                id="",
                turn=turn,
                label=label,
                tree=kept.tree_id,
                manifest=kept.manifest_id,
                complete=not observation.reason,
                reason=observation.reason,
                unreadable=observation.unreadable,
                files=manifest.file_count,
                bytes=manifest.total_bytes,
                took_seconds=round(time.monotonic() - started_s, 6),
            ),
            lasting=lasting,
        )

    def _remember(self, path: Path, stop: Stop) -> bool:
        last = self._records.last()
        wanted = self._relative(path)
        if last is None or not wanted:
            return False
        manifest = self._manifest(last)
        watch = {each for path in wanted for each in (path, *ancestors(path)) if manifest.state_of(each) is UNKNOWN}
        if watch:
            observer = self._open_observer()
            with self._store.writing() as writer:
                manifest = observer.look(writer, manifest, watch, stop)
                kept = _keep(writer, manifest)
            files, size = manifest.file_count, manifest.total_bytes
            known = replace(last, manifest=kept.manifest_id, tree=kept.tree_id, files=files, bytes=size)
            self._records.replace(known)
            self._latest = kept
        return all(manifest.state_of(each) is not UNKNOWN for each in wanted)

    def _compare(
        self, before: Checkpoint, after: Checkpoint | None, stop: Stop
    ) -> tuple[Sequence[Difference], tuple[str, str], str]:
        """Return what changed, the trees of what changed on both sides, and why not all of it may be known."""
        old, first = self._manifest(before), self._records.get(before.id)
        if after is None:
            observation = self._observe((), stop)
            new, reason = observation.manifest, observation.reason
        else:
            new, reason = self._manifest(after), self._records.get(after.id).reason
        changed = differences(old, new)
        with self._store.writing() as writer:
            left = write_tree(writer, files_of((each.path, each.before) for each in changed))
            right = write_tree(writer, files_of((each.path, each.after) for each in changed))
        return changed, (left, right), first.reason or reason

    def _undo(self, before: Checkpoint, after: Checkpoint, force: bool, stop: Stop) -> UndoResult:
        from .records import UndoResult
        from .restoration import Restoration
        from .undo_plan import plan_undo

        started_s = time.monotonic()
        old = self._manifest(before)
        changed = differences(old, self._manifest(after))
        watch = [each.path for each in changed]
        observation = self._observe(watch, stop)
        present = observation.manifest
        begun_id = self._journal.find(before.id, after.id)
        begun = self._records.get(begun_id) if begun_id else None
        start = self._manifest(begun) if begun else None
        with RootDirectory(self.working_dir) as root:
            plan = plan_undo(root, changed, before=old, present=present, interrupted=start)
            if plan.foreign and not force:
                return UndoResult(False, (), plan.foreign, (), None, None)
            if plan.unkept:
                raise CheckpointError(
                    f"cannot undo: {', '.join(map(repr, plan.unkept))} would be lost, because no checkpoint has it",
                    hint="move it out of the way, then undo again",
                )
            first = begun or self._record(observation, before.turn, "before undo", started_s)
            self._journal.begin(before.id, after.id, first.id)
            seen = {path: file.signature for path, file in self._open_observer().cache.files.items()}
            modes = (start or present).directory_modes
            restoration = Restoration(root, self._store, wanted=plan.wanted, seen=seen, modes=modes)
            outcome = restoration.run(around=watch)
        last = self._record(self._observe(watch, Stop()), before.turn, "after undo", started_s)
        self._journal.end()
        restored, not_empty = tuple(sorted(outcome.restored)), tuple(sorted(outcome.not_empty))
        return UndoResult(True, restored, tuple(sorted({*plan.foreign, *outcome.foreign})), not_empty, first, last)

    def _clean_after_interruption(self) -> None:
        """Remove the unfinished files that an undo left in the working directory when it was killed."""
        if pending := self._journal.pending():
            from .restoration import remove_temporaries

            old, new = (self._manifest(self._records.get(id)) for id in pending)
            with RootDirectory(self.working_dir) as root:
                remove_temporaries(root, (each.path for each in differences(old, new)))

    def _manifest(self, checkpoint: Checkpoint) -> Manifest:
        """Return the manifest of a checkpoint as it is now: files may have been remembered since it was taken."""
        id = self._records.get(checkpoint.id).manifest
        if self._latest and self._latest.manifest_id == id:
            return self._latest.manifest
        return Manifest.from_bytes(self._store.read(id))

    def _relative(self, path: Path) -> Sequence[str]:
        """Return where a path, and what it links to, lie in the working directory, as far as we keep anything there."""
        path = self.working_dir / path
        found = []
        for place in {real_path(path.parent) / path.name, real_path(path)}:
            if place == self.working_dir or not place.is_relative_to(self.working_dir):
                continue
            names = place.relative_to(self.working_dir).parts
            is_ours = any(place.is_relative_to(real_path(each)) for each in self._excluded)
            if not is_ours and REPOSITORY not in map(str.lower, names):
                found.append("/".join(names))
        return found


@dataclass(frozen=True)
class _Kept:
    """A manifest that is in the store, with its id and that of its tree."""

    manifest: Manifest
    manifest_id: str
    tree_id: str


def _keep(writer: PackWriter, manifest: Manifest) -> _Kept:
    return _Kept(manifest, writer.add("blob", manifest.to_bytes()), write_tree(writer, manifest.entries.items()))
