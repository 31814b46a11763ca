"""The one place where errors become words and exit codes."""

from __future__ import annotations

from amplifier_core.exceptions import AmplifierError
from amplifier_system import screen

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


def say(text: str) -> None:
    """Write a line to stderr, even where the terminal cannot show every character."""
    screen.say(text, err=True)


def exit_code_of(error: AmplifierError) -> ExitCode:
    from amplifierd import exceptions as library  # it is there when it has failed

    if isinstance(error, library.SessionHeldError):
        return ExitCode.IN_USE
    usage = UsageError | library.SettingsError | library.ProviderNotInPlanError | library.SessionNameError
    return ExitCode.USAGE if isinstance(error, usage) else ExitCode.FAILURE
