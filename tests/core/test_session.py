"""The life of a session: construction, initialize, execute, cleanup."""

import asyncio
import inspect
import logging
import sys
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

import amplifier_core.llm_errors
from amplifier_core import AmplifierSession, HookResult, ModuleCoordinator, ModuleLoader, SessionStatus
from amplifier_core.llm_errors import LLMError

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]

STRING_FORM = {"session": {"orchestrator": "loop-x", "context": "context-x"}}
LIFECYCLE = ("session:start", "session:resume", "session:config", "session:fork", "session:end", "cancel:completed")
LLM_ERRORS = [
    error
    for error in vars(amplifier_core.llm_errors).values()
    if isinstance(error, type) and issubclass(error, LLMError)
]


class FiveParameters:
    """An orchestrator with exactly the parameters of the contract; `outcome` is returned, or raised if it can be."""

    def __init__(self, outcome: Any = "done") -> None:
        self.outcome = outcome
        self.calls: list[dict[str, Any]] = []

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any) -> Any:
        self.calls.append(
            {"prompt": prompt, "context": context, "providers": providers, "tools": tools, "hooks": hooks}
        )
        return await answer(self.outcome)


class Keywords:
    def __init__(self, outcome: Any = "done") -> None:
        self.outcome = outcome
        self.calls: list[dict[str, Any]] = []

    async def execute(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        return await answer(self.outcome)


class NamedCoordinator(FiveParameters):
    async def execute(
        self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, coordinator: Any = None
    ) -> Any:
        self.calls.append({"coordinator": coordinator})
        return await answer(self.outcome)


async def answer(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return await outcome() if inspect.iscoroutinefunction(outcome) else outcome


class StandInLoader(ModuleLoader):
    """A loader that needs no files: `load` mounts the object that was given for an id."""

    def __init__(self, **things: Any) -> None:
        super().__init__()
        self.things = {name.replace("_", "-"): thing for name, thing in things.items()}
        self.loads: list[str] = []

    async def load(self, module_id: str, config: Any = None, source_hint: Any = None, **more: Any) -> Any:
        self.loads.append(module_id)
        await asyncio.sleep(0)

        async def mount(coordinator: ModuleCoordinator) -> None:
            thing = self.things[module_id]
            if isinstance(thing, BaseException):
                raise thing
            point = {"loop": "orchestrator", "context": "context"}.get(module_id.partition("-")[0], "providers")
            await coordinator.mount(point, thing, name=module_id)

        return mount


def loader_for(orchestrator: Any, context: Any = None) -> StandInLoader:
    return StandInLoader(loop_x=orchestrator, context_x=context or object(), provider_x=object())


def plan_of(**session: Any) -> dict[str, Any]:
    return {"session": {**STRING_FORM["session"], **session}, "providers": [{"module": "provider-x"}]}


async def started(orchestrator: Any = None, *, plan: Any = None, **options: Any) -> AmplifierSession:
    """Return an initialized session that runs `orchestrator`."""
    loader = options.pop("loader", None) or loader_for(orchestrator or FiveParameters())
    session = AmplifierSession(plan or plan_of(), loader=loader, **options)
    await session.initialize()
    return session


# Construction


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


async def test_a_subclass_works_like_the_class_itself() -> None:
    class Tracked(AmplifierSession):
        def __init__(self, plan: dict[str, Any]) -> None:
            super().__init__(plan, loader=loader_for(FiveParameters("from a subclass")))

    async with Tracked(plan_of()) as session:
        assert isinstance(session, Tracked)
        assert await session.execute("hello") == "from a subclass"


@pytest.mark.parametrize("name", ["initialize", "execute", "cleanup", "__aenter__", "__aexit__"])
def test_public_coroutines_are_coroutine_functions(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AmplifierSession, name))


def test_a_session_has_no_fork_method() -> None:
    assert not hasattr(AmplifierSession, "fork")


# Initialize


async def test_initializing_twice_loads_once() -> None:
    loader = loader_for(FiveParameters())
    session = AmplifierSession(plan_of(), loader=loader)

    await session.initialize()
    await session.initialize()

    assert session.initialized
    assert loader.loads == ["loop-x", "context-x", "provider-x"]


async def test_concurrent_calls_of_initialize_load_once_and_all_find_the_session_ready() -> None:
    loader = loader_for(FiveParameters())
    session = AmplifierSession(plan_of(), loader=loader)

    async def initialize() -> bool:
        await session.initialize()
        return session.initialized

    assert await asyncio.gather(*(initialize() for _ in range(5))) == [True] * 5
    assert len(loader.loads) == 3


async def test_a_failed_initialize_leaves_the_session_uninitialized_and_can_be_repeated() -> None:
    loader = StandInLoader(loop_x=FiveParameters(), context_x=RuntimeError("not today"), provider_x=object())
    session = AmplifierSession(plan_of(), loader=loader)

    with pytest.raises(RuntimeError, match="Cannot initialize without context manager: not today"):
        await session.initialize()
    assert not session.initialized

    loader.things["context-x"] = object()
    await session.initialize()
    assert session.initialized
    assert await session.execute("hello") == "done"


async def test_a_cancelled_initialize_leaves_the_session_uninitialized_and_usable() -> None:
    gate = asyncio.Event()

    class Slow(StandInLoader):
        async def load(self, *arguments: Any, **more: Any) -> Any:
            await gate.wait()
            return await super().load(*arguments, **more)

    session = AmplifierSession(plan_of(), loader=Slow(loop_x=FiveParameters(), context_x=object(), provider_x=object()))
    task = asyncio.create_task(session.initialize())
    await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not session.initialized
    gate.set()
    await session.initialize()
    assert await session.execute("hello") == "done"


async def test_the_sessions_loader_is_handed_to_the_coordinator() -> None:
    loader = loader_for(FiveParameters())
    session = await started(loader=loader)

    assert session.loader is loader
    assert session.coordinator.loader is loader


async def test_a_loader_assigned_to_the_session_replaces_its_own() -> None:
    session = AmplifierSession(plan_of())
    session.loader = loader_for(FiveParameters("by assignment"))

    await session.initialize()

    assert session.coordinator.loader is session.loader
    assert await session.execute("hello") == "by assignment"


async def test_a_loader_assigned_to_the_coordinator_is_kept_and_the_session_follows() -> None:
    session = AmplifierSession(plan_of())
    assigned = loader_for(FiveParameters("from the coordinator"))
    session.coordinator.loader = assigned

    await session.initialize()

    assert session.loader is session.coordinator.loader is assigned
    assert await session.execute("hello") == "from the coordinator"


async def test_a_loader_given_to_the_session_beats_one_assigned_to_the_coordinator() -> None:
    given = loader_for(FiveParameters())
    session = AmplifierSession(plan_of(), loader=given)
    session.coordinator.loader = loader_for(FiveParameters())

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


# Execute


async def test_execute_before_initialize_is_refused() -> None:
    session = AmplifierSession(plan_of())

    with pytest.raises(RuntimeError) as refusal:
        await session.execute("hello")

    assert str(refusal.value) == "Session not initialized. Call initialize() first."


async def test_execute_after_cleanup_is_refused() -> None:
    session = await started()
    await session.cleanup()

    with pytest.raises(RuntimeError, match=r"^Session not initialized\. Call initialize\(\) first\.$"):
        await session.execute("hello")


async def test_the_first_turn_of_a_session_announces_it_and_later_ones_do_not(listen: Listen) -> None:
    session = await started(session_id="s")
    heard = listen(session.coordinator, *LIFECYCLE)

    await session.execute("one")
    await session.execute("two")

    assert [event for event, _ in heard] == ["session:start"]


async def test_session_start_carries_the_plan_itself_and_nothing_unasked(listen: Listen) -> None:
    plan = plan_of()
    session = await started(plan=plan, session_id="s", parent_id="p")
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    payload = heard[0][1]
    assert set(payload) == {"session_id", "parent_id", "config", "timestamp"}
    assert (payload["session_id"], payload["parent_id"]) == ("s", "p")
    assert payload["config"] is plan


@pytest.mark.parametrize("form", [dict, MappingProxyType])
async def test_metadata_of_the_plan_travels_untouched_with_the_first_event(listen: Listen, form: Any) -> None:
    metadata = form({"agent": "zen", "live": object()})
    session = await started(plan=plan_of(metadata=metadata))
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    assert heard[0][1]["metadata"] is metadata


async def test_empty_metadata_is_left_out(listen: Listen) -> None:
    session = await started(plan=plan_of(metadata={}))
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    assert "metadata" not in heard[0][1]


async def test_a_resumed_session_says_so_instead(listen: Listen) -> None:
    session = await started(is_resumed=True, plan=plan_of(metadata={"a": 1}), session_id="s")
    heard = listen(session.coordinator, *LIFECYCLE)

    await session.execute("one")
    await session.execute("two")

    assert [event for event, _ in heard] == ["session:resume"]
    assert set(heard[0][1]) == {"session_id", "parent_id", "config", "metadata", "timestamp"}


async def test_a_raw_plan_is_announced_once_with_its_secrets_blanked(listen: Listen) -> None:
    plan = plan_of(raw=True) | {"agents": {"a": {"api_key": "sk-123", "model": "m"}}}
    session = await started(plan=plan, session_id="s")
    heard = listen(session.coordinator, *LIFECYCLE)

    await session.execute("one")
    await session.execute("two")

    assert [event for event, _ in heard] == ["session:start", "session:config"]
    assert "raw" not in heard[0][1]
    payload = heard[1][1]
    assert set(payload) == {"session_id", "parent_id", "raw", "timestamp"}
    assert payload["raw"]["agents"] == {"a": {"api_key": "[REDACTED]", "model": "m"}}
    assert plan["agents"]["a"]["api_key"] == "sk-123"


async def test_secrets_in_any_kind_of_mapping_are_blanked(listen: Listen) -> None:
    keys = (MappingProxyType({"api_key": "sk-123"}),)
    session = await started(plan=MappingProxyType(plan_of(raw=True) | {"agents": keys}))
    heard = listen(session.coordinator, "session:config")

    await session.execute("hello")

    assert heard[0][1]["raw"]["agents"] == [{"api_key": "[REDACTED]"}]


async def test_the_kernel_passes_exactly_the_documented_keys_to_session_config() -> None:
    session = await started(plan=plan_of(raw=True), session_id="s")
    session.coordinator.hooks.set_default_fields()
    payloads = []
    session.coordinator.hooks.register("session:config", lambda event, data: payloads.append(set(data)))

    await session.execute("hello")

    assert payloads == [{"session_id", "raw", "timestamp"}]


async def test_a_child_session_forks_starts_shows_its_plan_runs_ends_and_cleans_up_in_this_order(modules: Any) -> None:
    order: list[str] = []
    plan = modules.plan()
    plan["session"]["raw"] = True
    session = modules.session(plan, parent_id="parent")
    for event in (*LIFECYCLE, "prompt:submit", "orchestrator:complete"):
        session.coordinator.hooks.register(event, lambda event, data: order.append(event))
    await session.initialize()
    session.coordinator.register_cleanup(lambda: order.append("first cleanup"))
    session.coordinator.register_cleanup(lambda: order.append("second cleanup"))

    await session.execute("hello")
    await session.cleanup()

    assert order == [
        "session:fork",
        "session:start",
        "session:config",
        "prompt:submit",
        "orchestrator:complete",
        "session:end",
        "second cleanup",
        "first cleanup",
    ]


async def test_the_fork_event_names_the_parent_and_carries_metadata_and_raw_plan_only_if_there(listen: Listen) -> None:
    payloads = []
    for more in ({}, {"metadata": {"a": 1}, "raw": True}):
        session = AmplifierSession(
            plan_of(**more), loader=loader_for(FiveParameters()), session_id="child", parent_id="parent"
        )
        session.coordinator.hooks.set_default_fields()
        heard = listen(session.coordinator, "session:fork")
        await session.initialize()
        payloads += [data for _, data in heard]

    for payload in payloads:
        del payload["timestamp"]
    assert payloads[0] == {"parent": "parent", "session_id": "child"}
    assert set(payloads[1]) == {"parent", "session_id", "metadata", "raw"}
    assert payloads[1]["metadata"] == {"a": 1}
    assert payloads[1]["raw"]["session"]["raw"] is True


@pytest.mark.parametrize("parent_id", [None, ""])
async def test_a_session_without_a_parent_does_not_fork(listen: Listen, parent_id: str | None) -> None:
    session = AmplifierSession(plan_of(), loader=loader_for(FiveParameters()), parent_id=parent_id)
    heard = listen(session.coordinator, "session:fork")

    await session.initialize()

    assert heard == []


async def test_the_orchestrator_gets_the_live_objects_by_keyword() -> None:
    orchestrator = FiveParameters()
    session = await started(orchestrator)
    get = session.coordinator.get

    await session.execute("hello")

    call = orchestrator.calls[0]
    assert call["prompt"] == "hello"
    assert call["context"] is get("context")
    assert call["providers"] is get("providers")
    assert call["tools"] is get("tools")
    assert call["hooks"] is session.coordinator.hooks


@pytest.mark.parametrize("kind", [NamedCoordinator, Keywords])
async def test_an_orchestrator_that_takes_a_coordinator_gets_it(kind: type[Any]) -> None:
    orchestrator = kind()
    session = await started(orchestrator)

    await session.execute("hello")

    assert orchestrator.calls[0]["coordinator"] is session.coordinator


async def test_an_orchestrator_with_five_parameters_is_not_asked_to_take_more() -> None:
    session = await started(FiveParameters("fine"))

    assert await session.execute("hello") == "fine"


async def test_another_orchestrator_mounted_between_turns_is_called_as_it_wants() -> None:
    session = await started(FiveParameters())
    later = NamedCoordinator()

    await session.execute("one")
    await session.coordinator.mount("orchestrator", later)
    await session.execute("two")

    assert later.calls == [{"coordinator": session.coordinator}]


async def test_a_signature_is_read_once_for_each_orchestrator() -> None:
    class Counting(FiveParameters):
        reads = 0

        @property
        def execute(self) -> Any:
            type(self).reads += 1
            return super().execute

    orchestrator = Counting()
    session = await started(orchestrator)

    for prompt in ("one", "two", "three"):
        await session.execute(prompt)

    assert Counting.reads == 4  # three calls and one look at the signature


@pytest.mark.parametrize("value", ["text", "", None, {"any": "object"}, 7])
async def test_the_orchestrators_value_is_returned_unchanged(value: Any) -> None:
    session = await started(FiveParameters(value))

    assert await session.execute("hello") is value
    assert session.status.status == "completed"


@pytest.mark.parametrize(
    ("point", "name", "message"),
    [
        ("orchestrator", None, "No orchestrator module mounted"),
        ("context", None, "No context manager mounted"),
        ("providers", "provider-x", "No providers mounted"),
    ],
)
async def test_a_turn_without_its_parts_is_refused_after_the_announcement(
    listen: Listen, point: str, name: str | None, message: str
) -> None:
    session = await started()
    heard = listen(session.coordinator, "session:start")
    await session.coordinator.unmount(point, name=name)

    with pytest.raises(RuntimeError) as refusal:
        await session.execute("hello")

    assert str(refusal.value) == message
    assert len(heard) == 1
    assert session.status.status == "running"
    assert session.status.last_error is None


async def test_missing_parts_are_reported_orchestrator_first() -> None:
    session = await started()
    session.coordinator.mount_points.update(orchestrator=None, context=None, providers={})

    with pytest.raises(RuntimeError, match="No orchestrator module mounted"):
        await session.execute("hello")


async def test_an_empty_container_is_a_context_all_the_same() -> None:
    class EmptyContext(list[Any]):
        pass

    session = await started(loader=loader_for(FiveParameters(), context=EmptyContext()))

    assert await session.execute("hello") == "done"


async def test_a_session_without_tools_gives_the_orchestrator_an_empty_dict() -> None:
    orchestrator = FiveParameters()
    session = await started(orchestrator)
    session.coordinator.mount_points["tools"] = None

    await session.execute("hello")

    assert orchestrator.calls[0]["tools"] == {}


@pytest.mark.parametrize("kind", LLM_ERRORS)
async def test_errors_of_a_model_call_come_out_as_the_same_object(kind: type[LLMError]) -> None:
    error = kind("the model said no", provider="p")
    session = await started(FiveParameters(error))

    with pytest.raises(LLMError) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.status == "failed"
    assert session.status.last_error == {"message": "the model said no"}


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyboardInterrupt("stop"), SystemExit(3), asyncio.CancelledError("gone")], ids=repr
)
async def test_every_exception_is_recorded_logged_and_raised_as_it_is(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    session = await started(FiveParameters(error))

    raised: BaseException | None = None
    try:
        await session.execute("hello")
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it has to be the very object
        raised = exc

    assert raised is error
    assert session.status.status == "failed"
    assert session.status.last_error == {"message": str(error)}
    records = [record for record in caplog.records if record.getMessage() == f"Execution failed: {error}"]
    assert [(record.levelno, record.name) for record in records] == [(logging.ERROR, "amplifier_core.session")]


async def test_an_error_whose_text_cannot_be_decoded_is_recorded_by_its_representation() -> None:
    class Undecodable(Exception):
        def __str__(self) -> str:
            return b"\xff".decode()

    error = Undecodable("x")
    session = await started(FiveParameters(error))

    with pytest.raises(Undecodable) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.last_error == {"message": repr(error)}


async def test_an_error_that_cannot_be_printed_at_all_still_comes_through() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

        __repr__ = __str__

    error = Unprintable()
    session = await started(FiveParameters(error))

    with pytest.raises(Unprintable) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.last_error == {"message": "Unprintable"}


async def test_a_turn_after_a_failed_one_runs_and_completes() -> None:
    orchestrator = FiveParameters(ValueError("odd"))
    session = await started(orchestrator)
    with pytest.raises(ValueError, match="odd"):
        await session.execute("one")

    orchestrator.outcome = "fine"

    assert await session.execute("two") == "fine"
    assert session.status.status == "completed"


async def test_the_status_is_running_while_a_turn_runs() -> None:
    seen: list[str] = []
    session = await started(FiveParameters())
    await session.execute("one")

    async def look() -> str:
        seen.append(session.status.status)
        return "looked"

    session.coordinator.get("orchestrator").outcome = look
    await session.execute("two")

    assert seen == ["running"]


async def test_the_kernel_leaves_counters_and_times_of_the_status_alone() -> None:
    session = await started()
    before = session.status.model_dump(exclude={"status"})

    await session.execute("hello")
    await session.cleanup()

    assert session.status.model_dump(exclude={"status"}) == before


# Cancellation


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_turn_that_ends_after_a_cancel_request_counts_as_cancelled(listen: Listen, immediate: bool) -> None:
    session = await started()
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "cancel:completed")

    async def stop() -> str:
        await session.coordinator.request_cancel(immediate=immediate)
        return "stopped early"

    session.coordinator.get("orchestrator").outcome = stop

    assert await session.execute("hello") == "stopped early"
    assert session.status.status == "cancelled"
    assert [set(data) - {"timestamp"} for _, data in heard] == [{"was_immediate"}]
    assert heard[0][1]["was_immediate"] is immediate


