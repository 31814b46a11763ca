"""Asking a turn to stop."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from amplifier_core.cancellation import CancellationState, CancellationToken


@pytest.fixture
def token() -> CancellationToken:
    return CancellationToken()


@pytest.fixture
def signal_calls(token: CancellationToken) -> Iterator[Callable[[], object]]:
    """Have a signal ask for an immediate stop; the fixture's value raises it."""
    previous = signal.signal(signal.SIGUSR1, lambda *_: token.request_immediate())
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)


def flags(token: CancellationToken) -> tuple[str, bool, bool, bool]:
    return token.state, token.is_cancelled, token.is_graceful, token.is_immediate


def test_a_new_token_asks_for_nothing(token: CancellationToken) -> None:
    assert flags(token) == ("none", False, False, False)
    assert (token.running_tools, token.running_tool_names) == (set(), [])


def test_a_graceful_request_counts_once(token: CancellationToken) -> None:
    assert token.request_graceful() is True
    assert token.request_graceful() is False
    assert flags(token) == ("graceful", True, True, False)


def test_an_immediate_request_outranks_a_graceful_one_and_counts_once(token: CancellationToken) -> None:
    token.request_graceful()

    assert token.request_immediate() is True
    assert token.request_immediate() is False
    assert flags(token) == ("immediate", True, False, True)


def test_an_immediate_request_is_never_downgraded(token: CancellationToken) -> None:
    assert token.request_immediate() is True
    assert token.request_graceful() is False
    assert token.state == "immediate"


def test_a_plain_request_is_graceful(token: CancellationToken) -> None:
    token.request_cancellation()

    assert token.state == "graceful"


def test_the_state_is_plain_text(token: CancellationToken) -> None:
    assert type(token.state) is str
    assert {state.name: state.value for state in CancellationState} == {
        "NONE": "none",
        "GRACEFUL": "graceful",
        "IMMEDIATE": "immediate",
    }


def test_tokens_are_hashed_by_identity(token: CancellationToken) -> None:
    assert len({token, token, CancellationToken()}) == 2


def test_running_tools_are_known_until_they_complete(token: CancellationToken) -> None:
    token.register_tool_start("1", "bash")
    token.register_tool_start("2", "bash")
    token.register_tool_start("2", "grep")
    token.register_tool_complete("1")
    token.register_tool_complete("unknown")

    assert (token.running_tools, token.running_tool_names) == ({"2"}, ["grep"])


def test_the_set_of_running_tools_is_a_copy(token: CancellationToken) -> None:
    token.running_tools.add("1")

    assert token.running_tools == set()


async def test_resetting_clears_requests_and_tools_but_keeps_children_and_callbacks(token: CancellationToken) -> None:
    child, calls = CancellationToken(), list[str]()
    token.register_child(child)
    token.on_cancel(lambda: calls.append("called"))
    token.register_tool_start("1", "bash")
    token.request_immediate()

    token.reset()

    assert (token.state, token.running_tools) == ("none", set())
    assert child.state == "immediate"
    child.reset()
    assert token.request_graceful() is True
    assert child.state == "graceful"
    await token.trigger_callbacks()
    assert calls == ["called"]


@pytest.mark.parametrize("state", ["graceful", "immediate"])
def test_requests_reach_all_descendants(token: CancellationToken, state: str) -> None:
    child, grandchild = CancellationToken(), CancellationToken()
    token.register_child(child)
    child.register_child(grandchild)

    getattr(token, f"request_{state}")()

    assert (child.state, grandchild.state) == (state, state)


@pytest.mark.parametrize("state", ["none", "graceful", "immediate"])
def test_a_new_child_receives_the_present_state(token: CancellationToken, state: str) -> None:
    if state != "none":
        getattr(token, f"request_{state}")()
    child = CancellationToken()

    token.register_child(child)

    assert child.state == state


def test_a_parent_is_not_told_by_its_child(token: CancellationToken) -> None:
    child = CancellationToken()
    token.register_child(child)

    child.request_immediate()

    assert token.state == "none"


def test_a_request_that_changes_nothing_is_not_passed_on(token: CancellationToken) -> None:
    child = CancellationToken()
    token.register_child(child)
    token.request_graceful()
    child.reset()

    token.request_graceful()

    assert child.state == "none"


def test_an_unregistered_child_is_left_alone(token: CancellationToken) -> None:
    child = CancellationToken()
    token.register_child(child)

    token.unregister_child(child)
    token.unregister_child(child)
    token.request_immediate()

    assert child.state == "none"


def test_tokens_that_are_each_others_children_all_get_the_request_once(token: CancellationToken) -> None:
    other = CancellationToken()
    token.register_child(other)
    other.register_child(token)
    token.register_child(token)

    assert other.request_graceful() is True
    assert token.request_immediate() is True
    assert (token.state, other.state) == ("immediate", "immediate")


def test_a_signal_handler_may_ask(token: CancellationToken, signal_calls: Callable[[], object]) -> None:
    child = CancellationToken()
    token.register_child(child)

    signal_calls()

    assert (token.state, child.state) == ("immediate", "immediate")


@pytest.mark.parametrize("request_name", ["request_graceful", "request_immediate"])
def test_of_many_threads_that_ask_at_once_one_is_first(token: CancellationToken, request_name: str) -> None:
    start, answers = threading.Barrier(8), list[bool]()

    def ask() -> None:
        start.wait()
        answers.append(getattr(token, request_name)())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [False] * 7 + [True]


async def test_requests_do_not_call_callbacks(token: CancellationToken) -> None:
    calls = list[str]()
    token.on_cancel(lambda: calls.append("called"))

    token.request_graceful()
    token.request_immediate()

    assert calls == []


async def test_callbacks_run_in_order_each_time_whatever_the_state(token: CancellationToken) -> None:
    calls = list[str]()

    async def slow() -> None:
        await asyncio.sleep(0)
        calls.append("async")

    token.on_cancel(lambda: calls.append("sync"))
    token.on_cancel(slow)

    await token.trigger_callbacks()
    await token.trigger_callbacks()

    assert calls == ["sync", "async", "sync", "async"]


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
async def test_a_callback_that_fails_is_logged_and_the_others_run(
    token: CancellationToken, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[str]()

    async def fail() -> None:
        raise error

    token.on_cancel(fail)
    token.on_cancel(lambda: calls.append("next"))

    with caplog.at_level(logging.WARNING, logger="amplifier_core.cancellation"):
        await token.trigger_callbacks()

    assert calls == ["next"]
    assert "fail" in caplog.text


@pytest.mark.parametrize("error_class", [KeyboardInterrupt, SystemExit])
async def test_the_end_of_the_process_is_raised_after_the_last_callback(
    token: CancellationToken, error_class: type[BaseException]
) -> None:
    calls, first = list[str](), error_class("first")

    def end(error: BaseException) -> None:
        raise error

    token.on_cancel(lambda: end(first))
    token.on_cancel(lambda: end(error_class("second")))
    token.on_cancel(lambda: calls.append("last"))

    with pytest.raises(error_class) as raised:
        await token.trigger_callbacks()

    assert raised.value is first
    assert calls == ["last"]


async def test_cancelling_the_task_that_waits_is_not_swallowed(token: CancellationToken) -> None:
    waiting, calls = asyncio.Event(), list[str]()

    async def never_ends() -> None:
        waiting.set()
        await asyncio.Event().wait()

    token.on_cancel(never_ends)
    token.on_cancel(lambda: calls.append("next"))
    task = asyncio.create_task(token.trigger_callbacks())
    await waiting.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == ["next"]
