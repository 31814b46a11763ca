"""A filter of system calls for programs without a network: they can open no Unix socket either.

Such sockets are reached by path, whatever network a program has, and a daemon may listen anywhere. Pairs of connected
sockets, which programs use among themselves, are not affected.
"""

import errno
import platform
import socket
import struct
import sys

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
