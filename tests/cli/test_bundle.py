"""`amplifier bundle` and `amplifier agent`: composable agents, by name or from anywhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git, write_files

Say = Callable[..., Any]

BUNDLE = """\
---
bundle: {name: team, version: 2.0.0, description: For the team}
includes: ["team:behaviors/todo.yaml"]
session: {orchestrator: {module: loop-streaming}, context: {module: context-simple}}
providers:
- {module: provider-mock, config: {mode: agent, api_key: k-12345}}
tools:
- {module: tool-filesystem}
agents: {include: [helper]}
---
You work for the team.
"""
FILES = {
    "bundle.md": BUNDLE,
    "behaviors/todo.yaml": "bundle: {name: todo, version: 1.0.0}\ntools:\n- {module: tool-todo}\n",
    "agents/helper.md": "---\nmeta: {name: helper, description: Helps.}\ntools: [{module: tool-search}]\n---\nHelp.\n",
}


@pytest.fixture
def repository(tmp_path: Path, say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch) -> Repository:
    use_plain_git(monkeypatch)
    monkeypatch.setenv("AMPLIFIERD_HOME", str(amplifier.home))
    made = Repository(tmp_path / "origin")
    made.commit(FILES)
    return made


def test_a_bundle_is_added_shown_used_and_forgotten(say: Say, repository: Repository) -> None:
    added = say("bundle", "add", repository.source)
    assert (added.code, "amplifier run --bundle team" in added.out) == (0, True), added.err
    assert [each["name"] for each in json.loads(say("bundle", "list", "--json").out)] == ["team"]
    assert "todo" in say("bundle", "list", "--all").out

    shown = say("bundle", "show", "team")
    assert "tool-filesystem, tool-todo" in shown.out.replace("tool-todo, tool-filesystem", "tool-filesystem, tool-todo")
    assert "You work for the team." in shown.out
    described = say("bundle", "show", "team", "--json").out
    assert json.loads(described)["agents"] == {"team:helper": "Helps."} or "helper" in described
    assert "k-12345" not in described

    assert say("bundle", "use", "team").code == 0
    ran = say("run", "-o", "json", "List files")
    assert (ran.code, json.loads(ran.out)["bundle"]) == (0, "team"), ran.err
    assert "loop-streaming" in say("plan", "show").out

    assert say("bundle", "remove", "team").code == 0
    assert json.loads(say("bundle", "list", "--json").out) == []


def test_using_a_bundle_takes_the_profile_of_the_same_file_away(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work, FILES)
    say("config", "set", "profile", "foundation/offline")

    assert say("bundle", "use", "./bundle.md").code == 0

    assert json.loads(say("config", "get", "profile", "--json").out)["value"] is None
    assert say("config", "get", "bundle").out.strip() == str(amplifier.work / "bundle.md")


def test_another_name_can_be_given_and_is_not_taken_twice(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work, {"one.yaml": FILES["behaviors/todo.yaml"], "two.yaml": FILES["behaviors/todo.yaml"]})

    assert say("bundle", "add", "./one.yaml", "--name", "mine").code == 0
    again = say("bundle", "add", "./two.yaml", "--name", "mine")

    assert (again.code, "amplifier bundle remove mine" in again.err) == (2, True)


def test_a_bundle_is_checked_as_a_whole_or_as_a_part(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work, {**FILES, "broken.yaml": "bundle: {name: broken}\nincludes: ['./nothing.yaml']\n"})

    assert say("bundle", "validate", "./bundle.md").code == 0
    incomplete = say("bundle", "validate", "./behaviors/todo.yaml")
    assert (incomplete.code, "no session section" in incomplete.out) == (1, True)
    assert "sessions give it what it lacks" in incomplete.out
    assert say("bundle", "validate", "./behaviors/todo.yaml", "--part").code == 0
    assert json.loads(say("bundle", "validate", "./behaviors/todo.yaml", "--json").out)["valid"] is False
    assert say("bundle", "validate", "./broken.yaml", "--part").code == 0
    assert say("bundle", "validate", "./broken.yaml", "--part", "--strict").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "nothing"], 2, ["there is no bundle 'nothing'", "amplifier bundle add"]),
        (["show", "./nothing.md"], 1, ["nothing.md"]),
        (["use", "nothing"], 2, ["there is no bundle 'nothing'"]),
        (["remove", "nothing"], 2, ["amplifier bundle list shows them"]),
        (["add", "nothing at all"], 1, ["nothing at all"]),
        (["use", "x", "--project", "--local"], 2, ["use one of them"]),
    ],
)
def test_what_cannot_be_done_is_told(say: Say, arguments: list[str], code: int, words: list[str]) -> None:
    said = say("bundle", *arguments)

    assert said.code == code
    assert [word for word in words if word not in said.err] == []


def test_the_agents_of_a_bundle_and_of_a_profile_are_shown(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work, FILES)

    of_profile = json.loads(say("agent", "list", "--profile", "coding", "--json").out)
    of_bundle = json.loads(say("agent", "list", "--bundle", "./bundle.md", "--json").out)
    shown = say("agent", "show", "helper", "--bundle", "./bundle.md")

    assert "reviewer" in [each["name"] for each in of_profile]
    assert [(each["description"], each["modules"]) for each in of_bundle] == [("Helps.", ["tool-search"])]
    assert (shown.code, "Help." in shown.out) == (0, True), shown.err
    assert "tool-filesystem" in say("agent", "show", "rev", "--profile", "coding").out
    assert "has no agent" in say("agent", "list").out
    wrong = say("agent", "show", "reviwer", "--profile", "coding")
    assert (wrong.code, "did you mean reviewer?" in wrong.err) == (2, True)


SCRIPTED = """\
---
providers:
- {{module: provider-mock, config: {{mode: scripted, tool_trigger: null, script: {script}}}}}
---
"""
SAID = {"text": "It said: {{last_tool_result}}"}


def follow(amplifier: Any, *script: Any) -> None:
    """Let the model of the home's own profile follow a script."""
    text = SCRIPTED.format(script=json.dumps([*script, SAID]))
    write_files(amplifier.home, {"config/overlays/foundation/offline.md": text})


