"""What a module needs of its coordinator, of a real one and of a stub."""

import gc
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_core import HookRegistry, HookResult
from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.mounting import (
    Handlers,
    contribute_events,
    declared_events,
    find_capability,
    find_mounted,
    hook_registry,
    offer_capability,
    project_slug,
    session_id_of,
    working_dir,
)
from amplifier_kit.providers.cost import CostTally

STUBS = [None, SimpleNamespace(), SimpleNamespace(hooks=None, get=None, get_capability=None, session_id=None)]


async def handler(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult()


class TestRealCoordinator:
    def test_everything_is_found(self) -> None:
        coordinator = MockCoordinator()
        offer_capability(coordinator, "session.x", 7)
        coordinator.mount_points["context"] = "the context"

        assert hook_registry(coordinator) is coordinator.hooks
        assert find_capability(coordinator, "session.x") == 7
        assert find_capability(coordinator, "session.y") is None
        assert find_mounted(coordinator, "context") == "the context"
        assert find_mounted(coordinator, "nowhere") is None
        assert session_id_of(coordinator) == "test-session"

    def test_what_a_coordinator_of_coroutines_would_do_is_not_waited_for(self) -> None:
        coordinator = AsyncMock()
        handlers = Handlers("hooks-x", coordinator)

        offer_capability(coordinator, "session.x", 7)
        contribute_events(coordinator, "m", ["a:one"])
        CostTally().contribute(coordinator, "m")
        assert handlers.register("tool:pre", handler, priority=1, name="x")
        handlers.clear()

        assert find_capability(coordinator, "session.x") is None
        assert coordinator.register_contributor.call_count == 2
        gc.collect()  # so that a coroutine that was never awaited is reported now

    def test_a_registry_may_hang_at_its_mount_point_alone(self) -> None:
        registry = HookRegistry()

        assert hook_registry(SimpleNamespace(get={"hooks": registry}.get)) is registry
        assert hook_registry(SimpleNamespace(hooks=object())) is None

    async def test_events_are_contributed_as_a_list_of_ones_own(self) -> None:
        coordinator = MockCoordinator()
        contribute_events(coordinator, "loop-x", ("x:one", "x:two"))

        (first,) = await coordinator.collect_contributions("observability.events")
        first.append("x:three")

        assert await coordinator.collect_contributions("observability.events") == [["x:one", "x:two"]]

    async def test_declared_events_come_from_capability_and_channel_each_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        coordinator = MockCoordinator()
        coordinator.register_capability("observability.events", lambda: ["a:one", "a:two"])
        contribute_events(coordinator, "m", ["a:two", "a:three", "tool:pre"])
        coordinator.register_contributor("observability.events", "n", lambda: "a:four")
        coordinator.register_contributor("observability.events", "o", lambda: [7])

        assert await declared_events(coordinator) == ["a:one", "a:two", "a:three", "a:four"]

        assert [record.levelno for record in caplog.records] == [logging.WARNING]


class TestStubs:
    @pytest.mark.parametrize("coordinator", STUBS)
    async def test_what_is_missing_is_not_available(self, coordinator: Any) -> None:
        offer_capability(coordinator, "session.x", 7)
        contribute_events(coordinator, "m", ["a:one"])

        assert hook_registry(coordinator) is None
        assert find_capability(coordinator, "session.x") is None
        assert find_mounted(coordinator, "context") is None
        assert session_id_of(coordinator) is None
        assert await declared_events(coordinator) == []
        assert working_dir(coordinator) == Path.cwd()

    def test_a_hook_module_without_a_registry_is_warned(self, caplog: pytest.LogCaptureFixture) -> None:
        handlers = Handlers("hooks-x", SimpleNamespace())

        assert handlers.register("tool:pre", handler, priority=1, name="x") is False
        handlers.clear()

        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_hooks_that_only_take_events_take_them_and_no_handler(self, caplog: pytest.LogCaptureFixture) -> None:
        coordinator = SimpleNamespace(hooks=EventRecorder())

        assert hook_registry(coordinator) is coordinator.hooks
        assert not Handlers("hooks-x", coordinator).register("tool:pre", handler, priority=1, name="x")
        assert [record.levelno for record in caplog.records] == [logging.WARNING]


class TestHandlers:
    def test_each_is_registered_once_and_taken_back(self) -> None:
        coordinator = MockCoordinator()
        handlers = Handlers("hooks-x", coordinator)

        assert handlers.register("tool:pre", handler, priority=5, name="x")
        assert not handlers.register("tool:pre", handler, priority=5, name="x")
        assert handlers.register("tool:post", handler, priority=5, name="x")
        assert coordinator.hooks.list_handlers() == {"tool:pre": ["x"], "tool:post": ["x"]}

        handlers.unregister("tool:post", "x")
        handlers.unregister("tool:post", "x")
        assert coordinator.hooks.list_handlers("tool:post") == {"tool:post": []}

        handlers.clear()
        handlers.clear()
        assert not coordinator.hooks.has_handlers("tool:pre")

    def test_one_event_can_be_kept(self) -> None:
        coordinator = MockCoordinator()
        handlers = Handlers("hooks-x", coordinator)
        handlers.register("session:end", handler, priority=5, name="x")
        handlers.register("tool:pre", handler, priority=5, name="x")

        handlers.clear(keep="session:end")

        assert coordinator.hooks.has_handlers("session:end")
        assert not coordinator.hooks.has_handlers("tool:pre")

    def test_only_enabled_events_are_registered(self) -> None:
        coordinator = MockCoordinator()
        handlers = Handlers("hooks-x", coordinator, ["tool:*", "session:end"])

        registered = [
            event
            for event in ("tool:pre", "tool:post", "session:end", "session:start")
            if handlers.register(event, handler, priority=5, name="x")
        ]

        assert registered == ["tool:pre", "tool:post", "session:end"]

    def test_a_registry_that_cannot_unregister_is_no_reason_to_fail(self) -> None:
        class Stubborn(HookRegistry):
            def register(self, *_: Any, **__: Any) -> Any:
                def undo() -> None:
                    raise OSError("no way back")

                return undo

        handlers = Handlers("hooks-x", SimpleNamespace(hooks=Stubborn()))
        handlers.register("tool:pre", handler, priority=5, name="x")

        handlers.clear()

    def test_registration_is_logged_for_operators_who_look_closely(self, caplog: pytest.LogCaptureFixture) -> None:
        handlers = Handlers("hooks-x", MockCoordinator())

        with caplog.at_level(logging.DEBUG, logger="amplifier_kit"):
            handlers.register("tool:pre", handler, priority=5, name="x")

        assert [record.message for record in caplog.records] == ["hooks-x: handler x on tool:pre, priority 5"]


class TestPlaces:
    def test_the_working_directory_is_the_sessions_own(self, tmp_path: Path) -> None:
        coordinator = MockCoordinator()

        assert working_dir(coordinator) == Path.cwd()
        coordinator.register_capability("session.working_dir", str(tmp_path))
        assert working_dir(coordinator) == tmp_path
        coordinator.register_capability("session.working_dir", 7)
        assert working_dir(coordinator) == Path.cwd()

    @pytest.mark.parametrize(
        ("directory", "slug"), [("/srv/code/project", "-srv-code-project"), ("/", "-"), ("/a:b\\c", "-ab-c")]
    )
    def test_a_project_is_named_by_its_directory(self, directory: str, slug: str) -> None:
        assert project_slug(Path(directory)) == slug
