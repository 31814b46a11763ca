"""The request id that ties the events of one model call together."""

import asyncio
import contextvars
import uuid
from collections.abc import Iterator

import pytest

from amplifier_core import correlation
from amplifier_core.correlation import current_request_id, new_request_id, reset_request_id, resolve_request_id


@pytest.fixture(autouse=True)
def no_call_in_flight() -> Iterator[None]:
    reset_request_id()
    yield
    reset_request_id()


terminal = pytest.mark.parametrize("event", ["llm:response", "provider:error"])
interim = pytest.mark.parametrize("event", ["provider:retry", "provider:throttle"])
not_an_id = pytest.mark.parametrize("explicit", [None, "", 7, b"id", ["id"]])


def test_the_events_and_the_field_are_fixed() -> None:
    fixed = {name: value for name, value in vars(correlation).items() if name.isupper() and name[0] != "_"}

    assert fixed == {
        "REQUEST_ID_FIELD": "request_id",
        "REQUEST_EVENTS": frozenset({"llm:request"}),
        "TERMINAL_EVENTS": frozenset({"llm:response", "provider:error"}),
        "INTERIM_EVENTS": frozenset({"provider:retry", "provider:throttle"}),
    }


def test_a_new_id_is_a_random_uuid() -> None:
    assert uuid.UUID(new_request_id()).version == 4
    assert new_request_id() != new_request_id()


def test_no_call_is_in_flight_at_first() -> None:
    assert current_request_id() is None


@not_an_id
def test_a_request_opens_a_call_with_a_new_id(explicit: object) -> None:
    request_id = resolve_request_id("llm:request", explicit)

    assert request_id is not None
    assert uuid.UUID(request_id).version == 4
    assert current_request_id() == request_id


def test_a_request_takes_over_the_id_it_is_given() -> None:
    assert resolve_request_id("llm:request", "mine") == "mine"
    assert current_request_id() == "mine"


def test_a_second_request_opens_another_call() -> None:
    first = resolve_request_id("llm:request")
    second = resolve_request_id("llm:request")

    assert first != second
    assert current_request_id() == second


@terminal
@not_an_id
def test_a_terminal_event_closes_the_call_in_flight(event: str, explicit: object) -> None:
    resolve_request_id("llm:request", "mine")

    assert resolve_request_id(event, explicit) == "mine"
    assert current_request_id() is None
    assert resolve_request_id(event, explicit) is None


@terminal
def test_a_terminal_event_with_an_id_of_its_own_closes_the_call_too(event: str) -> None:
    resolve_request_id("llm:request", "mine")

    assert resolve_request_id(event, "other") == "other"
    assert current_request_id() is None


@interim
@not_an_id
def test_an_interim_event_belongs_to_the_call_in_flight(event: str, explicit: object) -> None:
    resolve_request_id("llm:request", "mine")

    assert resolve_request_id(event, explicit) == "mine"
    assert current_request_id() == "mine"


@interim
def test_an_interim_event_alone_has_no_id(event: str) -> None:
    assert resolve_request_id(event) is None
    assert current_request_id() is None


@interim
def test_an_interim_event_with_an_id_of_its_own_keeps_the_call_open_under_it(event: str) -> None:
    resolve_request_id("llm:request", "mine")

    assert resolve_request_id(event, "other") == "other"
    assert current_request_id() == "other"
    assert resolve_request_id("llm:response") == "other"


@pytest.mark.parametrize("event", ["tool:pre", "llm:request:raw", "", "LLM:REQUEST"])
def test_other_events_take_no_part(event: str) -> None:
    resolve_request_id("llm:request", "mine")

    assert resolve_request_id(event, "other") is None
    assert current_request_id() == "mine"


def test_resetting_forgets_the_call() -> None:
    resolve_request_id("llm:request", "mine")

    reset_request_id()

    assert current_request_id() is None
    assert resolve_request_id("llm:response") is None


async def test_calls_in_separate_tasks_have_separate_ids() -> None:
    everyone_asked = asyncio.Barrier(3)

    async def call() -> tuple[str | None, str | None]:
        opened = resolve_request_id("llm:request")
        await everyone_asked.wait()
        return opened, resolve_request_id("llm:response")

    pairs = await asyncio.gather(call(), call(), call())

    assert all(opened == closed for opened, closed in pairs)
    assert len({opened for opened, _ in pairs}) == 3
    assert current_request_id() is None


def test_a_copied_context_does_not_change_the_original() -> None:
    resolve_request_id("llm:request", "mine")

    contextvars.copy_context().run(resolve_request_id, "llm:response")

    assert current_request_id() == "mine"
