"""What is logged of a request's messages."""

from typing import Any


class Message(dict[str, Any]):
    """A message that counts how often it is read."""

    reads = 0

    def items(self) -> Any:
        self.reads += 1
        return super().items()


def conversation(count: int) -> list[dict[str, Any]]:
    return [Message(role="user", content=f"message {number}") for number in range(count)]


async def test_messages_become_their_number_and_a_hash(logs: Any) -> None:
    await logs.mount()

    await logs.emit("provider:request", messages=conversation(3))

    messages = logs.records()[0]["data"]["messages"]
    assert messages["count"] == 3
    assert len(messages["hash"]) == 64


async def test_the_same_messages_have_the_same_hash_and_others_another(logs: Any, other_logs: Any) -> None:
    await logs.mount()
    await other_logs.mount()
    four = conversation(4)
    shuffled_keys = [dict(reversed(message.items())) for message in four]
    requests = [four[:3], four, four[1:], [*four[:2], *conversation(1)], four, shuffled_keys]

    for messages in requests:
        await logs.emit("provider:request", messages=messages)
    await other_logs.emit("provider:request", messages=conversation(4))

    hashes = [record["data"]["messages"]["hash"] for record in logs.records()]
    assert len(set(hashes)) == 4
    assert hashes[1] == hashes[4] == hashes[5] == other_logs.records()[0]["data"]["messages"]["hash"]


async def test_each_message_is_read_once_however_many_requests_carry_it(logs: Any) -> None:
    await logs.mount()
    history: list[dict[str, Any]] = []

    for message in conversation(200):
        history.append(message)
        await logs.emit("provider:request", messages=list(history))
    await logs.emit("provider:request", messages=history[100:])  # a shorter view of the same conversation

    assert {message.reads for message in history} == {1}  # type: ignore[attr-defined]
    assert [record["data"]["messages"]["count"] for record in logs.records()] == [*range(1, 201), 100]


async def test_at_level_debug_messages_are_written_in_full(logs: Any) -> None:
    await logs.mount(level="DEBUG")

    await logs.emit("provider:request", messages=conversation(2))

    assert logs.records()[0]["data"]["messages"] == conversation(2)


async def test_messages_of_other_events_are_written_in_full(logs: Any) -> None:
    await logs.mount()

    await logs.emit("context:pre_compact", messages=conversation(2))

    assert logs.records()[0]["data"]["messages"] == conversation(2)


async def test_messages_that_are_no_list_are_written_as_they_are(logs: Any) -> None:
    await logs.mount()

    await logs.emit("provider:request", messages="none")

    assert logs.records()[0]["data"]["messages"] == "none"
