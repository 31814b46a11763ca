"""What the command's exit codes mean; `docs/command.md` has the same table."""

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    IN_USE = 3
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILURE: "something failed; the message says what",
    ExitCode.USAGE: "invalid options, arguments or settings",
    ExitCode.IN_USE: "another process holds the session",
    ExitCode.INTERRUPTED: "Ctrl-C; the session is stored and you can continue it",
}
