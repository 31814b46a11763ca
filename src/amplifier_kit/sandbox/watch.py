"""A small process that watches ours, and kills a sandbox when ours is gone.

bubblewrap binds its processes to the life of ours one after the other, and its first one inside waits for a word from
outside before. A process that is killed meanwhile leaves the next one waiting forever. The watch is told the process
group of the sandbox before there is any, and ends all of it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from amplifier_system.processes import spawn

_SHELL = "/bin/sh"
# Its input ends without a line when our process does; where the group is announced has to be another descriptor.
_WATCH = 'read -r group <&1 || exit; read -r _ || kill -KILL "-$group"'
_ANNOUNCE = 'echo $$ > /proc/self/fd/$1 && shift && exec "$@"'


class Watch:
    """The watch over one sandbox. What is started with `over` has to lead a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes], announcement: int) -> None:
        self._process = process
        self.announcement = announcement

    @classmethod
    def start(cls) -> Self:
        """Start to watch; raises `OSError`. `announcement` is for what is started, and to be closed here after that."""
        announced, announcement = os.pipe()
        try:
            process = spawn(
                [_SHELL, "-c", _WATCH], environment={}, cwd=Path("/"), stdin=subprocess.PIPE, stdout=announced
            )
        except OSError:
            os.close(announcement)
            raise
        finally:
            os.close(announced)
        return cls(process, announcement)

    def over(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        """Return the sandbox so that it announces itself before it begins."""
        return [_SHELL, "-c", _ANNOUNCE, "watched", str(self.announcement), *arguments]

    def release(self) -> None:
        """Stop to watch: nothing is left of the sandbox."""
        self._process.communicate(b"\n")

    def kill(self) -> None:
        """Kill what is left of the sandbox, and stop to watch."""
        self._process.communicate()
