"""Agents, context and skills that scopes bring into a running session."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, HookResult
from amplifier_foundation import (
    RUNTIME_CONTEXT_OVERLAY_CAPABILITY,
    RUNTIME_SKILL_OVERLAY_CAPABILITY,
    Bundle,
    RuntimeOverlay,
)

PLAN = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "agents": {"own": {"description": "O"}}}


class Watched:
    """An overlay of a session, and the events it emits."""

    def __init__(self, bundle: Bundle | None = None) -> None:
        self.coordinator = AmplifierSession({**PLAN, "agents": dict(PLAN["agents"])}).coordinator
        self.events: list[tuple[str, dict[str, Any]]] = []
        for event in ("mode:changed", "mode:failed"):
            self.coordinator.hooks.register(event, self._note, name=event)
        self.overlay = RuntimeOverlay(
            self.coordinator, success_event="mode:changed", failure_event="mode:failed", bundle=bundle
        )

    async def _note(self, event: str, data: dict[str, Any]) -> HookResult:
        self.events.append((event, data))
        return HookResult()

    def published(self) -> tuple[Any, Any]:
        get = self.coordinator.get_capability
        return get(RUNTIME_CONTEXT_OVERLAY_CAPABILITY), get(RUNTIME_SKILL_OVERLAY_CAPABILITY)


async def test_the_last_scope_takes_away_what_scopes_brought() -> None:
    watched = Watched()
    agents = watched.coordinator.config["agents"]

    one = await watched.overlay.apply("one", {"agents": {"new": {"description": "N"}}, "context": ["a", "b"]})
    await watched.overlay.apply("two", {"agents": {"new": {"description": "other"}, "own": {}}, "skills": ["s"]})

    assert one.mounted == ["agents:new", "context:a", "context:b"]
    assert (agents["new"], watched.published()) == ({"description": "N"}, (["a", "b"], ["s"]))
    assert [watched.overlay.get_refcount("agents", name) for name in ("new", "own", "gone")] == [2, 2, 0]
    assert watched.overlay.dump_state()["scopes"]["two"]["skills"] == ["s"]

    first = await watched.overlay.revoke("one")
    second = await watched.overlay.revoke("two")

    assert (first.unmounted, second.unmounted) == (["context:a", "context:b"], ["agents:new", "skills:s"])
    assert agents == {"own": {"description": "O"}}
    assert watched.published() == ([], [])
    assert (await watched.overlay.revoke("never")).success
    assert [event for event, _ in watched.events] == ["mode:changed"] * 5
    assert watched.events[0][1]["mounted"] == one.mounted
    assert watched.events[0][1]["scope"] == "one"


async def test_a_scope_that_is_applied_again_replaces_what_it_brought() -> None:
    watched = Watched()
    await watched.overlay.apply("mode", {"context": ["a", "b"]})

    result = await watched.overlay.apply("mode", {"context": ["b", "c"]})

    assert watched.published()[0] == ["b", "c"]
    assert result.success


@pytest.mark.parametrize(
    "contributions",
    [
        {"context": ["new"], "tools": ["x"]},
        {"context": ["new"], "config": {}},
        {"context": ["new", 3]},
        {"agents": ["a"]},
        {"agents": {"a": 3}},
        {"modes": ["x"]},
    ],
)
async def test_a_contribution_that_fails_changes_nothing_and_says_so(contributions: dict[str, Any]) -> None:
    watched = Watched()
    await watched.overlay.apply("mode", {"context": ["a"]})

    result = await watched.overlay.apply("mode", contributions)

    assert not result.success
    assert result.error
    assert watched.published()[0] == ["a"]
    assert watched.events[-1][0] == "mode:failed"
    assert watched.events[-1][1]["error"] == result.error


async def test_an_agent_that_is_only_named_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "scout.md").write_text("---\nmeta: {name: scout, description: From its file.}\n---\nLook.")
    watched = Watched(Bundle("b", base_path=tmp_path))

    await watched.overlay.apply("mode", {"agents": {"b:scout": None, "scout": {"description": "Own."}}})

    agents = watched.coordinator.config["agents"]
    assert agents["b:scout"]["instruction"] == agents["scout"]["instruction"] == "Look."
    assert (agents["b:scout"]["description"], agents["scout"]["description"]) == ("From its file.", "Own.")


async def test_sessions_of_one_plan_share_nothing_that_an_overlay_adds() -> None:
    plan = {**PLAN, "agents": dict(PLAN["agents"])}
    first, second = AmplifierSession(plan), AmplifierSession(plan)
    overlay = RuntimeOverlay(first.coordinator, success_event="mode:changed", failure_event="mode:failed")

    await overlay.apply("mode:audit", {"agents": {"auditor": {"description": "A"}}})

    assert sorted(first.coordinator.config["agents"]) == sorted(first.config["agents"]) == ["auditor", "own"]
    assert [*second.coordinator.config["agents"]] == [*plan["agents"]] == ["own"]
