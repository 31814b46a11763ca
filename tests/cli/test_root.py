"""The command itself: help, version, mistakes in typing, exit codes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer

from amplifier_cli.command_group import COMMANDS, OF_DAEMON
from amplifier_core import __version__
from amplifierd.control.main import app as control

Say = Callable[..., Any]


def test_help_names_every_command_in_a_line(say: Say) -> None:
    said = say("--help")

    assert said.code == 0
    assert [name for name in COMMANDS if f"\n  {name}" not in said.out] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_that_teaches_with_examples(say: Say, name: str) -> None:
    said = say(name, "--help")

    assert said.code == 0
    assert f"amplifier {name}" in said.out
    assert "Examples:" in said.out


def test_help_lists_what_each_command_of_a_noun_does_in_full(say: Say) -> None:
    assert "..." not in say("session", "--help").out.partition("Commands:")[2]


def test_usage_shows_arguments_in_capitals_and_which_can_be_left_out(say: Say) -> None:
    assert "Usage: amplifier session rename [OPTIONS] SESSION NAME\n" in say("session", "rename", "-h").out
    assert "Usage: amplifier tool invoke [OPTIONS] TOOL [KEY=VALUE]...\n" in say("tool", "invoke", "-h").out


def test_the_version_is_told_in_two_ways(say: Say) -> None:
    assert say("--version").out == f"amplifier {__version__}\n"
    assert json.loads(say("version", "--json").out)["amplifier"] == __version__


@pytest.mark.parametrize(("given", "problem"), [("0", "greater than or equal to 1"), ("few", "valid integer")])
def test_a_value_that_was_given_is_checked(say: Say, given: str, problem: str) -> None:
    said = say("session", "list", "--limit", given)

    assert said.code == 2
    assert problem in said.err


def test_a_mistyped_command_gets_a_suggestion(say: Say) -> None:
    said = say("confg")

    assert said.code == 2
    assert "Did you mean 'config'?" in said.err


@pytest.mark.parametrize("name", OF_DAEMON)
def test_a_command_of_the_daemon_is_named_as_such(say: Say, name: str) -> None:
    said = say(name, "status")

    assert said.code == 2
    assert f"'{name}' is a command of the daemon: amplifierd {name} status" in said.err
    assert name in {*typer.main.get_command(control).commands}  # type: ignore[attr-defined]


def test_a_mistyped_option_gets_a_suggestion(say: Say) -> None:
    said = say("version", "--jsn")

    assert said.code == 2
    assert "--json" in said.err


def test_an_error_says_what_is_wrong_and_how_to_fix_it_and_debug_shows_where(say: Say) -> None:
    plain = say("config", "get", "profil")
    debug = say("--debug", "config", "get", "profil")

    assert plain.err == "error: there is no setting 'profil'\n  fix: did you mean profile?\n"
    assert (plain.code, debug.code) == (2, 2)
    assert "Traceback" in debug.err


def test_a_shell_gets_a_script_for_completion(say: Say) -> None:
    assert "_AMPLIFIER_COMPLETE" in say("completion", "bash").out
    assert say("completion", "tcsh").code == 2


def test_a_shell_completes_commands_and_options(amplifier: Any) -> None:
    def complete(words: str, run: Any = amplifier) -> list[str]:
        variables = {"_AMPLIFIER_COMPLETE": "complete_bash", "COMP_WORDS": words}
        found: str = run(variables={**variables, "COMP_CWORD": str(len(words.split(" ")) - 1)}).stdout
        return found.split()

    assert {"config", "completion"} <= set(complete("amplifier co", amplifier.executable))
    assert complete("amplifier config s") == ["set"]
    assert "--json" in complete("amplifier config list --")
