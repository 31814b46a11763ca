"""The files of one session: where paths lead, what may be touched, what has been seen, and how text is written."""

import errno
import os
import re
import stat
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, Literal, TypeVar
from weakref import WeakValueDictionary

from amplifier_kit.concerns import Concern, place_concerns
from amplifier_kit.files import Replacement
from amplifier_kit.mounting import find_capability
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import (
    NOTHING,
    LinkInTheWayError,
    PathRules,
    WorkingDir,
    open_in,
    opened_directory,
    real_path,
    resolve,
    resolve_roots,
    stat_in,
)

# One entry of a directory, reached through no symbolic link, and what is done with it by descriptor.


_PRIVATE = 0o600


class Stopped(Exception):
    """The caller was cancelled before anything had changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in an open directory; `shown` is what the model is told, `real` where it lies."""

    directory: int
    name: str
    shown: Path
    real: Path

    def stat(self) -> os.stat_result | None:
        """Return what is there, None when nothing is."""
        return stat_in(self.directory, self.name)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open a regular file for reading."""
        descriptor = open_in(self.directory, self.name, os.O_RDONLY)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolFailure(f"Not a regular file: {self.shown}", "not_regular_file")
            yield file

    def names(self) -> list[tuple[str, bool]]:
        """Return the entries of a directory, each with whether it is a directory itself."""
        descriptor = open_in(self.directory, self.name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                return [(entry.name, _is_directory(entry)) for entry in entries]
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Take the entry out of its directory."""
        os.unlink(self.name, dir_fd=self.directory)

    def replace(self, data: bytes, old: os.stat_result | None, stop: Event) -> os.stat_result:
        """Make `data` the contents, as a whole or not at all, and return what is there now.

        A file with other names, or in a directory that takes no new file, is written in place; what was in it is put
        back when that fails. Raises `Stopped` when the caller has gone before the contents changed.
        """
        if old is not None and old.st_nlink > 1:
            return self._write_in_place(data, stop)
        try:
            if old is not None:
                self._require_writable()
            return self._replace_whole(data, old, stop)
        except PermissionError:
            if old is None:
                raise
            return self._write_in_place(data, stop)

    def _require_writable(self) -> None:
        """Raise `PermissionError` for a file that may not be written, which replacing it would not notice."""
        try:
            os.close(open_in(self.directory, self.name, os.O_WRONLY))
        except OSError as exc:
            if exc.errno != errno.ETXTBSY:  # a program that is running can be replaced
                raise

    def _replace_whole(self, data: bytes, old: os.stat_result | None, stop: Event) -> os.stat_result:
        mode = 0o666 if old is None else _PRIVATE  # the system takes the umask off a new file's mode
        with Replacement(self.directory, mode=mode) as new:
            new.file.write(data)
            new.file.flush()
            if old is not None:
                _copy_owner_and_mode(new.file.fileno(), old)
            written = new.sync()
            _go_on_unless(stop)
            new.take_place(self.name)
        return written

    def _write_in_place(self, data: bytes, stop: Event) -> os.stat_result:
        descriptor = open_in(self.directory, self.name, os.O_RDWR)
        with open(descriptor, "r+b") as file:  # noqa: PTH123 - a descriptor has no path
            before = file.read()
            _go_on_unless(stop)
            try:
                _overwrite(file, data)
            except BaseException:
                with suppress(OSError):
                    _overwrite(file, before)
                raise
            return os.fstat(descriptor)


def _go_on_unless(stop: Event) -> None:
    if stop.is_set():
        raise Stopped


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere
        return False


