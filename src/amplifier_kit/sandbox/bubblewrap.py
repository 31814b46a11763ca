"""A confinement in the words of bubblewrap, for Linux.

`mounts` says what is mounted where. The options go to bubblewrap in a file without a name.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .confinement import Confinement
from .enclosure import Enclosure, Reports
from .mounts import mount_options
from .syscall_filter import unix_socket_filter
from .watch import Watch

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
