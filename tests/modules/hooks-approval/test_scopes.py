"""What an "always" stands for: what the question says, and nothing beyond it."""

from typing import Any

import pytest
from amplifier_module_hooks_approval.verdict import family_of, plain_words, scope_of
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core.interfaces import ApprovalResponse
from amplifier_kit.concerns import Scope
from amplifier_kit.tools.effects import ALL_EFFECTS

from .conftest import MountGuard

FIRST_AND_LATER = {
    "pytest …": ["pytest -q", "pytest tests/x.py", "pytest -x -k foo", "pytest -xvs 'tests/x.py::test_a[1]'"],
    "git commit …": ["git commit -m 'web: ask (row 4); done & dusted'", 'git commit -am "two"', "git commit -m 'a\nb'"],
    "git add …": ["git add .", "git add -A", "git add src/a.py docs"],
    "git switch …": ["git switch -c topic", "git switch main"],
    "git checkout -b …": ["git checkout -b topic"],
    "git log …": ["git log --oneline -5", "git log main..HEAD --stat", "git log HEAD~2"],
    "ls …": ["ls", "ls -la src"],
}


@pytest.mark.parametrize("family", FIRST_AND_LATER)
def test_harmless_commands_of_a_family_share_one_scope(family: str) -> None:
    for command in FIRST_AND_LATER[family]:
        assert command_scope(command) == Scope("bash", family), command


@pytest.mark.parametrize(
    "command",
    [
        "git config user.name me",
        "git config core.fsmonitor ./evil",
        "git -c core.fsmonitor=./evil status",
        "git push",
        "git push origin main",
        "git fetch https://example.org/x.git",
        "git diff --output=.bashrc",
        "git diff --ext-diff",
        "git checkout .",
        "git checkout -- src",
        "git branch -D main",
        "curl -s https://example.org/",
        "wget https://example.org/",
        "ssh example.org",
        "npm install",
        "npm run build",
        "pip install -e .",
        "cargo run",
        "go run .",
        "make",
        "python -m pytest",
        "python3 test.py",
        "env pytest",
        "FOO=1 pytest",
        "./pytest",
        "/tmp/pytest",
        "pytest -p evil",
        "pytest --basetemp=src",
        "pytest -c evil.ini",
        "pytest --rootdir=/tmp",
        "pytest ../other",
        "pytest /tmp/evil.py",
        "pytest ~/evil.py",
        "pytest *",
        "pytest [-]p",
        "pytest ''[-]p evil",
        "pytest {-p,evil}",
        "pytest .[.]/x",
        "pytest a=~/x",
        "pytest $(touch x)",
        'pytest "$(touch x)"',
        "pytest `touch x`",
        "pytest; touch x",
        "pytest & touch x",
        "pytest | tee x",
        "pytest > x",
        "pytest\ntouch x",
        "pytest \\-p",
        "pytest 'a",
        "pytest \x1b[2K",
        "ls '\x1b[2K'",
        "ruff check --fix",
        "wc --files0-from=x",
        "'git commit' x",
        "sort -o x y",
        "uniq a b",
    ],
)
def test_everything_else_is_remembered_by_its_exact_text(command: str) -> None:
    assert command_scope(command) == Scope("bash", command, is_exact=True)
    assert command_scope(command).words == "exactly this call"


def test_a_field_that_changes_what_a_command_does_makes_it_a_call_of_its_own() -> None:
    in_front = scope_of("bash", {"command": "pytest -q", "run_in_background": False}, ALL_EFFECTS, DEFAULTS)
    behind = scope_of("bash", {"command": "pytest -q", "run_in_background": True}, ALL_EFFECTS, DEFAULTS)
    elsewhere = scope_of("bash", {"command": "pytest -q", "working_dir": "/"}, ALL_EFFECTS, DEFAULTS)

    assert in_front == Scope("bash", "pytest …")
    assert behind is not None
    assert elsewhere is not None
    assert behind.is_exact
    assert elsewhere.is_exact
    assert behind.key != elsewhere.key


