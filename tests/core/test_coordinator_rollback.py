"""A module that fails after it began to mount leaves the coordinator as it was."""

import asyncio
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import AmplifierSession, CancellationToken, ModuleCoordinator

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

    assert [failure["error"] for failure in session.status.load_failures] == ["cannot go on"]
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


DOES_EVERYTHING = """
    await coordinator.mount("tools", {thing}, name="{name}")
    coordinator.mount_points["tools"]["{name} directly"] = {thing}
    coordinator.register_capability("{name}", {thing})
    coordinator.register_contributor("session.cost", "{name}", lambda: 1)
    coordinator.hooks.register("tool:pre", lambda event, data: None, name="{name}")
    coordinator.register_cleanup(lambda: coordinator.session_state.setdefault("cleaned", []).append("{name}"))
"""


def traces_of(coordinator: ModuleCoordinator) -> dict[str, list[str]]:
    """Return who left something where."""
    return {
        "tools": coordinator.get_mounted("tools"),
        "capabilities": coordinator.to_dict()["capabilities"],
        "contributors": [one["name"] for one in coordinator.channels.get("session.cost", [])],
        "handlers": coordinator.hooks.list_handlers("tool:pre")["tool:pre"],
        "cleaned": coordinator.session_state.get("cleaned", []),
    }


def traces(*names: str, cleaned: list[str]) -> dict[str, list[str]]:
    tools = [tool for name in names for tool in (name, f"{name} directly")]
    kinds = {kind: list(names) for kind in ("capabilities", "contributors", "handlers")}
    return {"tools": tools, **kinds, "cleaned": cleaned}


async def do_everything(coordinator: ModuleCoordinator, name: str) -> None:
    source = "async def act(coordinator):" + DOES_EVERYTHING.format(name=name, thing="object()")
    names: dict[str, Any] = {}
    exec(source, names)
    await names["act"](coordinator)


def failing_between_events(modules: Any) -> Any:
    """Write a tool that does everything, waits until others have done so, too, and fails."""
    waiting = 'coordinator.session_state["begun"].set()\nawait coordinator.session_state["others"].wait()\n'
    body = dedent(DOES_EVERYTHING.format(name="broken", thing="thing"))
    return modules.write("tool", mount=f"{body}\n{waiting}\nraise ValueError('cannot go on')")


async def test_what_the_application_does_while_a_module_fails_stays(modules: Any) -> None:
    session = modules.session(modules.plan(tools=[failing_between_events(modules).entry()]))
    coordinator = session.coordinator
    coordinator.session_state.update(begun=asyncio.Event(), others=asyncio.Event())
    initializing = asyncio.create_task(session.initialize())

    await coordinator.session_state["begun"].wait()
    await do_everything(coordinator, "application")
    coordinator.session_state["others"].set()
    await initializing

    assert traces_of(coordinator) == traces("application", cleaned=["broken"])


async def test_what_a_task_of_another_module_does_meanwhile_stays(modules: Any) -> None:
    background = """
        import asyncio
        async def later():
            await coordinator.session_state["begun"].wait()
            {}
            coordinator.session_state["others"].set()
        coordinator.session_state["task"] = asyncio.create_task(later())
        await coordinator.mount("tools", thing, name="sound")
    """.format(DOES_EVERYTHING.format(name="later", thing="thing").strip().replace("\n    ", "\n            "))
    sound = modules.write("tool", mount=background)
    plan = modules.plan(tools=[sound.entry(), failing_between_events(modules).entry()])
    session = modules.session(plan)
    session.coordinator.session_state.update(begun=asyncio.Event(), others=asyncio.Event())

    await session.initialize()

    found = traces_of(session.coordinator)
    assert found["tools"].pop(0) == "sound"
    assert found == traces("later", cleaned=["broken"])


async def test_what_an_application_does_before_a_provider_is_loaded_stays(modules: Any) -> None:
    bad = modules.write("provider", mount='raise ValueError("cannot go on")')
    session = modules.session(modules.plan(providers=[bad.entry()]))

    async def before_load(coordinator: ModuleCoordinator, entry: dict[str, Any]) -> None:
        await do_everything(coordinator, "application")

    session.coordinator.register_capability("provider.before_load", before_load)

    await session.initialize()

    found = traces_of(session.coordinator)
    assert found["capabilities"].pop(0) == "provider.before_load"
    assert found == traces("application", cleaned=[])


