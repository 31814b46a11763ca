"""Messages of a session reach the application in the order in which they were shown."""

import asyncio
from collections.abc import Generator
from typing import Any

from amplifier_core.display import DisplaySystem
from amplifierd.sessions.events.displays import CallbackDisplay, CollectedMessages, DisplayMessage, EventDisplay


def test_messages_are_collected_or_handed_over_and_a_broken_callback_ends_nothing() -> None:
    collected, seen = CollectedMessages(), list[DisplayMessage]()

    def show(message: DisplayMessage) -> None:
        seen.append(message)
        raise RuntimeError("the terminal is gone")

    for display in (collected, CallbackDisplay(show)):
        assert isinstance(display, DisplaySystem)
        display.show_message("low on tokens", "warning", "budget")

    assert collected.messages == seen == [DisplayMessage("low on tokens", "warning", "budget")]


def test_messages_are_emitted_with_the_depth_of_their_session() -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    EventDisplay(lambda event, data: events.append((event, data))).nested().show_message("hello", "info")
    assert events == [("display:message", {"message": "hello", "level": "info", "source": "hook", "nesting_depth": 1})]


async def test_messages_keep_their_order_when_emitting_takes_time() -> None:
    told: list[str] = []
    released = asyncio.Event()

    async def emit(event: str, data: dict[str, Any]) -> None:
        await released.wait()
        if data["message"] == "2":
            raise RuntimeError("the listener is gone")
        told.append(data["message"])

    display = EventDisplay(emit)
    for message in "1234":
        display.show_message(message, "info")
    released.set()
    await display.drained()
    assert told == ["1", "3", "4"]


class Delivery:
    """An awaitable that is neither a coroutine nor a future, as libraries have them."""

    def __init__(self, told: list[str], message: str) -> None:
        self.told, self.message = told, message

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.sleep(0).__await__()
        self.told.append(self.message)


async def test_whatever_can_be_awaited_is_awaited() -> None:
    told: list[str] = []
    display = EventDisplay(lambda event, data: Delivery(told, data["message"]))

    for message in "12":
        display.show_message(message, "info")
    await display.drained()

    assert told == ["1", "2"]
