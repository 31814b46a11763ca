"""A private git object store: what one snapshot adds is one pack, written whole or not at all.

Git itself can read it (`git --git-dir=… show <id>`), but never writes it: nothing of git's configuration, filters or
hooks is near a file while it is read, a file that vanishes does not spoil a batch, and 5,000 files are one fsync.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import remove_unfinished, write_atomically
from amplifierd.exceptions import CheckpointError

from .pack_file import PackWriter, index_of, read_index, unpack

_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tlogAllRefUpdates = false\n[gc]\n\tauto = 0\n"


class ObjectStore:
    """The objects below one directory, each stored once. Used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._packs = directory / "objects" / "pack"
        self._places: dict[str, tuple[Path, int]] | None = None

    def __contains__(self, oid: str) -> bool:
        return oid in self._known()

    @contextmanager
    def writing(self) -> Iterator[PackWriter]:
        """Yield a writer; what it was given is stored, and lasts, once the block has ended without an error."""
        begun: list[Path] = []  # by the first thing that is new

        def create() -> IO[bytes]:
            begun.append(self._packs / f".pack.{uuid.uuid4().hex}.tmp")
            return self._new_file(begun[0])

        writer = PackWriter(create, self._known().keys())
        try:
            yield writer
            if writer.offsets:
                self._publish(begun[0], writer.finish(), writer)
        finally:
            writer.close()
            for path in begun:
                path.unlink(missing_ok=True)

    def read(self, oid: str) -> bytes:
        """Return the contents of an object.

        Raises:
            CheckpointError: it is not there, or damaged.
        """
        return b"".join(self.pieces(oid))

    def pieces(self, oid: str) -> Iterator[bytes]:
        """Yield the contents of an object piece by piece; raises `CheckpointError` at the end if it is damaged."""
        place = self._known().get(oid)
        if place is None:
            raise CheckpointError(f"{self.directory}: object {oid} is missing, the checkpoint cannot be read")
        try:
            yield from unpack(*place, oid)
        except (OSError, zlib.error, LookupError) as error:
            raise CheckpointError(f"{place[0]}: object {oid} is damaged: {error}") from error

    def _new_file(self, path: Path) -> IO[bytes]:
        self._create()
        return os.fdopen(os.open(path, _NEW_FILE, 0o600), "w+b")

    def _create(self) -> None:
        if (self.directory / "HEAD").exists():
            return
        make_directory(self._packs)
        make_directory(self.directory / "refs")
        (self.directory / "config").write_text(_CONFIG)
        write_atomically(self.directory / "HEAD", b"ref: refs/heads/none\n", lasting=False)

    def _known(self) -> dict[str, tuple[Path, int]]:
        if self._places is None:
            self._remove_leftovers()
            self._places = {}
            for index in sorted(self._packs.glob("*.idx")):
                pack = index.with_suffix(".pack")
                self._places.update((oid, (pack, offset)) for oid, offset in read_index(index))
        return self._places

    def _remove_leftovers(self) -> None:
        """Remove what was being written when a process was killed."""
        remove_unfinished(self._packs)
        for pack in self._packs.glob("*.pack"):
            if not pack.with_suffix(".idx").exists():
                pack.unlink()

    def _publish(self, temporary: Path, name: str, writer: PackWriter) -> None:
        pack = self._packs / f"pack-{name}.pack"
        index = temporary.with_name(f".idx.{uuid.uuid4().hex}.tmp")
        try:
            with self._new_file(index) as file:
                file.write(index_of(writer, name))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(pack)  # git, and we, look for the index first
            index.replace(pack.with_suffix(".idx"))
        finally:
            index.unlink(missing_ok=True)
        descriptor = os.open(self._packs, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._known().update((oid, (pack, offset)) for oid, (offset, _) in writer.offsets.items())
