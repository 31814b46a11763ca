"""Where a session's working directory is: on one machine, on those of a pool, or on all that share a path."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from amplifierd.exceptions import SessionStateError
from amplifierd.paths import Paths
from amplifierd.settings import ClusterSettings
from amplifierd.store.record import SessionRecord, WorkingDirScope


def unfit_working_dir(directory: Path | str, paths: Paths) -> str:
    """Return why no session works in a directory without a person's yes, empty for one that is fit.

    There, whatever is writable for a session includes what other programs, the user's shell or later sessions run.
    """
    if "\0" in str(directory):
        return "it is not the name of a directory"
    place = Path(os.path.realpath(Path(directory).expanduser()))
    if place == Path("/"):
        return "it is the root of all files"
    if any(home.is_relative_to(place) for home in _user_homes()):
        return "it is a home directory, or has one in it"
    own = [Path(os.path.realpath(each)) for each in (paths.config, paths.state, paths.share, paths.cache)]
    if place == Path(os.path.realpath(paths.home)) or any(place.is_relative_to(each) for each in own):
        return "it is the home of Amplifier"
    return ""


def _user_homes() -> set[Path]:
    homes = {Path.home()}
    with suppress(KeyError):  # not every user is in the list
        homes.add(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    return {Path(os.path.realpath(home)) for home in homes} - {Path("/")}


@dataclass(frozen=True)
class Machine:
    """A machine as sessions are tied to it."""

    host: str
    pool: str | None = None
    shared_paths: tuple[Path, ...] = ()

    @classmethod
    def here(cls, settings: ClusterSettings | None = None) -> Machine:
        settings = settings or ClusterSettings()
        return cls(socket.gethostname(), settings.labels.get("pool"), settings.shared_paths)

    def with_directory_of(self, record: SessionRecord) -> Machine:
        """Return the machine that a session's directory is on; this one stands for one that is not known."""
        if record.working_dir_host in (None, self.host):
            return self
        return replace(self, host=record.working_dir_host, pool=record.working_dir_pool)

    def place_of(self, directory: Path | str, scope: WorkingDirScope | None = None) -> dict[str, Any]:
        """Return what a session's record says about a directory here.

        Without a `scope` that is `shared` below a path that machines share, else `host`.

        Raises:
            SessionStateError: the directory does not have that scope.
        """
        is_shared = self._is_shared(directory)
        found = scope or ("shared" if is_shared else "host")
        if found == "shared" and not is_shared:
            raise SessionStateError(
                f"the working directory {directory} is not below a path that machines share",
                hint="name one in cluster.shared_paths on each machine that has it, or take the scope host",
            )
        if found == "pool" and self.pool is None:
            raise SessionStateError(
                f"the machine {self.host} is in no pool",
                hint="set cluster.labels, for example pool=builders, on each machine of a pool",
            )
        return {"working_dir_scope": found, "working_dir_host": self.host, "working_dir_pool": self.pool}

    def _is_shared(self, directory: Path | str) -> bool:
        """Compare paths as they are written: that is what other machines are told."""
        path = PurePosixPath(os.path.normpath(directory))
        return any(path.is_relative_to(shared) for shared in self.shared_paths)