@pytest.mark.parametrize("immediate", [False, True])
async def test_an_error_after_a_cancel_request_counts_as_cancelled_and_is_raised(
    listen: Listen, caplog: pytest.LogCaptureFixture, immediate: bool
) -> None:
    caplog.set_level(logging.INFO, logger="amplifier_core")
    error = ValueError("interrupted")
    session = await started()
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "cancel:completed")

    async def stop() -> None:
        await session.coordinator.request_cancel(immediate=immediate)
        raise error

    session.coordinator.get("orchestrator").outcome = stop

    with pytest.raises(ValueError, match="interrupted") as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.status == "cancelled"
    assert session.status.last_error is None
    data = heard[0][1]
    assert {key: data[key] for key in data if key != "timestamp"} == {
        "was_immediate": immediate,
        "error": "interrupted",
    }
    assert [
        record.levelno for record in caplog.records if record.getMessage() == "Execution cancelled: interrupted"
    ] == [logging.INFO]
    assert "Execution failed" not in caplog.text


@pytest.mark.parametrize("immediate", [None, False, True])
async def test_cancelling_the_task_of_a_turn_leaves_the_session_usable(listen: Listen, immediate: bool | None) -> None:
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    orchestrator = FiveParameters(wait)
    session = await started(orchestrator)
    heard = listen(session.coordinator, "cancel:completed")
    turn = asyncio.create_task(session.execute("one"))
    await waiting.wait()
    if immediate is not None:
        await session.coordinator.request_cancel(immediate=immediate)

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert session.status.status == ("failed" if immediate is None else "cancelled")
    assert [data["was_immediate"] for _, data in heard] == ([] if immediate is None else [immediate])
    session.coordinator.cancellation.reset()
    orchestrator.outcome = "again"
    assert await session.execute("two") == "again"
    assert session.status.status == "completed"
    await session.cleanup()
    assert not session.initialized


