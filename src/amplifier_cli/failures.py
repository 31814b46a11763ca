"""The one place where errors become words and exit codes."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from amplifier_core.exceptions import AmplifierError

from .exit_codes import ExitCode


class UsageError(AmplifierError):
    """What was typed cannot be done; nothing was tried."""


def report(error: AmplifierError, *, debug: bool) -> ExitCode:
    """Print what went wrong and how to fix it, with `debug` also where; return the exit code."""
    if debug:
        import traceback  # only a person who asks for it needs it

        traceback.print_exception(error)
    else:
        say(f"error: {error.message or type(error).__name__}")
        if error.hint:
            say(f"  fix: {error.hint}")
    return exit_code_of(error)


_REASONS = {
    errno.ENOSPC: "free some space, or move the home: amplifier --home DIR",
    errno.EFBIG: "allow larger files (ulimit -f), or move the home: amplifier --home DIR",
    errno.EDQUOT: "free some space, or move the home: amplifier --home DIR",
    errno.EACCES: "make it readable and writable for you, or choose another home: amplifier --home DIR",
    errno.EPERM: "make it readable and writable for you, or choose another home: amplifier --home DIR",
    errno.EROFS: "choose a home on a file system that can be written: amplifier --home DIR",
}


def as_reported(error: OSError) -> AmplifierError | None:
    """Return what the operating system refused as an error that says how to fix it; None when nobody can."""
    if error.errno == errno.ENOENT and not error.filename and not _has_working_dir():
        return _known(error, "the current directory no longer exists", "go to one that does: cd")
    if error.errno == errno.ENOENT and not error.filename:  # the word of tempfile for a disk that is full
        return _known(error, str(error.strerror), "free some space, or name a directory that can be written in TMPDIR")
    hint = _REASONS.get(error.errno or 0)
    if hint is None:
        return None
    place = f"{error.filename}: " if error.filename else ""
    return _known(error, f"{place}{error.strerror}", hint)


def _known(error: OSError, message: str, hint: str) -> AmplifierError:
    known = AmplifierError(message, hint=hint)
    known.__cause__ = error
    return known


def _has_working_dir() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def say(text: str) -> None:
    """Write a line to stderr, even where the terminal cannot show every character."""
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")
    sys.stderr.flush()


def exit_code_of(error: AmplifierError) -> ExitCode:
    from amplifierd import exceptions as library  # it is there when it has failed

    if isinstance(error, library.SessionHeldError):
        return ExitCode.IN_USE
    is_usage = isinstance(error, UsageError | library.SettingsError | library.ProviderNotInPlanError)
    return ExitCode.USAGE if is_usage else ExitCode.FAILURE
