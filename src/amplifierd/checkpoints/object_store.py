"""A private git object store: what one snapshot adds is one pack, written whole or not at all.

Git itself can read it (`git --git-dir=… show <id>`), but never writes it: nothing of git's configuration, filters or
hooks is near a file while it is read, a file that vanishes does not spoil a batch, and 5,000 files are one fsync.
"""

from __future__ import annotations

import hashlib
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Literal

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import remove_unfinished, write_atomically
from amplifierd.exceptions import CheckpointError

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


# Packs of git objects: whole objects, no deltas, with an index beside each, in the formats that git reads.


Kind = Literal["tree", "blob"]

_NUMBERS: dict[Kind, int] = {"tree": 2, "blob": 3}
_PIECE = 1024 * 1024
_FAST = 1  # the level of compression: a turn waits for it
_INDEX_HEAD = b"\xfftOc" + struct.pack(">I", 2)
_FAR = 0x80000000


class ShorterThanAnnounced(Exception):
    """What was to be stored ended before its announced size."""


class PackWriter:
    """Fills one pack; `offsets` has the place and checksum of what is new in it."""

    def __init__(self, create: Callable[[], IO[bytes]], known: Container[str]) -> None:
        self._create = create
        self._known = known
        self.offsets: dict[str, tuple[int, int]] = {}

    @cached_property
    def _file(self) -> IO[bytes]:
        with _storing():
            file = self._create()
            file.write(b"PACK" + struct.pack(">II", 2, 0))
            return file

    def close(self) -> None:
        """Close the file, finished or not."""
        if "_file" in self.__dict__:
            with suppress(OSError):  # the pack is published by then, or given up
                self._file.close()

    def add(self, kind: Kind, data: bytes) -> str:
        """Store an object unless it is there, and return its id."""
        oid = object_id(kind, data)
        if not self._has(oid):
            packed = _entry_head(kind, len(data)) + zlib.compress(data, _FAST)
            self.offsets[oid] = (self._file.tell(), zlib.crc32(packed))
            self._write(packed)
        return oid

    def add_large(self, size: int, read: Callable[[int], bytes]) -> str:
        """Store `size` bytes as a blob, read piece by piece, unless it is there, and return its id.

        Raises:
            ShorterThanAnnounced: there was less to read; nothing is stored.
            CheckpointError: the store cannot be written.
        """
        start = self._file.tell()
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        head = _entry_head("blob", size)
        checksum = zlib.crc32(head)
        compressor = zlib.compressobj(_FAST)
        self._write(head)
        try:
            left = size
            while left:
                piece = _read_some(read, min(left, _PIECE))
                left -= len(piece)
                digest.update(piece)
                packed = compressor.compress(piece)
                checksum = zlib.crc32(packed, checksum)
                self._write(packed)
        except CheckpointError:
            raise
        except BaseException:
            self._take_back(start)
            raise
        packed = compressor.flush()
        self._write(packed)
        oid = digest.hexdigest()
        if self._has(oid):
            self._take_back(start)
        else:
            self.offsets[oid] = (start, zlib.crc32(packed, checksum))
        return oid

    def finish(self) -> str:
        """Complete the pack, and return its checksum, which is its name."""
        self._file.seek(8)
        self._file.write(struct.pack(">I", len(self.offsets)))
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while piece := self._file.read(_PIECE):
            digest.update(piece)
        self._file.write(digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        return digest.hexdigest()

    def _has(self, oid: str) -> bool:
        return oid in self.offsets or oid in self._known

    def _write(self, data: bytes) -> None:
        with _storing():
            self._file.write(data)

    def _take_back(self, start: int) -> None:
        with _storing():
            self._file.seek(start)
            self._file.truncate()


@contextmanager
def _storing() -> Iterator[None]:
    """Tell what goes wrong with the store from what goes wrong with a file that is read into it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"the checkpoint cannot be stored: {error}", hint="make room on the disk") from error


def _read_some(read: Callable[[int], bytes], size: int) -> bytes:
    if not (piece := read(size)):
        raise ShorterThanAnnounced
    return piece


def object_id(kind: Kind, data: bytes) -> str:
    """Return the id that git gives to an object."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


def _entry_head(kind: Kind, size: int) -> bytes:
    """Return what stands before a packed object: its kind, and its size in groups of four and then seven bits."""
    first, size = _NUMBERS[kind] << 4 | size & 15, size >> 4
    signs = bytearray()
    while size:
        signs.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    signs.append(first)
    return bytes(signs)


def index_of(writer: PackWriter, name: str) -> bytes:
    """Return the index of a pack, in the second version of git's format."""
    oids = sorted(writer.offsets)
    ids = [bytes.fromhex(oid) for oid in oids]
    fanout = [0] * 256
    for each in ids:
        fanout[each[0]] += 1
    for number in range(1, 256):
        fanout[number] += fanout[number - 1]
    near, far = bytearray(), bytearray()
    for oid in oids:
        offset = writer.offsets[oid][0]
        near += struct.pack(">I", offset if offset < _FAR else _FAR | len(far) // 8)
        far += struct.pack(">Q", offset) if offset >= _FAR else b""
    checksums = b"".join(struct.pack(">I", writer.offsets[oid][1]) for oid in oids)
    body = _INDEX_HEAD + struct.pack(">256I", *fanout) + b"".join(ids) + checksums + near + far + bytes.fromhex(name)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def read_index(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the id and the place of every object of a pack; nothing when the index is damaged."""
    data = path.read_bytes()
    if not data.startswith(_INDEX_HEAD) or hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
        return
    (count,) = struct.unpack_from(">I", data, 8 + 255 * 4)
    first_id = 8 + 256 * 4
    first_offset = first_id + count * 24
    offsets = struct.unpack_from(f">{count}I", data, first_offset)
    for number, offset in enumerate(offsets):
        if offset & _FAR:
            (offset,) = struct.unpack_from(">Q", data, first_offset + count * 4 + (offset & ~_FAR) * 8)
        yield data[first_id + number * 20 : first_id + number * 20 + 20].hex(), offset


def unpack(pack: Path, offset: int, oid: str) -> Iterator[bytes]:
    """Yield an object's contents, and raise `zlib.error` when they are not those of its id."""
    with pack.open("rb") as file:
        file.seek(offset)
        sign = file.read(1)[0]
        kind = {number: name for name, number in _NUMBERS.items()}[sign >> 4 & 7]
        size, shift = sign & 15, 4
        while sign & 0x80:
            sign = file.read(1)[0]
            size |= (sign & 0x7F) << shift
            shift += 7
        digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), size), usedforsecurity=False)
        decompressor = zlib.decompressobj()
        while not decompressor.eof:
            if not (packed := file.read(min(_PIECE, size + size // 100 + 64))):  # more than it takes, seldom much more
                raise zlib.error("it ends too early")
            while packed and not decompressor.eof:
                piece = decompressor.decompress(packed, _PIECE)
                packed = decompressor.unconsumed_tail
                digest.update(piece)
                yield piece
    if digest.hexdigest() != oid:
        raise zlib.error("its contents are not those that were stored")
