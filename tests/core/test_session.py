"""A session before its first turn: construction, initialize, and children of a session."""

import asyncio
import inspect
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator, ModuleLoader, SessionStatus

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]
Started = Callable[..., Awaitable[AmplifierSession]]
LoaderFor = Callable[..., ModuleLoader]

STRING_FORM = {"session": {"orchestrator": "loop-x", "context": "context-x"}}


def plan_of(**session: Any) -> dict[str, Any]:
    """Return a plan for the stand-in loader, with more settings in its session section."""
    return {
        "session": {"orchestrator": "loop-x", "context": "context-x", **session},
        "providers": [{"module": "provider-x"}],
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "Configuration is required"),
        ({}, "Configuration is required"),
        ([], "Configuration is required"),
        ("", "Configuration is required"),
        (0, "Configuration is required"),
        ([STRING_FORM], "Configuration must be a mapping, got list"),
        ("session", "Configuration must be a mapping, got str"),
        (7, "Configuration must be a mapping, got int"),
        ({"providers": []}, "Configuration must specify session.orchestrator"),
        ({"session": None}, "Configuration must specify session.orchestrator"),
        ({"session": []}, "Configuration must specify session.orchestrator"),
        ({"session": "loop-x"}, "Configuration must specify session.orchestrator"),
        ({"session": {}}, "Configuration must specify session.orchestrator"),
        ({"session": {"context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": None, "context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "", "context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": {}, "context": "c"}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "", "context": ""}}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "o"}}, "Configuration must specify session.context"),
        ({"session": {"orchestrator": "o", "context": None}}, "Configuration must specify session.context"),
        ({"session": {"orchestrator": "o", "context": {}}}, "Configuration must specify session.context"),
    ],
)
def test_a_plan_without_the_required_parts_is_refused_at_construction(config: Any, message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the text is compared as a whole
        AmplifierSession(config)

    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "section",
    [
        {"orchestrator": "no-such", "context": "no-such"},
        {"orchestrator": {"module": "no-such"}, "context": {"module": "no-such", "source": "nowhere"}},
        {"orchestrator": 7, "context": ["x"]},
    ],
)
def test_nothing_else_of_a_plan_is_looked_at_before_initialize(section: dict[str, Any]) -> None:
    session = AmplifierSession({"session": section, "providers": 3, "tools": None})

    assert not session.initialized


def test_the_plan_is_kept_by_reference_and_later_changes_are_seen_everywhere() -> None:
    plan = plan_of(metadata={"live": object()})
    session = AmplifierSession(plan)

    plan["session"]["injection_size_limit"] = 5

    assert session.config is plan
    assert session.coordinator.config is plan
    assert session.coordinator.injection_size_limit == 5


def test_any_mapping_will_do_as_a_plan() -> None:
    plan: Mapping[str, Any] = MappingProxyType(STRING_FORM)

    assert AmplifierSession(plan).config is plan  # type: ignore[arg-type]


def test_arguments_are_taken_by_position_in_their_documented_order() -> None:
    loader, approval, display = ModuleLoader(), object(), object()

    session = AmplifierSession(STRING_FORM, loader, "child", "parent", approval, display, True)  # type: ignore[arg-type]

    assert (session.loader, session.session_id, session.parent_id) == (loader, "child", "parent")
    assert session.coordinator.approval_system is approval
    assert session.coordinator.display_system is display
    assert session.is_resumed is True


@pytest.mark.parametrize("given", [None, ""])
def test_a_session_without_an_id_gets_a_uuid(given: str | None) -> None:
    session = AmplifierSession(STRING_FORM, session_id=given)

    assert str(uuid.UUID(session.session_id)) == session.session_id
    assert session.session_id != AmplifierSession(STRING_FORM, session_id=given).session_id


@pytest.mark.parametrize("given", ["s", " two words ", "ünïcode", "../up"])
def test_a_given_id_is_used_verbatim(given: str) -> None:
    session = AmplifierSession(STRING_FORM, session_id=given)

    assert session.session_id == session.coordinator.session_id == session.status.session_id == given


@pytest.mark.parametrize("given", [None, "", "parent"])
def test_the_parent_id_is_kept_verbatim(given: str | None) -> None:
    session = AmplifierSession(STRING_FORM, parent_id=given)

    assert session.parent_id == session.coordinator.parent_id == given


def test_a_new_session_is_running_and_not_initialized() -> None:
    session = AmplifierSession(STRING_FORM)

    assert isinstance(session.status, SessionStatus)
    assert session.status.status == "running"
    assert session.initialized is False
    assert session.is_resumed is False
    assert session.coordinator.session is session
    assert session.coordinator.loader is None
    assert isinstance(session.loader, ModuleLoader)
    assert session.loader.coordinator is session.coordinator


@pytest.mark.parametrize("name", ["initialized", "is_resumed"])
def test_the_views_cannot_be_assigned(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(AmplifierSession(STRING_FORM), name, True)


async def test_every_event_of_a_session_carries_its_ids(listen: Listen) -> None:
    session = AmplifierSession(STRING_FORM, session_id="child", parent_id="parent")
    heard = listen(session.coordinator, "custom:event")

    await session.coordinator.hooks.emit("custom:event", {})

    assert (heard[0][1]["session_id"], heard[0][1]["parent_id"]) == ("child", "parent")


async def test_a_subclass_works_like_the_class_itself(loader_for: LoaderFor) -> None:
    class Tracked(AmplifierSession):
        def __init__(self, plan: dict[str, Any]) -> None:
            super().__init__(plan, loader=loader_for("from a subclass"))

    async with Tracked(plan_of()) as session:
        assert isinstance(session, Tracked)
        assert await session.execute("hello") == "from a subclass"


@pytest.mark.parametrize("name", ["initialize", "execute", "cleanup", "__aenter__", "__aexit__"])
def test_public_coroutines_are_coroutine_functions(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AmplifierSession, name))


def test_a_session_has_no_fork_method() -> None:
    assert not hasattr(AmplifierSession, "fork")


# Initialize


async def test_initializing_twice_loads_once(loader_for: LoaderFor) -> None:
    loader = loader_for()
    session = AmplifierSession(plan_of(), loader=loader)

    await session.initialize()
    await session.initialize()

    assert session.initialized
    assert loader.loads == ["loop-x", "context-x", "provider-x"]


async def test_concurrent_calls_of_initialize_load_once_and_all_find_the_session_ready(loader_for: LoaderFor) -> None:
    loader = loader_for()
    session = AmplifierSession(plan_of(), loader=loader)

    async def initialize() -> bool:
        await session.initialize()
        return session.initialized

    assert await asyncio.gather(*(initialize() for _ in range(5))) == [True] * 5
    assert len(loader.loads) == 3


async def test_a_failed_initialize_leaves_the_session_uninitialized_and_can_be_repeated(loader_for: LoaderFor) -> None:
    loader = loader_for(context=RuntimeError("not today"))
    session = AmplifierSession(plan_of(), loader=loader)

    with pytest.raises(RuntimeError, match="Cannot initialize without context manager: not today"):
        await session.initialize()
    assert not session.initialized

    loader.things["context-x"] = object()
    await session.initialize()
    assert session.initialized
    assert await session.execute("hello") == "done"


async def test_a_cancelled_initialize_leaves_the_session_uninitialized_and_usable(modules: Any) -> None:
    gate, waiting = asyncio.Event(), asyncio.Event()
    plan = modules.plan()
    slow = modules.write(
        "context",
        mount="""
            config["waiting"].set()
            await config["gate"].wait()
            await coordinator.mount("context", thing)
        """,
    )
    plan["session"]["context"] = slow.entry(config={"gate": gate, "waiting": waiting})
    session = modules.session(plan)
    task = asyncio.create_task(session.initialize())
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not session.initialized
    gate.set()
    await session.initialize()
    assert await session.execute("hello") == "answer to hello"


async def test_the_sessions_loader_is_handed_to_the_coordinator(started: Started, loader_for: LoaderFor) -> None:
    loader = loader_for()
    session = await started(loader=loader)

    assert session.loader is loader
    assert session.coordinator.loader is loader


async def test_a_loader_assigned_to_the_session_replaces_its_own(loader_for: LoaderFor) -> None:
    session = AmplifierSession(plan_of())
    session.loader = loader_for("by assignment")

    await session.initialize()

    assert session.coordinator.loader is session.loader
    assert await session.execute("hello") == "by assignment"


async def test_a_loader_assigned_to_the_coordinator_is_kept_and_the_session_follows(loader_for: LoaderFor) -> None:
    session = AmplifierSession(plan_of())
    assigned = loader_for("from the coordinator")
    session.coordinator.loader = assigned

    await session.initialize()

    assert session.loader is session.coordinator.loader is assigned
    assert await session.execute("hello") == "from the coordinator"


async def test_a_loader_given_to_the_session_beats_one_assigned_to_the_coordinator(loader_for: LoaderFor) -> None:
    given = loader_for()
    session = AmplifierSession(plan_of(), loader=given)
    session.coordinator.loader = loader_for()

    await session.initialize()

    assert session.loader is session.coordinator.loader is given


async def test_a_session_without_a_loader_gets_one_and_gives_its_paths_back(modules: Any) -> None:
    before = list(sys.path)
    session = modules.session()
    session.loader = None

    await session.initialize()
    assert isinstance(session.coordinator.loader, ModuleLoader)
    await session.cleanup()

    assert sys.path == before


async def test_a_coordinator_put_in_place_of_the_first_is_the_one_that_is_used(modules: Any) -> None:
    class Tracking(ModuleCoordinator):
        def __init__(self, session: AmplifierSession) -> None:
            super().__init__(session)
            self.mounted: list[str] = []

        async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
            self.mounted.append(mount_point)
            await super().mount(mount_point, module, name)

    session = AmplifierSession(modules.plan())
    session.coordinator = Tracking(session)
    await session.coordinator.mount("module-source-resolver", modules.resolver)

    await session.initialize()

    assert session.coordinator.mounted == ["module-source-resolver", "orchestrator", "context", "providers"]
    assert await session.execute("hello") == "answer to hello"


async def test_changes_of_the_plan_before_initialize_count(modules: Any) -> None:
    plan = modules.plan()
    session = modules.session(plan)
    tool = modules.write("tool")

    plan["tools"] = [tool.entry()]
    await session.initialize()

    assert list(session.coordinator.get("tools")) == [tool.name]


# Children


async def test_a_child_session_shares_what_the_application_gives_it(modules: Any, listen: Listen) -> None:
    systems = SimpleNamespace(approval=object(), display=object())
    parent = modules.session(approval_system=systems.approval, display_system=systems.display)
    await parent.initialize()

    child = AmplifierSession(
        modules.plan(),
        parent_id=parent.session_id,
        approval_system=parent.coordinator.approval_system,
        display_system=parent.coordinator.display_system,
    )
    resolver = parent.coordinator.get("module-source-resolver")
    await child.coordinator.mount("module-source-resolver", resolver)
    parent.coordinator.cancellation.register_child(child.coordinator.cancellation)
    heard = listen(child.coordinator, "session:fork")
    async with child:
        assert await child.execute("hello") == "answer to hello"

    assert heard[0][1]["parent"] == parent.session_id
    assert child.coordinator.approval_system is systems.approval
    assert child.coordinator.display_system is systems.display
    assert await parent.execute("still there") == "answer to still there"
