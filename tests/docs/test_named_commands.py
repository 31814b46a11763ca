"""Messages, examples and pages name only commands and options that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from amplifier_cli.command_group import COMMANDS
from amplifier_cli.main import app as command_app
from amplifierd.control.main import app as daemon_app

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "modules", "registry", "docs", "examples", "deploy")
KINDS = {".js", ".md", ".py", ".txt", ".yaml"}
PROGRAMS = {"amplifier": typer.main.get_command(command_app), "amplifierd": typer.main.get_command(daemon_app)}

# In code, after a prompt, or after a sign as hints have it; up to what is not a plain word or an option.
NAMED = re.compile(r"(?:[`'\"]|\$ |[:;,] |^ +)(amplifierd?)((?: -{0,2}[A-Za-z][\w./-]*)+)", re.MULTILINE)


def faults(text: str) -> Iterator[str]:
    """Yield the commands in a text that do not exist, with what is wrong with them."""
    for program, rest in NAMED.findall(text):
        words = rest.split()
        if words[:1] == ["--home"]:
            words = words[2:]
        command, ctx = PROGRAMS[program], typer.Context(PROGRAMS[program])
        while words and hasattr(command, "commands") and not words[0].startswith("-") and words[0] != "alone":
            found = command.get_command(ctx, words[0].rstrip("."))
            if found is None and not words[0].isupper():
                yield f"{program}{rest}: there is no {words[0]}"
            if found is None:
                break
            command, ctx, words = found, typer.Context(found), words[1:]
        else:
            unknown = {word for word in words if word.startswith("--")} - _options(command)
            yield from (f"{program}{rest}: there is no {word}" for word in sorted(unknown))


def _options(command: Any) -> set[str]:
    if command.context_settings.get("ignore_unknown_options"):  # it hands them on
        return _options(PROGRAMS["amplifierd"].commands["serve"])
    return {"--help", *(name for option in command.params for name in (*option.opts, *option.secondary_opts))}


def test_every_command_that_is_named_exists() -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in KINDS]
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]

    told = {str(path.relative_to(ROOT)): [*faults(path.read_text(encoding="utf-8"))] for path in (*files, *pages)}

    assert {path: wrong for path, wrong in told.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    [
        "fix: amplifier profiles list",
        "`amplifier profile lost`",
        "$ amplifier run --modle opus",
        "run it, amplifierd begin",
        "see: amplifier daemon start --prot 1",
    ],
)
def test_one_that_does_not_is_found(text: str) -> None:
    assert len([*faults(text)]) == 1


def test_every_command_of_the_table_is_known() -> None:
    ctx = typer.Context(PROGRAMS["amplifier"])

    assert all(PROGRAMS["amplifier"].get_command(ctx, name) for name in COMMANDS)