async def test_a_handler_that_waits_hears_the_end_of_a_cancelled_turn_to_the_end() -> None:
    waiting, finished = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def slow_handler(event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        finished.set()
        return HookResult()

    session = await started(FiveParameters(wait))
    session.coordinator.hooks.register("cancel:completed", slow_handler)
    turn = asyncio.create_task(session.execute("one"))
    await waiting.wait()
    await session.coordinator.request_cancel(immediate=True)

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert finished.is_set()


async def test_an_error_is_not_lost_when_the_end_of_a_cancelled_turn_cannot_be_announced() -> None:
    error = ValueError("the reason")
    session = await started()
    working_emit = session.coordinator.hooks.emit

    async def stop() -> None:
        await session.coordinator.request_cancel()
        raise error

    async def emit(event: str, data: dict[str, Any]) -> HookResult:
        if event == "cancel:completed":
            raise ConnectionError("no one listens")
        return await working_emit(event, data)

    session.coordinator.get("orchestrator").outcome = stop
    session.coordinator.hooks.emit = emit  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="the reason") as caught:
        await session.execute("hello")

    assert caught.value is error


async def test_a_coroutine_of_a_cancelled_turn_can_be_closed() -> None:
    async def wait() -> None:
        await session.coordinator.request_cancel()
        await asyncio.Event().wait()

    session = await started(FiveParameters(wait))
    turn = session.execute("hello")
    turn.send(None)

    turn.close()

    assert session.status.status == "cancelled"


