"""A running session, looked into and switched."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from amplifier_core import AmplifierSession
from amplifier_foundation import BundleRegistry, SessionConfigurator, load_bundle
from amplifier_foundation.bundle import Origin, PreparedBundle
from amplifier_foundation.configurator import IncludeStep, walk_include_chain
from amplifier_foundation.registry import BundleState

ROOT = """---
bundle: {name: root, version: 2.0.0}
includes: [./behavior.yaml]
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - {module: provider-mock, config: {mode: echo, api_key: secret}}
context: {include: [rules.md]}
agents:
  scout: {description: Looks around.}
---
Be kind.
"""
BEHAVIOR = """
bundle: {name: behavior}
tools: [{module: tool-todo}, {module: tool-filesystem}]
hooks: [{module: hooks-logging, config: {directory: logs}}]
context: {include: [manners.md]}
agents:
  helper: {description: Helps.}
"""


@pytest.fixture
async def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundleRegistry:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    files = {"bundle.md": ROOT, "behavior.yaml": BEHAVIOR, "rules.md": "Rules.", "manners.md": "Manners."}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return BundleRegistry(tmp_path / "home")


@pytest.fixture
async def prepared(registry: BundleRegistry, tmp_path: Path) -> PreparedBundle:
    bundle = await load_bundle(tmp_path / "bundle.md", registry=registry)
    return await bundle.prepare(strict=True, cache_dir=tmp_path / "cache")


@pytest.fixture
async def session(prepared: PreparedBundle) -> AsyncIterator[AmplifierSession]:
    async with prepared.create_session() as session:
        yield session


@pytest.fixture
def configurator(session: AmplifierSession, prepared: PreparedBundle) -> SessionConfigurator:
    return SessionConfigurator(session, prepared)


async def test_what_is_switched_off_is_gone_until_it_is_switched_on_again(
    configurator: SessionConfigurator, session: AmplifierSession, prepared: PreparedBundle
) -> None:
    tools = session.coordinator.get("tools")
    before = configurator.snapshot()
    todo = tools["todo"]

    configurator.context_disable("root:rules.md")
    configurator.agent_disable("scout")
    await configurator.tool_disable("todo")
    await configurator.provider_disable("mock")

    assert "root:rules.md" not in prepared.bundle.context
    assert "scout" not in session.coordinator.config["agents"]
    assert "todo" not in tools
    assert session.coordinator.get("providers") == {}
    assert configurator.snapshot()["tools"]["disabled"] == ["todo"]
    assert configurator.diff_from_original() == [
        {"category": "context", "name": "root:rules.md", "action": "disabled"},
        {"category": "tools", "name": "todo", "action": "disabled"},
        {"category": "providers", "name": "mock", "action": "disabled"},
        {"category": "agents", "name": "scout", "action": "disabled"},
    ]

    configurator.context_enable("root:rules.md")
    configurator.agent_enable("scout")
    await configurator.tool_enable("todo")
    await configurator.provider_enable("mock")

    assert tools["todo"] is todo
    assert configurator.diff_from_original() == []
    assert {category: set(now["enabled"]) for category, now in configurator.snapshot().items()} == {
        category: set(then["enabled"]) for category, then in before.items()
    }


async def test_a_module_and_a_behavior_are_switched_as_a_whole(
    configurator: SessionConfigurator, session: AmplifierSession
) -> None:
    names = await configurator.tool_disable_module("tool-filesystem")
    assert {"read_file", "write_file"} <= set(names)
    assert set(names).isdisjoint(session.coordinator.get("tools"))
    assert await configurator.tool_enable_module("tool-filesystem") == names

    result = await configurator.behavior_disable("behavior")

    assert {"tools:todo", "context:behavior:manners.md", "agents:helper"} <= set(result["disabled"])
    assert ["hooks-logging" in warning for warning in result["warnings"]] == [True]
    assert session.coordinator.get("tools") == {}
    assert [(record.name, record.enabled) for record in configurator.behaviors_list()] == [
        ("behavior", False),
        ("root", True),
    ]
    assert set((await configurator.behavior_enable("behavior"))["enabled"]) == set(result["disabled"])


async def test_a_behavior_goes_by_its_name_its_file_and_its_reference(tmp_path: Path, registry: BundleRegistry) -> None:
    files = {
        "library/bundle.md": "---\nbundle: {name: library}\nincludes: [library:behaviors/todo]\n"
        "session: {orchestrator: loop-basic, context: context-simple}\n---\n",
        "library/behaviors/todo.yaml": "bundle: {name: todo-behavior}\ntools: [{module: tool-todo}]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    registry.register({"library": str(tmp_path / "library")})
    prepared = await (await registry.load("library")).prepare(strict=True, cache_dir=tmp_path / "cache")

    async with prepared.create_session() as session:
        configurator = SessionConfigurator(session, prepared, registry=registry)
        for name in ("todo-behavior", "todo", "library:behaviors/todo", "behaviors/todo.yaml"):
            assert (await configurator.behavior_disable(name))["disabled"] == ["tools:todo"]
            assert [each.enabled for each in configurator.behaviors_list() if each.name == "todo-behavior"] == [False]
            assert (await configurator.behavior_enable(name))["enabled"] == ["tools:todo"]
        with pytest.raises(ValueError, match="known: todo-behavior, library"):
            await configurator.behavior_disable("library:behaviors/other")


async def test_unknown_names_are_refused_and_hooks_stay(
    configurator: SessionConfigurator, caplog: pytest.LogCaptureFixture
) -> None:
    for switch in (configurator.context_disable, configurator.context_enable, configurator.agent_disable):
        with pytest.raises(ValueError, match="nothing-here"):
            switch("nothing-here")
    for change in (configurator.tool_disable, configurator.provider_enable, configurator.tool_disable_module):
        with pytest.raises(ValueError, match="nothing-here"):
            await change("nothing-here")
    with pytest.raises(ValueError, match="nothing-here"):
        await configurator.behavior_disable("nothing-here")

    with caplog.at_level(logging.WARNING):
        configurator.hook_disable("x")
        configurator.hook_enable("x")

    assert caplog.text.count("cannot be switched") == 2


async def test_settings_are_saved_beside_what_a_person_wrote_and_applied_again(
    configurator: SessionConfigurator, session: AmplifierSession, tmp_path: Path
) -> None:
    settings = tmp_path / ".amplifier" / "settings.yaml"
    settings.parent.mkdir()
    settings.write_text("# mine\ntheme: dark\n")
    await configurator.behavior_disable("behavior")
    configurator.config_set("session.limits.turns", 3)

    assert configurator.save("project") == settings
    assert configurator.save().parent == tmp_path / "home"
    saved = yaml.safe_load(settings.read_text())
    assert settings.read_text().startswith("# mine\ntheme: dark\n")
    assert saved["configurator"]["disabled"]["behaviors"] == ["behavior"]

    await configurator.behavior_enable("behavior")
    configurator.config_set("session.limits.turns", 1)
    saved["configurator"]["disabled"]["tools"].append("gone")
    warnings = await configurator.apply_saved_settings(saved)

    assert configurator.config_get("session.limits.turns") == 3
    assert configurator.config_get("session.unknown") is None
    assert any("gone" in warning for warning in warnings)
    assert session.coordinator.get("tools") == {}


async def test_records_say_where_an_item_comes_from_and_hide_secrets(
    configurator: SessionConfigurator, session: AmplifierSession, prepared: PreparedBundle, registry: BundleRegistry
) -> None:
    session.coordinator.config["agents"]["guest"] = {"description": "Came later."}

    (provider,) = configurator.providers_list()
    todo = next(record for record in configurator.tools_list() if record.name == "todo")
    agents = {record.name: record for record in configurator.agents_list()}
    with_registry = SessionConfigurator(session, prepared, registry=registry).tools_list()[0]

    assert (provider.module_id, provider.config_summary) == ("provider-mock", {"mode": "echo", "api_key": "[REDACTED]"})
    assert todo.module_id == "tool-todo"
    assert todo.origins == [Origin("behavior", None), Origin("root", "behavior")]
    assert [step.bundle for step in todo.include_paths[0]] == ["root", "behavior"]
    assert (agents["guest"].runtime_injection, agents["helper"].runtime_injection) == (True, False)
    assert {record.name for record in configurator.context_list()} == {"root:rules.md", "behavior:manners.md"}
    assert all(record.category == "hooks" for record in configurator.hooks_list())
    assert with_registry.include_paths[0][0].version == "2.0.0"


def test_include_chains_end_where_bundles_include_each_other() -> None:
    states = {
        "a": BundleState("./a", "a", included_by=["b"]),
        "b": BundleState("./b", "b", included_by=["a", "c"]),
        "c": BundleState("./c", "c", version="3"),
    }

    assert walk_include_chain("a", states) == [
        IncludeStep("c", "3", "./c", True),
        IncludeStep("b", "", "./b", True),
        IncludeStep("a", "", "./a", True),
    ]
    assert walk_include_chain("unknown", states) == []
