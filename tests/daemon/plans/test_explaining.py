"""Where the values of a plan come from: a parent, the profile, an overlay, a request, or nobody."""

from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home, open_home

PARENT = """---
profile: {name: parent, version: "1", schema_version: 2}
session:
  orchestrator:
    module: loop-basic
    config: {max_iterations: 1, extra: parent}
providers:
- module: provider-mock
tools:
- module: tool-todo
  config: {a: 1}
agents:
  helper: ./helper.md
  inline:
    description: In place
    instruction: Do it.
---
Be kind.
"""
CHILD = """---
profile: {name: child, version: "1", schema_version: 2, extends: parent}
session:
  orchestrator:
    config: {max_iterations: 2}
---
"""
OVERLAY = """---
session:
  orchestrator:
    config:
      max_iterations: 3
---
"""
HELPER = "---\nmeta: {description: Helps}\n---\nYou help.\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = open_home(tmp_path / "home")
    local = home.paths.own_profiles
    files = {
        local / "parent" / "profile.md": PARENT,
        local / "parent" / "helper.md": HELPER,
        local / "child" / "profile.md": CHILD,
        home.paths.overlay_file("local/child"): OVERLAY,
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return home


async def test_a_value_names_its_file_and_line_and_all_that_it_overrode(home: Home) -> None:
    overrides = {"session": {"orchestrator": {"config": {"max_iterations": 4}}}}

    explained = await home.plans.explain(
        "local/child", "session.orchestrator.config.max_iterations", overrides=overrides
    )

    assert explained["value"] == 4
    assert explained["origin"] == {"profile": "request", "file": None, "line": None}
    parent, child = (home.paths.own_profiles / name / "profile.md" for name in ("parent", "child"))
    overlay = home.paths.overlay_file("local/child")
    assert [(old["value"], *old["origin"].values()) for old in explained["overrode"]] == [
        (1, "local/parent", str(parent), 6),
        (2, "local/child", str(child), 5),
        (3, "local/child", str(overlay), 5),
    ]


@pytest.mark.parametrize(
    ("key", "value", "origin", "line"),
    [
        ("session.orchestrator.config.extra", "parent", "local/parent", 6),
        ("orchestrator.config.extra", "parent", "local/parent", 6),
        ("session.orchestrator.source", "local/child", "default", None),
        ("session.orchestrator_source", "local/child", "default", None),
        ("session.context.module", "context-simple", "default", None),
        ("providers[provider-mock].module", "provider-mock", "local/parent", 8),
        ("providers[provider-mock].config", {}, "default", None),
        ("tools[tool-todo].config", {"a": 1}, "local/parent", 11),
        ("hooks", [], "default", None),
        ("agents.helper.content", HELPER, "local/parent", 13),
        ("agents.helper.metadata.source", "local:agents/helper.md", "local/parent", 13),
        ("agents.helper.description", "Helps", "local/parent", 13),
        ("agents.inline.description", "In place", "local/parent", 15),
        ("agents.inline.content", "Do it.", "local/parent", 14),
        ("agents[inline].system.instruction", "Do it.", "local/parent", 14),
    ],
)
async def test_every_value_of_a_plan_is_explained(home: Home, key: str, value: Any, origin: str, line: int) -> None:
    explained = await home.plans.explain("local/child", key)

    assert explained["value"] == value
    assert (explained["origin"]["profile"], explained["origin"]["line"]) == (origin, line)


async def test_what_is_in_no_plan_is_explained_from_the_profile_or_not_at_all(home: Home) -> None:
    explained = await home.plans.explain("local/child", "instruction")

    assert (explained["value"], explained["origin"]["profile"]) == ("Be kind.", "local/parent")
    for key in ("tools[tool-todo].config.b", "tools[tool-none]", "agents.nobody", "[", ""):
        with pytest.raises(KeyError):
            await home.plans.explain("local/child", key)


async def test_a_source_that_a_request_may_give_stands_in_the_plan(home: Home) -> None:
    allowing = open_home(home.paths.home, overrides={"security": {"allow_override_modules": True}})
    source = "git+https://example.org/tools@v1#subdirectory=tool-new"

    plan = await allowing.plans.generate("local/child", overrides={"tools": [{"module": "tool-new", "source": source}]})

    assert [(tool["module"], tool["source"]) for tool in plan["tools"]] == [
        ("tool-todo", "local/child"),
        ("tool-new", source),
    ]


async def test_agents_can_be_left_out_of_all(tmp_path: Path) -> None:
    source = tmp_path / "team"
    header = "session: {orchestrator: loop-basic}\nproviders: [{module: provider-mock}]\n"
    for name, text in {
        "agents/a.md": "A",
        "agents/b.md": "B",
        "agents/c.md": "C",
        "parent.md": f"---\nprofile: {{name: parent, version: '1', schema_version: 2}}\n{header}agents: all\n---\n",
        "child.md": (
            "---\nprofile: {name: child, version: '1', schema_version: 2, extends: parent}\n"
            "agents: {b: null}\nexclude: {agents: [c]}\n---\n"
        ),
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    home = open_home(tmp_path / "home")
    await home.collections.add("team", str(source))

    assert list((await home.plans.generate("team/parent"))["agents"]) == ["a", "b", "c"]
    assert list((await home.plans.generate("team/child"))["agents"]) == ["a"]
    assert not (home.paths.profile_dir("team/child") / "agents" / "b.md").exists()


async def test_a_plan_is_judged_even_where_a_newer_version_wrote_the_lock(home: Home) -> None:
    plan = await home.plans.generate("local/child")
    lock = home.paths.profile_dir("local/child") / "profile.lock"
    lock.write_text(lock.read_text().replace('"format_version": 1', '"format_version": 9'))

    report = home.plans.validate(plan)

    assert report.passed
    assert {check.name for check in report.warnings} == {"source-unresolved"}
    assert "has format 9, this version reads up to 1" in report.warnings[0].message


async def test_an_overlay_may_be_an_instruction_and_has_no_name(home: Home) -> None:
    overlay = home.paths.overlay_file("local/child")
    overlay.write_text("---\n---\nBe brief.\n")
    assert home.profiles.merged("local/child").body == "Be brief."

    overlay.write_text("---\nprofile: {name: other, extends: elsewhere}\ntools: []\n---\n")
    merged = home.profiles.merged("local/child")

    assert (str(merged.profile_id), merged.is_valid) == ("local/child", True)
    assert [(issue.code, issue.file, issue.line) for issue in merged.issues if issue.location == "profile"] == [
        ("unknown-key", overlay, 2)
    ]