def test_the_shell_of_a_published_bundle_asks_whatever_the_bundle_says(say: Say, amplifier: Any) -> None:
    loose = {"rules": [], "default_action": "continue", "policy_driven_only": True, "auto_approve": True}
    head = {"bundle": {"name": "loose"}, "tools": [{"module": "tool-bash", "config": {"sandbox": "off"}}]}
    hooks = [{"module": "hooks-approval", "source": "git+https://example.invalid/approval", "config": loose}]
    write_files(amplifier.work, {"loose.md": f"---\n{json.dumps({**head, 'hooks': hooks})}\n---\nWork.\n"})
    follow(amplifier, {"tool_calls": [{"name": "bash", "arguments": {"command": "touch made"}}]})

    ran = say("run", "--bundle", "./loose.md", "go")

    assert (ran.code, "Denied by hook" in ran.out, (amplifier.work / "made").exists()) == (0, True, False)


def test_a_bundle_runs_and_goes_on_offline_when_its_repository_is_gone(say: Say, repository: Repository) -> None:
    assert say("run", "--bundle", repository.source, "List files").code == 0
    repository.path.rename(repository.path.with_name("gone"))

    again = say("run", "--offline", "--resume", "last", "List files")
    anew = say("run", "--offline", "--bundle", repository.source, "List files")
    never = say("run", "--offline", "--bundle", "git+https://example.invalid/never@main", "List files")

    assert (again.code, anew.code, never.code) == (0, 0, 1)
    assert "offline, and git+https://example.invalid/never@main is not in the cache" in never.err