async def test_the_kernel_does_not_reset_a_cancel_request() -> None:
    session = await started()
    await session.coordinator.request_cancel()

    await session.execute("one")
    assert session.coordinator.cancellation.is_cancelled

    session.coordinator.cancellation.reset()
    await session.execute("two")
    assert session.status.status == "completed"


async def test_cancelling_a_parent_cancels_its_children() -> None:
    parent, child = await started(), await started()
    parent.coordinator.cancellation.register_child(child.coordinator.cancellation)

    await parent.coordinator.request_cancel(immediate=True)
    await child.execute("hello")

    assert child.status.status == "cancelled"


# Cleanup


async def test_cleanup_announces_the_end_before_any_cleanup_runs(listen: Listen) -> None:
    session = await started(session_id="s")
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "session:end")
    heard_at_cleanup: list[int] = []
    session.coordinator.register_cleanup(lambda: heard_at_cleanup.append(len(heard)))
    await session.execute("hello")

    await session.cleanup()

    assert heard_at_cleanup == [1]
    payload = heard[0][1]
    assert set(payload) == {"session_id", "status", "stats", "timestamp"}
    assert (payload["session_id"], payload["status"]) == ("s", "completed")
    assert payload["stats"] == session.status.to_dict()


async def test_cleanups_run_last_one_first_sync_and_async() -> None:
    order: list[str] = []
    session = await started()

    async def slow() -> None:
        await asyncio.sleep(0)
        order.append("async")

    for cleanup in (lambda: order.append("first"), slow, lambda: order.append("last")):
        session.coordinator.register_cleanup(cleanup)
    await session.cleanup()

    assert order == ["last", "async", "first"]


