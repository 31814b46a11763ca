"""A turn of a session: what is announced, what the orchestrator gets, and what comes out."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import AsyncMock

import pytest

import amplifier_core.llm_errors
from amplifier_core import AmplifierSession, HookRegistry, HookResult, ModuleLoader
from amplifier_core.llm_errors import LLMError

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]
Started = Callable[..., Awaitable[AmplifierSession]]
LoaderFor = Callable[..., ModuleLoader]

LIFECYCLE = ("session:start", "session:resume", "session:config", "session:fork", "session:end", "cancel:completed")
LLM_ERRORS = [
    error
    for error in vars(amplifier_core.llm_errors).values()
    if isinstance(error, type) and issubclass(error, LLMError)
]


def plan_of(**session: Any) -> dict[str, Any]:
    """Return a plan for the stand-in loader, with more settings in its session section."""
    return {
        "session": {"orchestrator": "loop-x", "context": "context-x", **session},
        "providers": [{"module": "provider-x"}],
    }


class Keywords:
    """An orchestrator that takes whatever it is given."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def execute(self, **arguments: Any) -> str:
        self.calls.append(arguments)
        return "done"


class NamedCoordinator(Keywords):
    """An orchestrator that names the coordinator among its parameters."""

    async def execute(  # type: ignore[override]
        self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, coordinator: Any = None
    ) -> str:
        self.calls.append({"coordinator": coordinator})
        return "done"


async def test_execute_before_initialize_is_refused() -> None:
    session = AmplifierSession(plan_of())

    with pytest.raises(RuntimeError) as refusal:
        await session.execute("hello")

    assert str(refusal.value) == "Session not initialized. Call initialize() first."


async def test_execute_after_cleanup_is_refused(started: Started) -> None:
    session = await started()
    await session.cleanup()

    with pytest.raises(RuntimeError, match=r"^Session not initialized\. Call initialize\(\) first\.$"):
        await session.execute("hello")


async def test_the_first_turn_of_a_session_announces_it_and_later_ones_do_not(started: Started, listen: Listen) -> None:
    session = await started(session_id="s")
    heard = listen(session.coordinator, *LIFECYCLE)

    await session.execute("one")
    await session.execute("two")

    assert [event for event, _ in heard] == ["session:start"]


async def test_session_start_carries_a_plan_without_secrets_and_nothing_unasked(
    started: Started, listen: Listen
) -> None:
    plan = plan_of() | {"agents": {"a": {"api_key": "sk-123", "model": "m"}}}
    session = await started(plan=plan, session_id="s", parent_id="p")
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    payload = heard[0][1]
    assert set(payload) == {"session_id", "parent_id", "config", "timestamp"}
    assert (payload["session_id"], payload["parent_id"]) == ("s", "p")
    assert payload["config"] == plan | {"agents": {"a": {"api_key": "[REDACTED]", "model": "m"}}}
    assert session.coordinator.config is plan
    assert plan["agents"] == {"a": {"api_key": "sk-123", "model": "m"}}


async def test_the_plan_in_session_start_can_be_written_as_json(started: Started, listen: Listen) -> None:
    settings = MappingProxyType({"password": "p", "folder": Path("/x"), "live": object()})
    session = await started(plan=plan_of() | {"agents": [settings]}, is_resumed=True)
    heard = listen(session.coordinator, "session:resume")

    await session.execute("hello")

    (agent,) = json.loads(json.dumps(heard[0][1]["config"]))["agents"]
    assert (agent["password"], agent["folder"]) == ("[REDACTED]", "/x")


async def test_a_plan_nobody_hears_of_is_not_copied(started: Started) -> None:
    class Unreadable:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            pytest.fail("the plan was walked")

    session = await started(plan=plan_of() | {"agents": {"a": Unreadable()}})

    assert await session.execute("hello") == "done"


async def test_a_stand_in_for_the_registry_is_given_the_plan(started: Started) -> None:
    session = await started()
    emitted = session.coordinator.hooks.emit = AsyncMock(return_value=HookResult())  # type: ignore[method-assign]

    await session.execute("hello")

    event, payload = emitted.await_args_list[0].args
    assert (event, payload["config"]) == ("session:start", session.config)


