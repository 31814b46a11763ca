"""The command `amplifier-core`: validates a module from the terminal."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from ._version import __version__
from .validation import (
    ContextValidator,
    HookValidator,
    OrchestratorValidator,
    ProviderValidator,
    ToolValidator,
    ValidationResult,
)
from .validation.base import ModuleValidator, validate_module
from .validation.contracts import failed

VALIDATORS: dict[str, type[ModuleValidator]] = {
    "provider": ProviderValidator,
    "tool": ToolValidator,
    "hook": HookValidator,
    "orchestrator": OrchestratorValidator,
    "context": ContextValidator,
}

_DESCRIPTIONS = {
    "provider": "connects a vendor of language models",
    "tool": "gives the agent something it can do",
    "hook": "observes, changes or stops what happens in a session",
    "orchestrator": "runs a turn, from the prompt to the answer",
    "context": "keeps the conversation and fits it into a request",
}
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 passed, 1 failed; a usage error exits with 2."""
    parser = _parser()
    arguments, more = parser.parse_known_args(argv)
    stray = [word for word in more if word.startswith("-") or arguments.command != "validate"]
    if stray:
        parser.error(f"unrecognized arguments: {visible(' '.join(stray))}")
    if arguments.command == "list-types":
        return _list_types()
    module_type, path = _type_and_path(parser, arguments.type, [*arguments.path, *more])
    try:
        result = _validate(path, module_type)
    except ValueError as exc:
        parser.error(visible(str(exc)))
    if arguments.quiet:
        _say(result.summary())
    else:
        _say(f"Validating {result.module_type} module: {path}\n")
        print_result(result)
    return 0 if result.passed else 1


def print_result(result: ValidationResult) -> None:
    """Print a result for people: the summary, then one line per check."""
    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _say(f"{result.summary()}\n")
    for check in result.checks:
        mark = "✓" if check.passed else "✗"
        if has_colours:
            mark = f"{_GREEN if check.passed else _RED}{mark}{_PLAIN}"
        _say(f" {f'[{check.severity}]':<9} {check.name}: {check.message}", lead=f"  {mark}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="amplifier-core", description="Validate Amplifier modules.")
    parser.add_argument("--version", action="version", version=f"%(prog)s, version {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    validate = commands.add_parser("validate", help="check a module against the contract of its type")
    validate.add_argument("path", nargs="+", metavar="PATH", help="the module's folder or its package directory")
    validate.add_argument("--type", choices=tuple(VALIDATORS), help="its type, when it does not say so itself")
    validate.add_argument("-e", "--entry-point", metavar="TEXT", help="accepted for older scripts, without effect")
    validate.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    commands.add_parser("list-types", help="list the types of modules there are")
    return parser


def _type_and_path(
    parser: argparse.ArgumentParser, module_type: str | None, positional: list[str]
) -> tuple[str | None, str]:
    """Return type and path from `PATH`, or from the older `TYPE PATH`."""
    if len(positional) > 2 or (len(positional) == 2 and positional[0] not in VALIDATORS):
        parser.error(f"one PATH is expected, got: {visible(' '.join(positional))}")
    path = positional[-1]
    if len(positional) == 2:
        if module_type not in (None, positional[0]):
            parser.error(f"two different types: {positional[0]} and {module_type}")
        module_type = positional[0]
    if not _exists(path):
        parser.error(f"path {path!r} does not exist")
    return module_type, path


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # a name no file system can hold
        return False


def _validate(path: str, module_type: str | None) -> ValidationResult:
    """Validate with the module's own output on stderr, where it cannot be taken for ours."""
    try:
        with redirect_stdout(sys.stderr):
            return asyncio.run(validate_module(path, module_type))
    except (SystemExit, asyncio.CancelledError) as exc:  # raised by a task that the module left behind
        result = ValidationResult(module_type or "unknown", path)
        result.add(failed("module_survives", f"The module ended the validation: {exc!r}"))
        return result


def _list_types() -> int:
    _say("Available module types:\n")
    for module_type, description in _DESCRIPTIONS.items():
        _say(f"  {module_type:<13} {description}")
    return 0


def _say(text: str, *, lead: str = "") -> None:
    """Print, even where the terminal cannot show every character; what it would obey is shown, but for our `lead`."""
    encoding = sys.stdout.encoding or "utf-8"
    print(f"{lead}{visible(text)}".encode(encoding, errors="backslashreplace").decode(encoding))


def visible(text: str) -> str:
    """Return text with what a terminal would obey, or not show, as escapes; newlines and tabs stay."""
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)