async def test_cleaning_up_twice_announces_once_and_runs_every_cleanup_once(listen: Listen) -> None:
    session = await started()
    heard = listen(session.coordinator, "session:end")
    runs: list[int] = []
    session.coordinator.register_cleanup(lambda: runs.append(1))

    await session.cleanup()
    await session.cleanup()

    assert (len(heard), runs) == (1, [1])
    assert not session.initialized


async def test_concurrent_cleanups_announce_once_and_run_every_cleanup_once(listen: Listen) -> None:
    session = await started()
    runs: list[str] = []

    async def slow_handler(event: str, data: dict[str, Any]) -> None:
        runs.append(event)
        await asyncio.sleep(0)

    session.coordinator.hooks.register("session:end", slow_handler)
    session.coordinator.register_cleanup(lambda: runs.append("cleanup"))

    await asyncio.gather(session.cleanup(), session.cleanup())

    assert sorted(runs) == ["cleanup", "session:end"]


async def test_a_session_that_was_never_initialized_cleans_up_without_an_announcement(listen: Listen) -> None:
    session = AmplifierSession(plan_of())
    heard = listen(session.coordinator, "session:end")
    runs: list[int] = []
    session.coordinator.register_cleanup(lambda: runs.append(1))

    await session.cleanup()

    assert (heard, runs) == ([], [1])


