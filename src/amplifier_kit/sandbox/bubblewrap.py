"""A confinement in the words of bubblewrap, for Linux.

The order counts: a later mount lies over an earlier one. First everything read-only with what is writable in it, then
private and empty places with what is given back there, and over that what is hidden or read-only inside it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .confinement import Confinement
from .enclosure import Enclosure, Reports
from .syscall_filter import unix_socket_filter
from .watch import Watch

_NOBODY = "65534"
_PRIVATE = tuple(map(Path, ("/tmp", "/run", "/var/run", "/sys")))
_ELSEWHERE = tuple(map(Path, ("/proc", "/dev")))
_NOTHING = Path(__file__).with_name("nothing")  # an empty file; a device would be refused
_SHELL = "/bin/sh"
_WAIT = 'echo > /proc/self/fd/$1 && read -r _ < /proc/self/fd/$2 && shift 2 && exec "$@"'
"""The program does not begin before this process has seen the sandbox, and never when this process is killed first."""
_PLACES_OUTSIDE = ("TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program `bwrap`; not every release can keep what is inside from making namespaces of its own."""

    executable: str
    disables_userns: bool
    name = "bubblewrap"

    def enclose(
        self, arguments: Sequence[str | bytes], confinement: Confinement, environment: Mapping[str, str]
    ) -> Enclosure:
        """Return what has to be started in the place of a program.

        The options and the environment are handed over in a file without a name: no other user can read them from the
        list of processes, and no variable of the program has a say in what happens outside.
        """
        options = [*_options(confinement, self.disables_userns), *_variables(environment)]
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


def _file(content: bytes) -> int:
    """Return the descriptor of a file without a name that holds this."""
    descriptor = os.memfd_create("sandbox")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _options(confinement: Confinement, disables_userns: bool) -> list[str]:
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if confinement.has_network else ("--unshare-net",)),
        *(("--uid", _NOBODY, "--gid", _NOBODY) if os.geteuid() == 0 else ()),
        *(("--disable-userns",) if disables_userns else ()),
        "--die-with-parent",
        *_mounts(confinement),
        *("--chdir", str(confinement.working_dir)),
    ]


def _mounts(confinement: Confinement) -> Iterator[str]:
    private = [*_private_places(), *_existing(confinement.private)]
    writable = [path for path in _existing(confinement.writable) if not _is_below(path, _ELSEWHERE)]
    outside = [path for path in writable if not _is_below(path, private)]
    concealed = [
        path
        for path in _existing((*confinement.writable, *confinement.readable, confinement.working_dir))
        if _is_below(path, private)
    ]
    yield from ("--ro-bind", "/", "/")
    for path in outside:
        yield from ("--bind", str(path), str(path))
    yield from ("--dev", "/dev", "--proc", "/proc")
    for path in private:
        yield from ("--tmpfs", str(path))
    for path in concealed:
        yield from ("--bind" if _is_below(path, writable) else "--ro-bind", str(path), str(path))
    gone = [*private, *_ELSEWHERE]

    def is_there(path: Path) -> bool:
        return not _is_below(path, gone) or _is_below(path, concealed)

    for path in filter(is_there, _outermost(_existing(confinement.read_only))):
        yield from ("--ro-bind", str(path), str(path))
    for path in filter(is_there, _outermost(_existing(confinement.hidden))):
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        else:
            yield from ("--ro-bind", str(_NOTHING), str(path))


def _private_places() -> Iterator[Path]:
    """Yield what is replaced by something empty: temporary files, and wherever daemons listen on Unix sockets."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for path in (*_PRIVATE, *([Path(runtime)] if runtime else ())):
        if path.is_dir() and not path.is_symlink():
            yield path


def _is_below(path: Path, places: Iterable[Path]) -> bool:
    """Say whether a path is one of the places, or inside one."""
    return any(path.is_relative_to(place) for place in places)


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Return what there is, outer places before inner ones."""
    return sorted({path for path in paths if path.exists()})


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are below none before them."""
    kept: list[Path] = []
    for path in paths:
        if not _is_below(path, kept):
            kept.append(path)
    return kept


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if name not in _PLACES_OUTSIDE:
            yield from ("--setenv", name, value)
