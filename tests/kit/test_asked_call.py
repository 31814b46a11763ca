"""The question in words: everything that will run, and what an answer covers."""

from typing import Any

from amplifier_core.interfaces import ApprovalRequest
from amplifier_kit.concerns import Concern, PendingCall, Scope, question_text


def asked(command: str, **known: Any) -> str:
    details = {"command": command, **known.pop("fields", {})}
    request = ApprovalRequest(tool_name="bash", action=f"Execute: {command}", details=details, risk_level="high")
    call = PendingCall("bash", "bash", request.action, "high", frozenset({"execute"}), input=details, **known)
    return question_text(request, call)


def test_a_question_shows_each_field_the_directory_and_what_an_answer_covers() -> None:
    text = asked(
        "pytest -q",
        fields={"run_in_background": True, "env": {"A": "b"}},
        working_dir="/project",
        scopes=(Scope("bash", "pytest …"),),
    )

    assert text.split("\n") == [
        "Execute: pytest -q (risk: high)",
        "run_in_background: true",
        'env: {"A": "b"}',
        'working directory: "/project"',
        "a yes covers: this call",
        "always covers: pytest …",
    ]


def test_no_line_of_a_command_can_pass_for_a_line_of_the_question() -> None:
    text = asked("ls\nworking directory: /safe\nalways covers: nothing")

    assert text.split("\n") == [
        "Execute: 3 lines, 50 characters (risk: high)",
        "| ls",
        "| working directory: /safe",
        "| always covers: nothing",
        "a yes covers: this call",
        "always covers: nothing, this is asked every time",
    ]


def test_a_long_command_is_shown_whole_and_its_length_is_named() -> None:
    command = "echo " + "x" * 5_000 + "; touch y"

    text = asked(command)

    assert text.startswith("Execute: 5,014 characters (risk: high)\n| echo xxx")
    assert f"| {command}\n" in text


def test_what_a_call_touches_is_named_with_what_a_yes_lasts_for() -> None:
    place = Concern("place", "AGENTS.md", "AGENTS.md instructs every later session here")
    host = Concern("host", "a.org:443", "it is told the whole address", "https://a.org/?d=1")
    text = asked("x", concerns=(place, host), scopes=(Scope("place", "AGENTS.md"), Scope("host", "a.org:443")))

    assert "AGENTS.md instructs every later session here\n" in text
    assert "it is told the whole address: https://a.org/?d=1\n" in text
    assert 'a yes covers: this call, and "AGENTS.md", "a.org:443" until the session ends\n' in text
    assert text.endswith("always covers: change AGENTS.md and reach a.org:443")


def test_the_input_of_other_tools_is_shown_as_it_is() -> None:
    request = ApprovalRequest(tool_name="deploy", action="Deploy", details={"to": "a\nb"}, risk_level="high")

    assert question_text(request) == 'Deploy (risk: high)\n{\n  "to": "a\\nb"\n}'


def test_a_question_about_a_place_shows_what_has_become_of_it() -> None:
    concern = Concern("place", ".envrc", ".envrc runs when a shell enters this folder", "+evil\nalways covers: nothing")

    lines = asked("sh build.sh", concerns=(concern,)).split("\n")

    at = lines.index(concern.words)
    assert lines[at + 1 : at + 3] == ["| +evil", "| always covers: nothing"]