async def test_cleanups_that_raise_do_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []
    session = await started()

    def broken() -> None:
        raise ValueError("cannot close")

    for cleanup in (lambda: runs.append(1), broken, lambda: runs.append(2)):
        session.coordinator.register_cleanup(cleanup)
    await session.cleanup()

    assert runs == [2, 1]
    assert "Error during cleanup: cannot close" in caplog.text
    assert not session.initialized


@pytest.mark.parametrize("error", [asyncio.CancelledError("c"), KeyboardInterrupt("k"), SystemExit(1)], ids=repr)
async def test_an_interruption_in_a_cleanup_comes_out_when_everything_is_clean(
    modules: Any, error: BaseException
) -> None:
    before = list(sys.path)
    runs: list[int] = []
    session = modules.session()
    await session.initialize()

    def interrupt() -> None:
        raise error

    for cleanup in (lambda: runs.append(1), interrupt, lambda: runs.append(2)):
        session.coordinator.register_cleanup(cleanup)

    raised: BaseException | None = None
    try:
        await session.cleanup()
    except BaseException as exc:  # noqa: BLE001 - it has to be the very object
        raised = exc

    assert raised is error
    assert runs == [2, 1]
    assert not session.initialized
    assert sys.path == before


async def test_cancelling_a_cleanup_in_the_middle_still_runs_the_rest() -> None:
    runs: list[int] = []
    waiting = asyncio.Event()
    session = await started()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    session.coordinator.register_cleanup(lambda: runs.append(1))
    session.coordinator.register_cleanup(wait)
    task = asyncio.create_task(session.cleanup())
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runs == [1]
    assert not session.initialized