async def test_an_emit_that_replaces_the_one_of_the_class_is_given_the_plan(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await started()
    emitted: list[tuple[str, Any]] = []

    async def emit(self: HookRegistry, event: str, data: Any) -> HookResult:
        emitted.append((event, data))
        return HookResult()

    monkeypatch.setattr(HookRegistry, "emit", emit)

    await session.execute("hello")

    assert [(event, data["config"]) for event, data in emitted[:1]] == [("session:start", session.config)]


@pytest.mark.parametrize("form", [dict, MappingProxyType])
async def test_metadata_of_the_plan_travels_untouched_with_the_first_event(
    started: Started, listen: Listen, form: Any
) -> None:
    metadata = form({"agent": "zen", "live": object()})
    session = await started(plan=plan_of(metadata=metadata))
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    assert heard[0][1]["metadata"] is metadata


async def test_empty_metadata_is_left_out(started: Started, listen: Listen) -> None:
    session = await started(plan=plan_of(metadata={}))
    heard = listen(session.coordinator, "session:start")

    await session.execute("hello")

    assert "metadata" not in heard[0][1]


async def test_a_resumed_session_says_so_instead(started: Started, listen: Listen) -> None:
    session = await started(is_resumed=True, plan=plan_of(metadata={"a": 1}), session_id="s")
    heard = listen(session.coordinator, *LIFECYCLE)

    await session.execute("one")
    await session.execute("two")

    assert [event for event, _ in heard] == ["session:resume"]
    assert set(heard[0][1]) == {"session_id", "parent_id", "config", "metadata", "timestamp"}


async def test_a_raw_plan_is_announced_once_with_its_secrets_blanked(started: Started, listen: Listen) -> None:
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


async def test_secrets_in_any_kind_of_mapping_are_blanked(started: Started, listen: Listen) -> None:
    keys = (MappingProxyType({"api_key": "sk-123"}),)
    session = await started(plan=MappingProxyType(plan_of(raw=True) | {"agents": keys}))
    heard = listen(session.coordinator, "session:config")

    await session.execute("hello")

    assert heard[0][1]["raw"]["agents"] == [{"api_key": "[REDACTED]"}]


async def test_the_kernel_passes_exactly_the_documented_keys_to_session_config(started: Started) -> None:
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


async def test_the_fork_event_names_the_parent_and_carries_metadata_and_raw_plan_only_if_there(
    loader_for: LoaderFor, listen: Listen
) -> None:
    payloads = []
    for more in ({}, {"metadata": {"a": 1}, "raw": True}):
        session = AmplifierSession(plan_of(**more), loader=loader_for(), session_id="child", parent_id="parent")
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
async def test_a_session_without_a_parent_does_not_fork(
    loader_for: LoaderFor, listen: Listen, parent_id: str | None
) -> None:
    session = AmplifierSession(plan_of(), loader=loader_for(), parent_id=parent_id)
    heard = listen(session.coordinator, "session:fork")

    await session.initialize()

    assert heard == []


async def test_the_orchestrator_gets_the_live_objects_by_keyword(started: Started) -> None:
    session = await started()
    get = session.coordinator.get

    await session.execute("hello")

    call = get("orchestrator").calls[0]
    assert call["prompt"] == "hello"
    assert call["context"] is get("context")
    assert call["providers"] is get("providers")
    assert call["tools"] is get("tools")
    assert call["hooks"] is session.coordinator.hooks


@pytest.mark.parametrize("kind", [NamedCoordinator, Keywords])
async def test_an_orchestrator_that_takes_a_coordinator_gets_it(started: Started, kind: type[Any]) -> None:
    orchestrator = kind()
    session = await started(orchestrator=orchestrator)

    await session.execute("hello")

    assert orchestrator.calls[0]["coordinator"] is session.coordinator


async def test_an_orchestrator_with_five_parameters_is_not_asked_to_take_more(started: Started) -> None:
    session = await started("fine")

    assert await session.execute("hello") == "fine"


async def test_another_orchestrator_mounted_between_turns_is_called_as_it_wants(started: Started) -> None:
    session = await started()
    later = NamedCoordinator()

    await session.execute("one")
    await session.coordinator.mount("orchestrator", later)
    await session.execute("two")

    assert later.calls == [{"coordinator": session.coordinator}]


async def test_a_signature_is_read_once_for_each_orchestrator(started: Started) -> None:
    reads: list[str] = []

    class Counting(Keywords):
        @property
        def execute(self) -> Any:
            reads.append("execute")
            return super().execute

    session = await started(orchestrator=Counting())

    for prompt in ("one", "two", "three"):
        await session.execute(prompt)

    assert len(reads) == 4  # three calls and one look at the signature


@pytest.mark.parametrize("value", ["text", "", None, {"any": "object"}, 7])
async def test_the_orchestrators_value_is_returned_unchanged(started: Started, value: Any) -> None:
    session = await started(value)

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
    started: Started, listen: Listen, point: str, name: str | None, message: str
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


async def test_missing_parts_are_reported_orchestrator_first(started: Started) -> None:
    session = await started()
    session.coordinator.mount_points.update(orchestrator=None, context=None, providers={})

    with pytest.raises(RuntimeError, match="No orchestrator module mounted"):
        await session.execute("hello")


async def test_an_empty_container_is_a_context_all_the_same(started: Started, loader_for: LoaderFor) -> None:
    class EmptyContext(list[Any]):
        pass

    session = await started(loader=loader_for(context=EmptyContext()))

    assert await session.execute("hello") == "done"


async def test_a_session_without_tools_gives_the_orchestrator_an_empty_dict(started: Started) -> None:
    session = await started()
    session.coordinator.mount_points["tools"] = None

    await session.execute("hello")

    assert session.coordinator.get("orchestrator").calls[0]["tools"] == {}


@pytest.mark.parametrize("kind", LLM_ERRORS)
async def test_errors_of_a_model_call_come_out_as_the_same_object(started: Started, kind: type[LLMError]) -> None:
    error = kind("the model said no", provider="p")
    session = await started(error)

    with pytest.raises(LLMError) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.status == "failed"
    assert session.status.last_error == {"message": "the model said no"}


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyboardInterrupt("stop"), SystemExit(3), asyncio.CancelledError("gone")], ids=repr
)
async def test_every_exception_is_recorded_logged_and_raised_as_it_is(
    started: Started, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    session = await started(error)

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


async def test_an_error_whose_text_cannot_be_decoded_is_recorded_by_its_representation(started: Started) -> None:
    class Undecodable(Exception):
        def __str__(self) -> str:
            return b"\xff".decode()

    error = Undecodable("x")
    session = await started(error)

    with pytest.raises(Undecodable) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.last_error == {"message": repr(error)}


async def test_an_error_that_cannot_be_printed_at_all_still_comes_through(started: Started) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

        __repr__ = __str__

    error = Unprintable()
    session = await started(error)

    with pytest.raises(Unprintable) as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.last_error == {"message": "Unprintable"}


async def test_a_turn_after_a_failed_one_runs_and_completes(started: Started) -> None:
    session = await started(ValueError("odd"))
    with pytest.raises(ValueError, match="odd"):
        await session.execute("one")

    session.coordinator.get("orchestrator").outcome = "fine"

    assert await session.execute("two") == "fine"
    assert session.status.status == "completed"


async def test_the_status_is_running_while_a_turn_runs(started: Started) -> None:
    seen: list[str] = []
    session = await started()
    await session.execute("one")

    async def look() -> str:
        seen.append(session.status.status)
        return "looked"

    session.coordinator.get("orchestrator").outcome = look
    await session.execute("two")

    assert seen == ["running"]


async def test_the_kernel_leaves_counters_and_times_of_the_status_alone(started: Started) -> None:
    session = await started()
    before = session.status.model_dump(exclude={"status"})

    await session.execute("hello")
    await session.cleanup()

    assert session.status.model_dump(exclude={"status"}) == before
