"""A module that fails after it began to mount leaves the coordinator as it was."""

from typing import Any

import pytest

FAILING_MOUNT = """
    await coordinator.mount("tools", thing, name=NAME)
    await coordinator.mount("tools", thing, name="present")
    await coordinator.unmount("tools", "second")
    await coordinator.mount("providers", thing, name="provider")
    await coordinator.mount("orchestrator", thing)
    await coordinator.unmount("context")
    coordinator.hooks.register("tool:pre", lambda event, data: {"action": "deny"}, name=NAME)
    coordinator.hooks.register("tool:post", lambda event, data: None, priority=-5, name="present")
    coordinator.register_capability("session.spawn", thing)
    coordinator.register_capability("mine", thing)
    coordinator.register_contributor("session.cost", NAME, lambda: 2)
    coordinator.register_contributor("mine", NAME, lambda: 3)
    coordinator.register_cleanup(lambda: config["notes"].append("failed module cleaned up"))
    raise ValueError("cannot go on")
"""


@pytest.fixture
async def failed(modules: Any) -> Any:
    """A session with a sound module and one that failed half-way, and what the sound one left there."""
    notes: list[str] = []
    sound = modules.write(
        "tool",
        mount="""
            for name in ("present", "second", "third"):
                await coordinator.mount("tools", thing, name=name)
            coordinator.hooks.register("tool:post", lambda event, data: {"data": {"from": "present"}}, name="present")
            coordinator.register_capability("session.spawn", thing)
            coordinator.register_contributor("session.cost", NAME, lambda: 1)
            coordinator.register_cleanup(lambda: config["notes"].append("sound module cleaned up"))
        """,
    )
    broken = modules.write("tool", mount=FAILING_MOUNT)
    plan = modules.plan(tools=[sound.entry(config={"notes": notes}), broken.entry(config={"notes": notes})])
    session = modules.session(plan)
    await session.initialize()
    yield session, notes
    await session.cleanup()


async def test_what_it_mounted_registered_and_offered_is_gone(failed: Any) -> None:
    session, notes = failed
    coordinator = session.coordinator

    assert [failure["error"] for failure in session.status.load_failures] == ["ValueError: cannot go on"]
    assert coordinator.get_mounted("tools") == ["present", "second", "third"]
    assert coordinator.get("tools", "present") is coordinator.get("tools", "third")
    assert len(coordinator.get_mounted("providers")) == 1
    assert coordinator.get_capability("session.spawn") is coordinator.get("tools", "present")
    assert coordinator.get_capability("mine") is None
    assert coordinator.to_dict()["capabilities"] == ["session.spawn"]
    assert list(coordinator.channels) == ["session.cost"]
    assert await coordinator.collect_contributions("session.cost") == [1]
    assert notes == ["failed module cleaned up"]


async def test_its_handlers_are_gone_and_those_of_others_are_still_called(failed: Any) -> None:
    hooks = failed[0].coordinator.hooks

    assert not hooks.has_handlers("tool:pre")
    assert (await hooks.emit("tool:pre", {})).action == "continue"
    assert await hooks.emit_and_collect("tool:post", {}) == [{"from": "present"}]


async def test_the_session_works_without_it_and_cleans_up_the_others(failed: Any) -> None:
    session, notes = failed

    assert (await session.execute("hello")).startswith("answer to hello")
    await session.cleanup()

    assert notes == ["failed module cleaned up", "sound module cleaned up"]
