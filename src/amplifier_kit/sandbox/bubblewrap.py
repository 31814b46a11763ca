"""A confinement in the words of bubblewrap, for Linux.

`mounts` says what is mounted where. The options go to bubblewrap in a file without a name.
"""

import contextlib
import errno
import os
import platform
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .enclosure import Enclosure, Reports, Watch
from .limits import Confinement
from .whiteouts import layers_directory, make_layer

_NOBODY = "65534"
_SHELL = "/bin/sh"
_WAIT = 'echo > /proc/self/fd/$1 && read -r _ < /proc/self/fd/$2 && shift 2 && exec "$@"'
"""The program does not begin before this process has seen the sandbox, and never when this process is killed first."""
_PLACES_OUTSIDE = ("TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program `bwrap`; not every release can keep what is inside from making namespaces of its own, or overlay
    directories."""

    executable: str
    disables_userns: bool
    has_overlays: bool = True
    name = "bubblewrap"
    has_own_network = True

    def enclose(
        self, arguments: Sequence[str | bytes], confinement: Confinement, environment: Mapping[str, str]
    ) -> Enclosure:
        """Return what has to be started in the place of a program.

        The options and the environment are handed over in a file without a name: no other user can read them from the
        list of processes, and no variable of the program has a say in what happens outside.
        """
        options = [*self._options(confinement), *_variables(environment)]
        files = [_file(b"".join(os.fsencode(option) + b"\0" for option in options))]
        own = ["--args", str(files[0])]
        if not confinement.has_network and (syscall_filter := unix_socket_filter()) is not None:
            files.append(_file(syscall_filter))
            own += ["--seccomp", str(files[-1])]
        status, status_end = os.pipe()
        ready, ready_end = os.pipe()
        go_end, go = os.pipe()
        own += ["--json-status-fd", str(status_end), "--"]
        waiting = [_SHELL, "-c", _WAIT, "sandbox", str(ready_end), str(go_end)]
        try:
            watch = Watch.start()
        except OSError:
            for descriptor in (*files, status, status_end, ready, ready_end, go_end, go):
                os.close(descriptor)
            raise
        descriptors = (*files, status_end, ready_end, go_end, watch.announcement)
        started = watch.over([self.executable, *own, *waiting, *arguments])
        return Enclosure(started, {}, descriptors, Reports(status, ready, go, watch))

    def _options(self, confinement: Confinement) -> list[str]:
        return [
            *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
            *(() if confinement.has_network else ("--unshare-net",)),
            *(("--uid", _NOBODY, "--gid", _NOBODY) if os.geteuid() == 0 else ()),
            *(("--disable-userns",) if self.disables_userns else ()),
            "--die-with-parent",
            *mount_options(confinement, has_overlays=self.has_overlays),
            *("--chdir", str(confinement.working_dir)),
        ]


def _file(content: bytes) -> int:
    """Return the descriptor of a file without a name that holds this."""
    descriptor = os.memfd_create("sandbox")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if name not in _PLACES_OUTSIDE:
            yield from ("--setenv", name, value)


# What is mounted where for a confined program, in the words of bubblewrap.
#
# Everything is mounted read-only; over it lie what is writable, private, read-only again or hidden. Outer places
# are mounted before inner ones, so that each lies over what is around it.
#
# A hidden place is hidden by covering the directory that it is in, never by a mount over itself: the kernel takes
# that away when the place is replaced from outside. The cover is an overlay in which the hidden names are gone,
# also those that do not exist yet; where overlays cannot be had, something empty with everything else given back.
# Only inside a writable place, where a cover would keep new files from being made, a hidden place is masked by
# itself; a home directory is covered all the same, and what is in it is given back writable.


_ROOT = Path("/")
_PRIVATE = tuple(map(Path, ("/tmp", "/run", "/var/run", "/sys")))
_ELSEWHERE = tuple(map(Path, ("/proc", "/dev")))
_NOTHING = Path(__file__).with_name("nothing")  # an empty file; a device would be refused
_MOUNTS = Path("/proc/self/mountinfo")
_BACKSLASHED = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}


def mount_options(confinement: Confinement, *, has_overlays: bool) -> list[str]:
    """Return the options for all mounts of a program; raises `OSError` when a cover cannot be made."""
    return _View.of(confinement, has_overlays).options()


@dataclass(slots=True)
class _View:
    """What a program sees, put together place by place."""

    confinement: Confinement
    has_overlays: bool
    private: list[Path]
    writable: list[Path]
    concealed: list[Path]
    hidden: list[Path]
    steps: dict[Path, list[str]] = field(default_factory=lambda: defaultdict(list))
    sealed: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, confinement: Confinement, has_overlays: bool) -> "_View":
        hidden = _outermost(sorted({*confinement.hidden, layers_directory()}))
        private = [*_private_places(), *_existing(confinement.private)]
        writable = [
            path
            for path in _existing(confinement.writable)
            if not _is_below(path, (*_ELSEWHERE, *confinement.read_only)) and not _is_below(path, hidden)
        ]
        given = _existing((*confinement.writable, *confinement.readable, confinement.working_dir))
        concealed = [path for path in given if _is_below(path, private) and not _is_below(path, hidden)]
        return cls(confinement, has_overlays, private, writable, concealed, hidden)

    def options(self) -> list[str]:
        self._bind(_ROOT, is_writable=False)
        self.steps[Path("/dev")] += ("--dev", "/dev")
        self.steps[Path("/proc")] += ("--proc", "/proc")
        for path in self.private:
            self.steps[path] += ("--tmpfs", str(path))
        self._hide()
        for path in (*self.writable, *self.concealed):
            if not _is_below(path, self.private) or path in self.concealed:
                self._bind(path, is_writable=_is_below(path, self.writable))
        self._keep()
        self._show()
        ordered = [option for path in sorted(self.steps) for option in self.steps[path]]
        sealed = [option for path in self.sealed for option in ("--remount-ro", str(path))]
        return [*ordered, *sealed]

    def _bind(self, path: Path, *, is_writable: bool) -> None:
        self.steps[path] += ("--bind" if is_writable else "--ro-bind", str(path), str(path))

    def _is_there(self, path: Path) -> bool:
        return not _is_below(path, (*self.private, *_ELSEWHERE)) or _is_below(path, self.concealed)

    def _keep(self) -> None:
        """Make read-only what is to stay as it is."""
        kept = _existing(self.confinement.read_only)
        for path in (*self.confinement.kept_folders, *self.confinement.kept_files):
            if _is_below(path, self.writable) and path.parent.is_dir():
                _make_empty(path, is_folder=path in self.confinement.kept_folders)
                kept += _existing([path])
        for path in _outermost(sorted(kept)):
            if self._is_there(path) and not _is_below(path, self.hidden):
                self._bind(path, is_writable=False)

    # --- what is hidden

    def _hide(self) -> None:
        covered: dict[Path, list[Path]] = defaultdict(list)
        layers = layers_directory()
        for path in filter(self._is_there, self.hidden):
            directory, name = _nearest(path)
            if directory == _ROOT or path == layers or self._must_stay_open(directory):
                self._mask(path)
            elif self._is_there(directory):
                covered[directory].append(directory / name)
        for root in _outermost(sorted(covered)):
            names = [path for directory, paths in covered.items() if _is_below(directory, [root]) for path in paths]
            self._cover(root, sorted(set(names)))

    def _must_stay_open(self, directory: Path) -> bool:
        """True if new files are to be made in a directory; a home directory can do without."""
        return _is_below(directory, self.writable) and not _is_home(directory)

    def _mask(self, path: Path) -> None:
        if path.is_dir():
            self.steps[path] += ("--tmpfs", str(path))
            self.sealed.append(path)
        elif path.exists():
            self.steps[path] += ("--ro-bind", str(_NOTHING), str(path))

    def _cover(self, root: Path, names: list[Path]) -> None:
        """Lay over a directory one in which names are missing."""
        emptied = [path for path in names if path.is_dir() and any(_is_below(each, [path]) for each in self._shown())]
        if self.has_overlays:
            gone = [PurePosixPath(path.relative_to(root)) for path in names if path not in emptied]
            layer = make_layer(root, gone)
            self.steps[root] += ("--overlay-src", str(root), "--overlay-src", str(layer), "--ro-overlay", str(root))
            for path in _mounted_below(root):  # an overlay shows nothing of other file systems
                if not _is_below(path, names) and self._is_there(path) and not _is_below(path, self.writable):
                    self._bind(path, is_writable=False)
        else:
            self._give_back(root, names)
        for path in emptied:
            self.steps[path] += ("--tmpfs", str(path))
            self.sealed.append(path)
        if _is_below(root, self.writable):
            self._open_entries(root, names)

    def _give_back(self, directory: Path, names: list[Path]) -> None:
        """Empty a directory, and mount everything in it again that is not one of the names."""
        self.steps[directory] += ("--tmpfs", str(directory))
        self.sealed.append(directory)
        for entry in _entries(directory):
            path = Path(entry.path)
            if path in names:
                continue
            if entry.is_symlink():
                self.steps[path] += ("--symlink", os.readlink(path), str(path))  # noqa: PTH115 - as it is written
            elif any(name.is_relative_to(path) for name in names):
                self._give_back(path, names)
            else:
                self.steps[path] += ("--ro-bind-try", str(path), str(path))

    def _open_entries(self, directory: Path, names: list[Path]) -> None:
        """Make writable what is in a covered home directory and neither is hidden nor has something hidden in it."""
        for entry in _entries(directory):
            path = Path(entry.path)
            is_closed = any(path.is_relative_to(name) or name.is_relative_to(path) for name in names)
            if not is_closed and not entry.is_symlink() and path not in self.writable:
                self.steps[path] = ["--bind-try", str(path), str(path)]
        self.writable = [path for path in self.writable if path != directory]

    def _shown(self) -> list[Path]:
        return _existing(self.confinement.shown)

    def _show(self) -> None:
        for path in self._shown():
            if _is_below(path, self.hidden) and self._is_there(path):
                self._bind(path, is_writable=False)


def _make_empty(path: Path, *, is_folder: bool) -> None:
    with contextlib.suppress(OSError):
        if is_folder:
            path.mkdir()
        else:
            path.touch(exist_ok=False)


def _nearest(path: Path) -> tuple[Path, str]:
    """Return the nearest directory above a place that exists, and the name in it that leads to the place."""
    while not path.parent.is_dir():
        path = path.parent
    return path.parent, path.name


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _mounted_below(directory: Path) -> Iterator[Path]:
    """Yield the mount points inside of a directory."""
    prefix = f"{directory}{os.sep}"
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        point = line.split(" ", 5)[4]
        if "\\" in point:
            for written, meant in _BACKSLASHED.items():
                point = point.replace(written, meant)
        if point.startswith(prefix):
            yield Path(point)


def _private_places() -> Iterator[Path]:
    """Yield what is replaced by something empty: temporary files, and wherever daemons listen on Unix sockets."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for path in (*_PRIVATE, *([Path(runtime)] if runtime else ())):
        if path.is_dir() and not path.is_symlink():
            yield path


def _is_home(directory: Path) -> bool:
    """True if a directory is the user's home, or above it."""
    return Path(os.path.realpath(Path.home())).is_relative_to(directory)


def _is_below(path: Path, places: Iterable[Path]) -> bool:
    """True if a path is one of the places, or inside one; texts are compared, as it is asked hundreds of times."""
    return f"{path}{os.sep}".startswith(tuple([f"{str(place).rstrip(os.sep)}{os.sep}" for place in places]))


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Return what there is, outer places before inner ones."""
    return sorted({path for path in paths if path.exists()})


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are below no other; they are given in order, so that what is inside follows directly."""
    kept: list[Path] = []
    for path in paths:
        if not kept or not _is_below(path, kept[-1:]):
            kept.append(path)
    return kept


# A filter of system calls for programs without a network: they can open no Unix socket either.
#
# Such sockets are reached by path, whatever network a program has, and a daemon may listen anywhere. Pairs of
# connected sockets, which programs use among themselves, are not affected.


_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets of what the kernel shows to a filter
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_OTHER_NUMBERS = 0x40000000  # where a second set of numbers begins that x86_64 has for smaller pointers
_IO_URING_SETUP = 425  # its rings can open sockets past any filter
# Of each machine: how the kernel names it, and its number of `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}


def unix_socket_filter() -> bytes | None:
    """Return the filter in the kernel's form, None for a machine whose numbers are not known here."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.byteorder != "little":
        return None
    architecture, socket_number = machine
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_JUMP_IF_EQUAL, 0, 7, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_JUMP_IF_AT_LEAST, 5, 0, _OTHER_NUMBERS),
            (_JUMP_IF_EQUAL, 5, 0, _IO_URING_SETUP),
            (_JUMP_IF_EQUAL, 0, 2, socket_number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_IF_EQUAL, 2, 0, socket.AF_UNIX),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
            (_RETURN, 0, 0, _FAIL | errno.EPERM),
        )
    )