async def test_what_a_task_of_the_failing_module_did_is_taken_back(modules: Any) -> None:
    body = DOES_EVERYTHING.format(name="broken", thing="thing").strip().replace("\n    ", "\n            ")
    bad = modules.write(
        "tool",
        mount=f"""
        import asyncio
        async def helper():
            {body}
        await asyncio.create_task(helper())
        raise ValueError("cannot go on")
        """,
    )
    session = modules.session(modules.plan(tools=[bad.entry()]))

    await session.initialize()

    assert traces_of(session.coordinator) == traces(cleaned=["broken"])


async def test_a_tool_that_somebody_replaced_meanwhile_is_left_to_them(modules: Any) -> None:
    session = modules.session(modules.plan(tools=[failing_between_events(modules).entry()]))
    coordinator, mine = session.coordinator, object()
    coordinator.session_state.update(begun=asyncio.Event(), others=asyncio.Event())
    initializing = asyncio.create_task(session.initialize())

    await coordinator.session_state["begun"].wait()
    await coordinator.mount("tools", mine, name="broken")
    coordinator.session_state["others"].set()
    await initializing

    assert coordinator.get("tools") == {"broken": mine}


@pytest.mark.parametrize("is_caught", [True, False])
async def test_a_module_that_a_module_loads_shares_its_fate(modules: Any, is_caught: bool) -> None:
    inner = modules.write("tool", mount=DOES_EVERYTHING.format(name="inner", thing="thing"))
    outer = modules.write(
        "tool",
        mount=f"""
        closure = await coordinator.loader.load({inner.module_id!r})
        await closure(coordinator)
        await coordinator.mount("tools", thing, name="outer")
        if not {is_caught}:
            raise ValueError("cannot go on")
        """,
    )
    session = modules.session(modules.plan(tools=[outer.entry()]))

    await session.initialize()

    found = traces_of(session.coordinator)
    if is_caught:
        assert found["tools"].pop() == "outer"
    assert found == (traces("inner", cleaned=[]) if is_caught else traces(cleaned=["inner"]))


async def test_every_way_to_change_a_mount_point_is_taken_back(modules: Any) -> None:
    bad = modules.write(
        "tool",
        mount="""
        tools = coordinator.mount_points["tools"]
        tools.update(a=1, b=2)
        tools.setdefault("c", 3)
        tools |= {"d": 4}
        tools.pop("first"); tools.popitem(); tools.pop("nobody", None)
        del tools["a"]
        tools.clear()
        coordinator.mount_points["context"] = None
        raise ValueError("cannot go on")
        """,
    )
    session = modules.session(modules.plan(tools=[bad.entry()]))
    first, second = object(), object()
    for name, tool in {"first": first, "second": second}.items():
        await session.coordinator.mount("tools", tool, name=name)

    await session.initialize()

    assert list(session.coordinator.get("tools").items()) == [("first", first), ("second", second)]
    assert session.coordinator.get("context") is not None


class PublicApiOnly:
    """A coordinator by somebody else: the documented members, and nothing of ours inside."""

    def __init__(self) -> None:
        self._real = ModuleCoordinator()
        self.session = self.parent_id = self.approval_system = self.display_system = self.loader = None
        self.session_id, self.config = "s", dict[str, Any]()
        self.cancellation, self.session_state = CancellationToken(), dict[str, Any]()
        self.points: dict[str, Any] = {"tools": {}, "providers": {}, "orchestrator": None, "context": None}
        self.hooks = SimpleNamespace(emit=self._real.hooks.emit, register=self._real.hooks.register)
        self.get_capability, self.register_capability = self._real.get_capability, self._real.register_capability
        self.register_contributor, self.register_cleanup = self._real.register_contributor, self._real.register_cleanup

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        if mount_point in ("tools", "providers"):
            self.points[mount_point][name or module.name] = module
        else:
            self.points[mount_point] = module

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        self.points[mount_point].pop(name, None)

    def get(self, mount_point: str, name: str | None = None) -> Any:
        found = self.points.get(mount_point)
        return found if name is None else found.get(name)

    async def cleanup(self) -> None:
        await self._real.cleanup()


async def test_a_coordinator_by_somebody_else_can_be_brought_up(modules: Any) -> None:
    good, bad = (
        modules.write("tool"),
        modules.write("tool", mount=DOES_EVERYTHING.format(name="x", thing="thing") + "    1 / 0"),
    )
    plan = modules.plan(tools=[good.entry(source=str(good.folder)), bad.entry(source=str(bad.folder))])
    session = AmplifierSession(plan, loader=modules.loader())
    session.coordinator = coordinator = PublicApiOnly()  # type: ignore[assignment]

    await session.initialize()

    assert list(coordinator.points["tools"]) == [good.name]
    assert [failure["module_id"] for failure in session.status.load_failures] == [bad.module_id]
    assert (await session.execute("hello")).startswith("answer to hello")
    await session.cleanup()