def test_a_behaviour_brings_context_and_agents_to_the_profile(say: Say, amplifier: Any) -> None:
    follow(amplifier, {"tool_calls": [{"name": "todo", "arguments": {"action": "list"}}]})
    scout = "---\nmeta: {name: scout, description: Looks.}\n---\nYou scout.\n"
    head = "bundle: {name: beh}\nagents: {include: [scout]}\ncontext: {include: [rules.md, 'beh:more.md']}\n"
    files = {"bundle.yaml": head, "rules.md": "Rule one.\n", "more.md": "Rule two.\n", "agents/scout.md": scout}
    write_files(amplifier.work / "beh", files)

    ran = say("run", "--bundle", "./beh", "go")

    assert ran.code == 0, ran.err
    assert (
        "note: beh has neither a session nor an instruction: it runs on top of the profile foundation/offline"
        in ran.err
    )
    assert "scout" in say("agent", "list", "--bundle", "./beh").out
    stored = "".join(file.read_text() for file in amplifier.home.glob("state/sessions/*/context_messages*"))
    assert ("Rule one." in stored, "Rule two." in stored, "You work by fixed rules" in stored) == (True, True, True)


def test_what_a_plan_has_from_where_is_explained(say: Say, amplifier: Any) -> None:
    write_files(amplifier.work, {"lone.md": "---\nbundle: {name: lone}\ntools:\n- {module: tool-todo}\n---\nAlone.\n"})

    provider = say("plan", "explain", "providers[provider-mock].config.mode", "--bundle", "./lone.md")
    tool = say("plan", "explain", "tools[tool-todo].module", "--bundle", "./lone.md")
    unknown = say("plan", "explain", "nothing.like.it", "--bundle", "./lone.md")

    assert ("agent" in provider.out, "foundation/offline" in provider.out) == (True, True)
    assert f"from lone ({amplifier.work / 'lone.md'}:4)" in tool.out
    assert (unknown.code, "amplifier plan show --bundle ./lone.md" in unknown.err) == (2, True)
    assert "from lone" in say("bundle", "show", "./lone.md").out


def test_what_is_doubtful_about_a_bundle_is_shown(say: Say, amplifier: Any) -> None:
    head = "bundle: {name: doubtful}\ntoolz: []\nagents: {include: [nobody]}\n"
    write_files(amplifier.work, {"doubtful.md": f"---\n{head}---\nRead @doubtful:nothing.md\n"})

    shown = say("bundle", "show", "./doubtful.md").out.replace("\n", " ")

    for words in ("did you mean 'tools'?", "agent 'nobody' has no file", "'@doubtful:nothing.md' leads to nothing"):
        assert words in shown


NOISY = """\
async def mount(coordinator, config=None):
    print("NOISE at mount")

    async def hear(event, data):
        print("NOISE in the turn")

    coordinator.hooks.register("prompt:submit", hear, name="noisy")
"""


@pytest.mark.parametrize("output", ["json", "text"])
def test_what_a_module_prints_is_not_taken_for_the_answer(say: Say, amplifier: Any, output: str) -> None:
    files = {"amplifier_module_hooks_noisy/__init__.py": NOISY}
    write_files(amplifier.work / "hooks-noisy", files)
    hooks = "hooks:\n- {module: hooks-noisy, source: ./hooks-noisy}\n"
    write_files(amplifier.work, {"noisy.md": f"---\nbundle: {{name: noisy}}\n{hooks}---\nWork.\n"})

    ran = amplifier("run", "--no-daemon", "-o", output, "--bundle", "./noisy.md", "List files")

    assert (ran.returncode, "NOISE" in ran.stdout) == (0, False), ran.stderr
    assert ("NOISE at mount" in ran.stderr, "NOISE in the turn" in ran.stderr) == (True, True)
    assert "I will list the files" in (json.loads(ran.stdout)["response"] if output == "json" else ran.stdout)
