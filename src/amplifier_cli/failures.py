"""The one place where errors become words and exit codes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from amplifier_core.exceptions import AmplifierError
from amplifier_system import visible
from amplifier_system.near_names import did_you_mean

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
    visible.say(text, err=True)


def exit_code_of(error: AmplifierError) -> ExitCode:
    from amplifierd import exceptions as library  # it is there when it has failed

    if isinstance(error, library.SessionHeldError):
        return ExitCode.IN_USE
    usage = UsageError | library.SettingsError | library.ProviderNotInPlanError | library.SessionNameError
    return ExitCode.USAGE if isinstance(error, usage) else ExitCode.FAILURE


_UNEXPECTED = "for details: amplifier --debug …, or command.log in the logs of the home"


def error_lines(error: Mapping[str, Any]) -> Iterator[str]:
    """Yield what went wrong and, where something helps, what to do."""
    yield f"error: {_readable(error)}"
    hint = error.get("hint") or (_UNEXPECTED if error.get("code") == "internal-error" else None)
    if hint:
        yield f"  fix: {hint}"


def _readable(error: Mapping[str, Any]) -> str:
    """Return the detail of an error; of the JSON that a vendor answers, its message."""
    detail = str(error.get("detail"))
    message = vendor_message(detail)
    status = error.get("upstream_status")
    who = f"{error.get('provider') or 'the provider'} refused the request{f' ({status})' if status else ''}"
    return f"{who}: {message}" if message else detail


def vendor_message(text: str) -> str:
    """Return the sentence in the JSON that a vendor answers, empty where a text is none."""
    try:
        answer = json.loads(text)
    except ValueError:
        return ""
    inner = answer.get("error", answer) if isinstance(answer, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return message if isinstance(message, str) else ""


_REASONS = {
    "RateLimitError": "rate limit (429)",
    "ProviderUnavailableError": "the provider is not available",
    "NetworkError": "no connection",
    "StreamError": "the answer broke off",
}


def retry_words(retry: Mapping[str, Any]) -> str:
    """Return in words when a provider is asked again, and why: `attempt 2 of 5 in 4 s: rate limit (429)`."""
    attempt, most, delay_s = (retry.get(key) or 0 for key in ("attempt", "max_retries", "delay"))
    data = {
        "detail": retry.get("error_message") or retry.get("error") or "it failed",
        "provider": retry.get("provider"),
    }
    reason = _REASONS.get(str(retry.get("error_type"))) or _readable(data)
    return f"attempt {attempt + 1} of {most + 1} in {delay_s:.0f} s: {reason}"


# What a person probably meant: a unique beginning, or a name that is spelled almost like it.


_SHOWN = 3


def pick(typed: str, known: Iterable[str], what: str, *, key: Callable[[str], str] = str, see: str = "") -> str:
    """Return the one known name that is typed, or that begins like it; `key` is the part that people type.

    Raises:
        UsageError: none does, or several do.
    """
    names = [*known]
    if typed in names:
        return typed
    found = [name for name in names if key(name) == typed]
    found = found or [name for name in names if typed and (name.startswith(typed) or key(name).startswith(typed))]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(found[:_SHOWN])
        raise UsageError(
            f"{typed!r} matches {len(found)} {what}s: {some}{', …' if len(found) > _SHOWN else ''}",
            hint="type more of it",
        )
    hint = did_you_mean(typed, names) or did_you_mean(typed, map(key, names)) or see
    raise UsageError(f"there is no {what} {typed!r}", hint=hint)


# Questions that a command puts to the person at the terminal.


Force = Annotated[bool, typer.Option("--force", help="Do not ask.")]


def confirm(question: str, *, force: bool) -> None:
    """Ask at the terminal, unless `force` is set; a no ends the command.

    Raises:
        UsageError: there is no terminal.
    """
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on", hint="add --force to skip the question")
    with interruptible():
        typer.confirm(visible.visible_exactly(question), abort=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a question: an event loop that waits for the answer would not hear of it.

    Raises:
        typer.Exit: Ctrl-C was pressed.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (KeyboardInterrupt, typer.Abort) as stopped:
        if isinstance(stopped, typer.Abort) and not isinstance(stopped.__context__, KeyboardInterrupt):
            raise  # the answer was no
        sys.stderr.write("\n")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
