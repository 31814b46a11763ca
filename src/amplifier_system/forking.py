"""Forking for the parent, on Linux: a process that has prepared itself makes copies that are its parent's children.

`fork_for_parent()` is a fork whose child has the same parent as the process that calls it: that one waits for it and
is told of its end, however long the process in between lives. `replace_shown(old, new)` changes a word of the command
line and the environment that `/proc` shows of this process, which a fork takes over as they were executed. In the
parent, a `ForkedChild` is what a `ProcessTree` needs of such a child.
"""

import ctypes
import errno
import os
import platform
import signal
from pathlib import Path

_CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call; with a null for the stack, it takes the same arguments on these machines."""

_CLONE_PARENT = 0x8000
_CLONE_CHILD_CLEARTID = 0x200000
_CLONE_CHILD_SETTID = 0x1000000
_PR_GET_TID_ADDRESS = 40

_STAT = Path("/proc/self/stat")
_ARGUMENTS_START, _ENVIRONMENT_END = 45, 48  # of /proc/self/stat, counted from the state, which follows the name


def fork_for_parent() -> int:
    """Fork, and return 0 in the child, its pid otherwise. There must be no other threads.

    The C library's own fork cannot do this. It has the system write the child's number where the library keeps it, and
    so does this one.

    Raises `OSError` where the system has no such call, or keeps it from us.
    """
    number = _CLONE.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"no way to fork for the parent on {platform.machine()}")
    library = ctypes.PyDLL(None, use_errno=True)  # the interpreter must not go on in another thread meanwhile
    thread_number = ctypes.c_void_p()
    if library.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(thread_number), 0, 0, 0):
        raise _last_error()
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | signal.SIGCHLD
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = library.syscall(ctypes.c_long(number), ctypes.c_ulong(flags), None, None, thread_number, thread_number)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise _last_error()
    return pid


class ForkedChild:
    """A child of this process, by its pid."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait until it has exited, once, and return how: negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def replace_shown(old: str, new: str) -> None:
    """Have `/proc` show `new`, which is as long, wherever the command line and the environment had `old`.

    Raises `OSError` when neither has it.
    """
    if len(old.encode()) != len(new.encode()):
        raise ValueError(f"{new!r} is not as long as {old!r}")
    fields = _STAT.read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ENVIRONMENT_END])
    shown = ctypes.string_at(start, end - start) if start else b""
    if old.encode() not in shown:
        raise OSError(errno.ENOENT, f"{old} is not among what was executed")
    ctypes.memmove(start, shown.replace(old.encode(), new.encode()), len(shown))


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
