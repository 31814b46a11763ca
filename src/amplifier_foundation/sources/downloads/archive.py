"""Zip archives: extracted so that nothing lands outside, nothing grows without limit, and a link stays inside."""

import os
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from amplifier_foundation.exceptions import RefResolutionError, RefResolutionReason
from amplifier_foundation.sources.resolved import Limits, check_links, is_bytecode
from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import Stop
from amplifier_system.urls import shown
from amplifier_system.zip_files import TooManyEntriesError, open_untrusted

_CHUNK = 256 * 1024
_LONGEST_LINK = 4096
_LONGEST_PATH, _LONGEST_PART = 2048, 255  # in bytes; a system takes about twice the first
_UNIX = 3


def member_path(text: str) -> PurePosixPath | None:
    """Return where a member of an archive lies in its directory, None for a name outside or one that no disk takes."""
    name = PurePosixPath(text)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in text:
        return None
    longest = max(len(os.fsencode(part)) for part in name.parts)
    return None if longest > _LONGEST_PART or len(os.fsencode(text)) > _LONGEST_PATH else name


class Extraction:
    """The extraction of one archive."""

    def __init__(self, archive: Path, ref: str, limits: Limits, stop: Stop) -> None:
        self._archive = archive
        self._ref = ref
        self._limits = limits
        self._stop = stop
        self._bytes = 0

    def run(self, target: Path) -> int:
        """Extract everything to the new directory `target` and return the bytes it has.

        Raises:
            RefResolutionError: it is broken, too large, or names something outside; the caller removes what is there.
        """
        target.mkdir(mode=0o700)
        try:
            with open_untrusted(self._archive, most_entries=self._limits.tree_entries) as archive:
                found = archive.infolist()
                self._check_promises(found)
                members = [member for member in found if not is_bytecode(str(self._inside(Path(), member)))]
                links = [member for member in members if _is_link(member)]
                for member in members:
                    self._stop.check()
                    if not _is_link(member):
                        self._extract(archive, member, self._inside(target, member))
                for member in links:  # last, so that no file is ever written through one
                    self._link(archive, member, self._inside(target, member))
        except TooManyEntriesError as error:
            raise self._failure(str(error), "too-large") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._failure(f"it is not a usable archive: {error}", "integrity") from error
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise self._failure(f"it names {Path(error.filename).name!r} twice", "integrity") from error
        check_links(target, self._ref)
        return self._bytes

    def _check_promises(self, members: list[zipfile.ZipInfo]) -> None:
        self._count(sum(member.file_size for member in members), written=False)

    def _count(self, size: int, *, written: bool = True) -> None:
        if written:
            self._bytes += size
        if max(size, self._bytes) > self._limits.tree_bytes:
            raise self._failure(f"it has more than {self._limits.tree_bytes:,} bytes when extracted", "too-large")

    def _inside(self, target: Path, member: zipfile.ZipInfo) -> Path:
        name = member_path(member.orig_filename.replace("\\", "/"))
        if name is None or ":" in name.parts[0]:
            raise self._failure(f"{member.orig_filename[:_LONGEST_PART]!r} is not inside it", "unsafe-path")
        return target / name

    def _extract(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, destination: Path) -> None:
        if member.is_dir():
            make_directory(destination)
            return
        make_directory(destination.parent)
        with archive.open(member) as source, destination.open("xb") as file:
            while chunk := source.read(_CHUNK):
                self._stop.check()
                self._count(len(chunk))
                file.write(chunk)
        if _mode(member) & stat.S_IXUSR:
            destination.chmod(destination.stat().st_mode | 0o111)

    def _link(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, destination: Path) -> None:
        make_directory(destination.parent)
        with archive.open(member) as source:
            text = source.read(_LONGEST_LINK)
        destination.symlink_to(os.fsdecode(text))

    def _failure(self, problem: str, reason: RefResolutionReason) -> RefResolutionError:
        return RefResolutionError(f"Failed to extract {shown(self._ref)}: {problem}", self._ref, reason)


def _mode(member: zipfile.ZipInfo) -> int:
    return member.external_attr >> 16 if member.create_system == _UNIX else 0


def _is_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(_mode(member))