def test_files_go_by_tool_and_directory() -> None:
    def words(tool: str, path: str) -> str | None:
        scope = scope_of(tool, {"file_path": path, "content": "x"}, frozenset({"write"}), {})
        return scope.words if scope is not None else None

    assert words("edit_file", "src/a.py") == words("edit_file", "./src/b.py") == "edit files in src/"
    assert words("write_file", "a.py") == "write files in ./"
    assert words("edit_file", "src/deep/a.py") == "edit files in src/deep/"
    assert words("write_file", "sr\u202ec/a.py") is None


WORDS = st.sampled_from(
    [
        "git",
        "commit",
        "add",
        "pytest",
        "curl",
        "-m",
        "-q",
        "-o",
        "--output=x",
        "x",
        "..",
        "/etc",
        "'a b'",
        '"$x"',
        ";",
        "|",
    ]
) | st.text(max_size=4)
COMMANDS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join).filter(bool)


@given(COMMANDS, COMMANDS)
def test_two_commands_with_one_key_have_the_same_words_and_are_described_by_them(one: str, other: str) -> None:
    scopes = [command_scope(command) for command in (one, other)]

    if scopes[0].key == scopes[1].key:
        assert scopes[0].words == scopes[1].words
        assert scopes[0].is_exact == scopes[1].is_exact
    for command, scope in zip((one, other), scopes, strict=True):
        if scope.is_exact:
            assert scope.covers == command
        else:
            program = scope.covers.removesuffix(" …").split()
            assert (plain_words(command) or [])[: len(program)] == program
            assert scope.words == scope.covers


@given(st.text(alphabet="git comadpyes-'\"[~/.=\n$;|", max_size=30))
def test_a_family_never_holds_a_command_that_a_shell_would_take_apart(text: str) -> None:
    if family_of(text) is not None:
        outside = "".join(part for place, part in enumerate(text.replace('"', "'").split("'")) if place % 2 == 0)
        assert not set(outside) & set("$;|&<>`()\\*?{}"), text


def test_a_scope_that_was_written_down_is_read_as_it_was() -> None:
    for scope in (Scope("bash", "pytest …"), Scope("bash", "npm install", is_exact=True), Scope("host", "a.org:443")):
        assert Scope.read(scope.to_dict()) == scope
    for damaged in (
        {},
        {"tool": "bash"},
        {"tool": "bash", "covers": ""},
        {"tool": "bash", "covers": "a", "exactly": "a"},
    ):
        with pytest.raises(ValueError, match="which calls it covers"):
            Scope.read(damaged)


DEFAULTS = {"run_in_background": False}


def command_scope(command: str) -> Scope:
    tool_input: dict[str, Any] = {"command": command}
    scope = scope_of("bash", tool_input, ALL_EFFECTS, DEFAULTS)
    assert scope is not None
    return scope


DAYS = {
    "pytest": (1, ["pytest -q", "pytest tests/x.py", "pytest -x -k foo", "pytest -q tests/x.py::test_a --tb=short"]),
    "git": (
        5,
        [
            *("git status", "git switch -c topic", "git add -A", "git commit -m 'one: begin (a)'", "git diff HEAD~1"),
            *("git add src/a.py", 'git commit -m "two; and more"', "git log --oneline -5", "git push", "git push"),
        ],
    ),
    "npm": (1, ["npm install", "npm install"]),
    "pip": (1, ["pip install -e .", "pip install -e ."]),
}


@pytest.mark.parametrize("day", DAYS)
async def test_a_day_of_one_kind_of_work_asks_only_this_often(mount_guard: MountGuard, day: str) -> None:
    most, commands = DAYS[day]
    reading = [{"pattern": f"git {verb}*", "action": "auto_approve"} for verb in ("status", "diff", "log")]
    guard = await mount_guard(rules=reading)
    provider = guard.answered_by(ApprovalResponse(approved=True, remember=True))

    for command in commands:
        assert (await guard.judge_command(command)).action == "continue"

    assert len(provider.requests) <= most, [request.action for request in provider.requests]
