"""What the rules approve and deny by themselves, and what no disguise gets past them."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_approval.config import DEFAULT_RULES, check_auto_action
from hypothesis import given
from hypothesis import strategies as st

ALLOWED = ["pwd", "ls -1 src", "echo ok"]

# Each lets a shell do something besides the command it follows.
CONTINUATIONS = {
    "semicolon": "; rm x",
    "semicolon without spaces": ";rm x",
    "background": "& rm x",
    "and": "&& rm x",
    "pipe": "| sh",
    "pipe with errors": "|& sh",
    "or": "|| rm x",
    "input": "< secrets",
    "here document": "<< END",
    "output": "> file",
    "appended output": ">> file",
    "forced output": ">| file",
    "descriptor": "2>&1",
    "line feed": "\nrm x",
    "carriage return": "\rrm x",
    "both line ends": "\r\nrm x",
    "backticks": " `rm x`",
    "command substitution": " $(rm x)",
    "quoted command substitution": ' "$(rm x)"',
    "variable": " $HOME",
    "variable in braces": " ${IFS}rm",
    "ansi quoting": " $'\\n'rm",
    "subshell": " (rm x)",
    "process substitution": " <(rm x)",
    "output process substitution": " >(rm x)",
    "line continuation": " \\\n rm x",
    "escape": " \\; rm x",
    "function": "() { rm x; }",
    "quoted semicolon": " 'a; b'",
}
CONTROL_CHARACTERS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"]


def rule(pattern: str, action: str = "auto_approve", **more: str) -> dict[str, str]:
    return {"pattern": pattern, "action": action, **more}


def by_default(command: Any) -> str | None:
    return check_auto_action(DEFAULT_RULES, "bash", {"command": command})


@pytest.mark.parametrize("command", [*ALLOWED, "ls", "echo", "LS -la", "  ls  ", "\tpwd\n", "echo 'a b'", "ls ~ *.py"])
def test_a_plain_command_is_approved(command: str) -> None:
    assert by_default(command) == "auto_approve"


@pytest.mark.parametrize("allowed", ALLOWED)
def test_nothing_that_follows_an_approved_command_is_approved_with_it(allowed: str) -> None:
    for name, continuation in CONTINUATIONS.items():
        assert by_default(allowed + continuation) is None, name
        assert by_default(f"{allowed} {continuation}") is None, name


@pytest.mark.parametrize("allowed", ALLOWED)
def test_no_control_character_is_approved(allowed: str) -> None:
    for character in CONTROL_CHARACTERS:
        assert by_default(f"{allowed}{character}rm x") is None, ascii(character)


@pytest.mark.parametrize(
    "command",
    ["lsof", "lsblk -f", "ls-la", "pwdx 1", "echoes", "./ls", "/tmp/ls", "'ls'", "l''s", '"ls" src', "\\ls", "A=1 ls",
     "command ls", "env ls", "sudo ls", "!ls", "{ ls", "ls\u00a0src", "l\u017f", "\uff4c\uff53", "pwd -P", "\rls"],
)  # fmt: skip
def test_a_command_that_only_resembles_an_approved_one_is_not_approved(command: str) -> None:
    assert by_default(command) is None


@pytest.mark.parametrize("command", ["", " ", "\n\t", None, 7, ["ls"], {"ls": 1}])
def test_no_command_at_all_is_not_approved(command: Any) -> None:
    assert by_default(command) is None


@given(st.sampled_from(ALLOWED), st.text(), st.sampled_from(";&|<>`$()\\\r"), st.text())
def test_no_text_with_shell_syntax_in_it_is_ever_approved(allowed: str, before: str, syntax: str, after: str) -> None:
    assert by_default(f"{allowed} {before}{syntax}{after}.") is None


@pytest.mark.parametrize("pattern", ["*", "ls*", "l* -a", "*s", "* *"])
def test_a_rule_whose_first_word_is_open_never_approves(pattern: str) -> None:
    assert check_auto_action([rule(pattern)], "bash", {"command": "ls -a"}) is None


@pytest.mark.parametrize(
    ("pattern", "command", "approved"),
    [
        ("git log *", "git log --oneline", True),
        ("git log *", "git log", False),
        ("git log *", "not git log x", False),
        ("git * --stat", "git diff HEAD --stat", True),
        ("git * --stat", "git diff --stat HEAD", False),
        ("git * a * b", "git x a y b", True),
        ("git * a * b", "git x b y a", False),
        ("cat a.c", "cat abc", False),
        ("cat [ab]", "cat a", False),
        ("cat [ab]", "cat [ab]", True),
        ("cat ?", "cat a", False),
        ("GIT status", "git STATUS", True),
    ],
)
def test_only_the_star_is_special_and_both_ends_are_fixed(pattern: str, command: str, approved: bool) -> None:
    expected = "auto_approve" if approved else None

    assert check_auto_action([rule(pattern)], "bash", {"command": command}) == expected


@pytest.mark.parametrize(
    "command",
    ["rm x", "RM x", "rm  x", "rm\tx", " rm x ", "ls; rm x", "ls && rm x", "ls & rm x", "ls | rm x", "ls\nrm x",
     "ls\rrm x", "rm x > out", "rm $(ls)", "rm \\x"],
)  # fmt: skip
def test_a_denial_is_found_in_every_part_of_a_command(command: str) -> None:
    assert check_auto_action([rule("rm *", "auto_deny")], "bash", {"command": command}) == "auto_deny"


@pytest.mark.parametrize("command", ["ls rm x", "rmdir x", "rm", "farm x"])
def test_a_denial_is_about_whole_commands(command: str) -> None:
    assert check_auto_action([rule("rm *", "auto_deny")], "bash", {"command": command}) is None


def test_a_denial_may_be_open_at_its_beginning() -> None:
    assert check_auto_action([rule("*--force*", "auto_deny")], "bash", {"command": "git push --force"}) == "auto_deny"


def test_a_denial_outranks_an_approval_whatever_their_order() -> None:
    rules = [rule("ls *"), rule("ls /secret*", "auto_deny")]

    assert check_auto_action(rules, "bash", {"command": "ls /secret/x"}) == "auto_deny"
    assert check_auto_action(rules, "bash", {"command": "ls /public"}) == "auto_approve"


@pytest.mark.parametrize(
    ("tool_name", "arguments", "expected"),
    [
        ("bash", {"command": "make all"}, None),
        ("run", {"command": "make all"}, "auto_approve"),
        ("run", {"command": "make all; rm x"}, None),
        ("write_file", {"file_path": "notes.md"}, "auto_approve"),
        ("write_file", {"path": "notes.md"}, "auto_approve"),
        ("write_file", {"file_path": "src/../notes.md"}, "auto_approve"),
        ("write_file", {"file_path": "notes.md/../../secret"}, None),
        ("write_file", {"file_path": ".env"}, "auto_deny"),
        ("write_file", {}, None),
        ("write_file", "notes.md", None),
    ],
)
def test_a_rule_that_names_a_tool_is_about_that_tool_only(tool_name: str, arguments: Any, expected: str | None) -> None:
    rules = [
        rule("make *", tool="run"),
        rule("notes.md", tool="write_file"),
        rule("*.env", "auto_deny", tool="write_file"),
    ]

    assert check_auto_action(rules, tool_name, arguments) == expected


@pytest.mark.parametrize(
    "broken",
    [None, "ls *", [], {}, {"pattern": "ls *"}, {"action": "auto_approve"}, {"pattern": 7, "action": "auto_approve"},
     {"pattern": " ", "action": "auto_approve"}, {"pattern": "ls *", "action": "approve"},
     {"pattern": "ls *", "action": ["auto_approve"]}, {"pattern": "ls *", "action": "auto_approve", "tool": 7}],
    ids=repr,
)  # fmt: skip
def test_a_rule_that_is_none_is_skipped_with_an_error(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert check_auto_action([broken], "bash", {"command": "ls -a"}) is None
    assert check_auto_action([broken, rule("ls *")], "bash", {"command": "ls -a"}) == "auto_approve"
    assert "ERROR" in {record.levelname for record in caplog.records}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/app.py", "auto_approve"),
        ("{work}/src/(group)/$id.tsx", "auto_approve"),
        ("../elsewhere.py", None),
        ("{work}/../elsewhere.py", None),
        ("link/elsewhere.py", None),
        ("~/notes.md", None),
        ("@mention", None),
        (".", None),
    ],
)
def test_a_rule_for_the_working_directory_approves_what_lies_in_it(
    tmp_path: Path, path: str, expected: str | None
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(tmp_path)
    rules = [{"tool": "write_file", "pattern": "./*", "action": "auto_approve"}]

    given = {"file_path": path.format(work=work)}
    assert check_auto_action(rules, "write_file", given, working_dir=work) == expected