async def test_cancelling_the_announcement_of_the_end_still_cleans_up() -> None:
    runs: list[int] = []
    waiting = asyncio.Event()
    session = await started()

    async def wait(event: str, data: dict[str, Any]) -> None:
        waiting.set()
        await asyncio.Event().wait()

    session.coordinator.hooks.register("session:end", wait)
    session.coordinator.register_cleanup(lambda: runs.append(1))
    task = asyncio.create_task(session.cleanup())
    await waiting.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runs == [1]
    assert not session.initialized


async def test_an_end_that_cannot_be_announced_is_no_obstacle(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="amplifier_core")
    runs: list[int] = []
    session = await started()
    session.coordinator.register_cleanup(lambda: runs.append(1))

    async def broken_emit(event: str, data: dict[str, Any]) -> HookResult:
        raise ConnectionError("no one listens")

    session.coordinator.hooks.emit = broken_emit  # type: ignore[method-assign]
    await session.cleanup()

    assert runs == [1]
    assert [record.levelno for record in caplog.records if "session:end" in record.getMessage()] == [logging.DEBUG]


async def test_a_cleaned_up_session_can_be_initialized_again(modules: Any, listen: Listen) -> None:
    session = modules.session()
    heard = listen(session.coordinator, "session:start", "session:end")

    for prompt in ("one", "two"):
        await session.initialize()
        assert await session.execute(prompt) == f"answer to {prompt}"
        await session.cleanup()

    assert [event for event, _ in heard] == ["session:start", "session:end", "session:end"]