def _copy_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    """Give a new file what the old one had; an owner that cannot be kept raises `PermissionError`."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _overwrite(file: BinaryIO, data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


T = TypeVar("T")
Intent = Literal["read", "write", "edit"]

_ATTEMPTS = 5  # to reach a file while another process swaps the directories on the way


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """What may be read and written; lists are as written, relative to the working directory. None is everything."""

    working_dir: str | None = None
    allowed_read_paths: Sequence[str] | None = None
    denied_read_paths: Sequence[str] = NOTHING
    allowed_write_paths: Sequence[str] = (".",)
    denied_write_paths: Sequence[str] = NOTHING
    allowed_write_files: Sequence[str] = NOTHING
    read_before_write: str = "off"


class Workspace:
    """What the tools of one session share."""

    def __init__(self, settings: FileSettings, coordinator: Any, seen: "SeenFiles | None" = None) -> None:
        self.settings = settings
        self.coordinator = coordinator
        self.seen = seen or SeenFiles(settings.read_before_write)
        self.agreed: set[str] = set()  # the running places that a person agreed to
        self._working_dir = WorkingDir(self.settings.working_dir, coordinator)

    def locate(self, file_path: str) -> Path:
        """Return the absolute path that the model means; symbolic links are kept."""
        if not file_path.startswith("@"):
            return self._working_dir.join(file_path)
        resolver = find_capability(self.coordinator, "mention_resolver")
        if resolver is None:
            raise ToolFailure(
                f"{file_path} is a mention, and the session offers no mention_resolver", "capability_missing"
            )
        found = resolver.resolve(file_path)
        if found is None:
            raise ToolFailure(f"@mention not found: {file_path}", "not_found")
        return self._working_dir.join(found)

    def concerns_of(self, path: Path) -> tuple[Concern, ...]:
        """Return what a person is asked about before a path is written."""
        return place_concerns(path, self._working_dir.path())

    def visit(self, shown: Path, file_path: str, intent: Intent, work: Callable[[Entry], T]) -> T:
        """Check that a path may be touched, and do `work` on exactly what was checked.

        Who writes makes the directories that are missing; who writes or edits has the file for itself. Raises
        `ToolFailure`, and `OSError` when the directory of the file cannot be entered.
        """
        for _ in range(_ATTEMPTS):
            rules, real = self._rules(intent), resolve(shown)
            _require(rules, real, shown, file_path, intent)
            self._ask_policy(shown, intent)
            try:
                with (
                    nullcontext() if intent == "read" else _alone(real),
                    opened_directory(real.parent, create=intent == "write") as directory,
                ):
                    lies_in = real_path(directory)
                    if lies_in is not None:
                        _require(rules, lies_in / real.name, shown, file_path, intent)
                        self._ask_policy(lies_in / real.name, intent)
                        self._require_agreed(lies_in / real.name, intent)
                    return work(Entry(directory, real.name or ".", shown, real))
            except LinkInTheWayError:
                continue
        raise ToolFailure(
            f"Access denied: {file_path} leads through a symbolic link that cannot be followed safely", "access_denied"
        )

    def _ask_policy(self, path: Path, intent: Intent) -> None:
        policy = session_policy(self.coordinator, self._working_dir.path())
        try:
            policy.check_read(path)
            if intent != "read":
                policy.check_write(path)
        except PolicyError as exc:
            raise ToolFailure(f"Access denied: {exc}", "access_denied", rule=exc.rule) from None

    def _require_agreed(self, real: Path, intent: Intent) -> None:
        """Refuse a running place that a path has come to lead to since it was asked about."""
        for concern in self.concerns_of(real) if intent != "read" else ():
            if concern.subject not in self.agreed:
                raise ToolFailure(f"Access denied: {concern.words}, and nobody agreed to that", "access_denied")

    def _rules(self, intent: Intent) -> PathRules:
        base, settings = self._working_dir.path(), self.settings
        if intent == "read":
            allowed = settings.allowed_read_paths
            return PathRules(
                allowed=None if allowed is None else resolve_roots(allowed, base),
                denied=resolve_roots(settings.denied_read_paths, base),
            )
        return PathRules(
            allowed=resolve_roots(settings.allowed_write_paths, base),
            denied=resolve_roots(settings.denied_write_paths, base),
            files=resolve_roots(settings.allowed_write_files, base),
        )


SEEN_FILES = "filesystem.seen"
"""The capability by which several tools know which files the session has seen."""


class SeenFiles:
    """What the session knows of its files, so that nothing unread is overwritten where that matters."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._known: dict[Path, tuple[int, int]] = {}

    def remember(self, entry: Entry, found: os.stat_result) -> None:
        if self._policy != "off":
            self._known[entry.real] = _state(found)

    def find_objection(self, entry: Entry, found: os.stat_result | None) -> str | None:
        """Return what is to be said before a file is changed; raises `ToolFailure` where that is enforced."""
        if self._policy == "off" or found is None:
            return None
        known = self._known.get(entry.real)
        if known == _state(found):
            return None
        code, problem = ("not_read", "has not been read in this session")
        if known is not None:
            code, problem = ("stale_file", "has changed since it was read")
        objection = f"{entry.shown} {problem}"
        if self._policy == "enforce":
            raise ToolFailure(f"{objection}; read it first", code)
        return objection


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


