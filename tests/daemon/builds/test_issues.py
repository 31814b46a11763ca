"""What is wrong with a profile: said once, with the place and the way out."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifierd import open_home

HEADER = "---\nprofile:\n  name: a\n  version: '1'\n  schema_version: 2\n"
SESSION = "session: {orchestrator: loop-basic, context: context-simple}\nproviders: [{module: provider-mock}]\n"


@pytest.fixture
def validate(tmp_path: Path) -> Any:
    return open_home(tmp_path / "home").profiles.validate


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("hello\n", "no-frontmatter", 1),
        ("---\nprofile: {}\n", "unclosed-frontmatter", 1),
        ("---\na: [1\n---\n", "invalid-yaml", 3),
        (HEADER + "x: " + "[" * 60 + "]" * 60 + "\n---\n", "invalid-yaml", 6),
        ("---\n- a\n---\n", "frontmatter-not-mapping", 1),
        ("---\n---\n", "frontmatter-not-mapping", 1),
    ],
)
def test_a_file_that_cannot_be_read_has_this_one_issue(validate: Any, text: str, code: str, line: int) -> None:
    [issue] = validate(text)

    assert (issue.code, issue.line, issue.severity) == (code, line, "error")
    assert issue.fix


@pytest.mark.parametrize(
    ("text", "code", "location", "line"),
    [
        ("---\n# nothing\nui: {}\n" + SESSION + "---\n", "profile-section-missing", "profile", None),
        (HEADER + "session: {context: context-simple}\n---\n", "orchestrator-missing", "session", 6),
        (HEADER + "---\n", "orchestrator-missing", "session", 1),
        (HEADER + "session: {orchestrator: loop-basic}\n---\n", "context-missing", "session", 6),
        (HEADER + "ui: {}\nproviders: []\n---\n", "providers-missing", "providers", 7),
        (HEADER + "session:\n  orchestrator: {config: {}}\n---\n", "module-missing", "session.orchestrator", 7),
        (HEADER + SESSION + "tools: 3\n---\n", "wrong-type", "tools", 8),
        (
            HEADER + SESSION + "tools: [{module: tool-a}, {module: tool-a}]\n---\n",
            "duplicate-module",
            "tools[tool-a]",
            8,
        ),
        (HEADER + SESSION + "exclude: {tools: [tool-x]}\n---\n", "exclude-no-match", "exclude.tools", 8),
        (HEADER + SESSION + "agents: {../x: ./a.md}\n---\n", "name-invalid", "agents", 8),
        (HEADER + SESSION + "'x[': 1\n---\n", "unknown-key", "x[", None),
        (HEADER.replace("name: a", "extends: no/one") + SESSION + "---\n", "extends-not-found", "profile.extends", 3),
        (HEADER + "  extends: local/a\n" + SESSION + "---\n", "extends-cycle", "profile.extends", 6),
    ],
)
def test_every_issue_says_where_it_is_and_how_to_fix_it(
    validate: Any, text: str, code: str, location: str, line: int | None
) -> None:
    [issue] = [issue for issue in validate(text) if issue.code == code]

    assert (issue.location, issue.line) == (location, line)
    assert issue.file == Path("profile.md")
    assert issue.fix


async def test_whatever_yaml_has_no_plan_holds_what_json_has_not(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    file = home.paths.profile_file("local/a")
    file.parent.mkdir(parents=True)
    config = "{since: 2024-01-01, at: 2024-01-01T10:00:00Z, 1: one, data: !!binary aGk=, names: !!set {x}}"
    agent = "{instruction: Go, tools: [{module: tool-todo, config: {until: 2030-02-03}}]}"
    file.write_text(f"{HEADER}{SESSION}tools: [{{module: tool-todo, config: {config}}}]\nagents: {{a: {agent}}}\n---\n")

    plan = await home.plans.generate("local/a")

    assert json.loads(json.dumps(plan)) == plan
    assert plan["tools"][0]["config"] == {
        **{"since": "2024-01-01", "at": "2024-01-01T10:00:00Z", "1": "one", "data": "hi", "names": ["x"]},
    }
    assert plan["agents"]["a"]["tools"][0]["config"] == {"until": "2030-02-03"}