# Context manager


async def test_the_context_manager_initializes_and_cleans_up() -> None:
    session = AmplifierSession(plan_of(), loader=loader_for(FiveParameters()))

    async with session as entered:
        assert entered is session
        assert session.initialized

    assert not session.initialized


async def test_the_context_manager_never_swallows_an_error() -> None:
    runs: list[int] = []

    with pytest.raises(ValueError, match="mine"):
        async with AmplifierSession(plan_of(), loader=loader_for(FiveParameters())) as session:
            session.coordinator.register_cleanup(lambda: runs.append(1))
            raise ValueError("mine")

    assert runs == [1]


async def test_entering_cleans_up_what_was_mounted_before_initialize_failed(modules: Any) -> None:
    before = list(sys.path)
    orchestrator = modules.write(
        "orchestrator",
        mount="""
            await coordinator.mount("orchestrator", thing)
            return lambda: config["runs"].append("cleaned up")
        """,
    )
    runs: list[str] = []
    plan = {
        "session": {
            "orchestrator": orchestrator.entry(config={"runs": runs}),
            "context": modules.write("context", mount='raise OSError("no disk")').module_id,
        }
    }

    with pytest.raises(RuntimeError, match="Cannot initialize without context manager: no disk"):
        async with modules.session(plan):
            pytest.fail("the body must not run")

    assert runs == ["cleaned up"]
    assert sys.path == before


async def test_methods_replaced_on_the_instance_are_the_ones_called() -> None:
    calls: list[str] = []
    session = AmplifierSession(plan_of())

    async def note(name: str) -> None:
        calls.append(name)

    session.initialize = lambda: note("initialize")  # type: ignore[method-assign]
    session.cleanup = lambda: note("cleanup")  # type: ignore[method-assign]

    async with session:
        calls.append("body")

    assert calls == ["initialize", "body", "cleanup"]


async def test_execute_replaced_on_the_instance_is_the_one_called() -> None:
    session = await started()

    async def canned(prompt: str) -> str:
        return f"canned {prompt}"

    session.execute = canned  # type: ignore[method-assign]

    assert await session.execute("hello") == "canned hello"


# Forking


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