def _require(rules: PathRules, real: Path, shown: Path, file_path: str, intent: Intent) -> None:
    verdict = rules.verdict(real)
    if verdict == "denied":
        raise ToolFailure(DENIED.format(path=shown), "access_denied")
    if verdict == "outside":
        message = OUTSIDE_READ.format(path=file_path) if intent == "read" else OUTSIDE_WRITE.format(path=shown)
        raise ToolFailure(message, "access_denied")


class _Turnstile:
    """Lets one writer of a path pass at a time; gone when none waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_turnstiles: WeakValueDictionary[Path, _Turnstile] = WeakValueDictionary()
_turnstiles_guard = threading.Lock()


@contextmanager
def _alone(real: Path) -> Iterator[None]:
    """Hold the process-wide lock of one path."""
    with _turnstiles_guard:
        turnstile = _turnstiles.get(real)
        if turnstile is None:
            turnstile = _turnstiles[real] = _Turnstile()
    with turnstile.lock:
        yield


DENIED = "Access denied: {path} is within denied directories"
OUTSIDE_WRITE = "Access denied: {path} is not within allowed write paths"
OUTSIDE_READ = "Access denied: {path} is not within allowed read paths"


def is_path_allowed(
    path: str | Path,
    allowed_paths: Sequence[str | Path] | None,
    denied_paths: Sequence[str | Path] | None,
    allowed_files: Sequence[str | Path] | None = None,
) -> tuple[bool, str | None]:
    """Say whether a path may be written, and if not, why.

    Relative paths start from the process's working directory; `allowed_paths` None allows everything that is not
    denied.
    """
    base = Path.cwd()
    rules = PathRules(
        allowed=None if allowed_paths is None else resolve_roots(allowed_paths, base),
        denied=resolve_roots(denied_paths or (), base),
        files=resolve_roots(allowed_files or (), base),
    )
    verdict = rules.verdict(resolve_roots([path], base)[0])
    if verdict == "allowed":
        return True, None
    return False, (DENIED if verdict == "denied" else OUTSIDE_WRITE).format(path=path)


# How a text file is written down: encoding, byte order mark and line endings, which an edit must not change.


BINARY_PROBE_BYTES = 8192

_LINE_END = re.compile(r"\r\n|\n")


def is_binary(head: bytes) -> bool:
    """True if a file that begins like this is not text."""
    return b"\0" in head[:BINARY_PROBE_BYTES]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Encoding, byte order mark and dominant line ending of one file."""

    encoding: str = "utf-8"
    has_mark: bool = False
    line_end: str = "\n"

    @classmethod
    def of(cls, data: bytes) -> "TextFormat":
        has_mark = data.startswith(BOM_UTF8)
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return cls("latin-1", False, _dominant_line_end(data))
        return cls("utf-8", has_mark, _dominant_line_end(data))

    def decode(self, data: bytes) -> str:
        """Return the text without its mark."""
        return (data[len(BOM_UTF8) :] if self.has_mark else data).decode(self.encoding)

    def normalised(self, text: str) -> str:
        """Return the text with `\\n` as its only line ending; a lone `\\r` ends a line only where most lines do so."""
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self.line_end == "\r" else text

    def encode(self, text: str) -> bytes:
        """Return a text with the file's line ending and mark, as bytes."""
        if self.line_end != "\n":
            text = _LINE_END.sub(self.line_end, text)
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError as exc:
            what = f"the character {text[exc.start]!a} cannot be written in {self.encoding}"
            raise ToolFailure(f"{what}, the encoding of the file", "encoding_error", encoding=self.encoding) from None
        return (BOM_UTF8 if self.has_mark and not data.startswith(BOM_UTF8) else b"") + data


def _dominant_line_end(data: bytes) -> str:
    """Return the line ending that occurs most; `\\n` when none does, or none more than it."""
    pairs = data.count(b"\r\n")
    counts = {"\n": data.count(b"\n") - pairs, "\r\n": pairs, "\r": data.count(b"\r") - pairs}
    return max(counts, key=lambda end: counts[end])
