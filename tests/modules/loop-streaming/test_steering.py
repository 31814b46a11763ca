"""The steering queue: first in, first out, bounded, from any thread."""

import threading

import pytest
from amplifier_module_loop_streaming.steering import DEFAULT_MAXSIZE, SteeringQueue, SteeringQueueFull


def test_messages_come_out_in_the_order_in_which_they_came() -> None:
    queue = SteeringQueue()
    for text in ("one", "two", "three"):
        queue.steer(text)

    assert (queue.is_empty, queue.drain(), queue.is_empty, queue.drain()) == (False, ["one", "two", "three"], True, [])


def test_clearing_says_how_many_were_discarded() -> None:
    queue = SteeringQueue()
    queue.steer("one")
    queue.steer("two")

    assert (queue.clear(), queue.clear()) == (2, 0)


def test_a_hundred_fit_by_default_and_the_next_is_not_queued() -> None:
    queue = SteeringQueue()
    for number in range(DEFAULT_MAXSIZE):
        queue.steer(str(number))

    with pytest.raises(SteeringQueueFull):
        queue.steer("one too many")

    assert queue.drain() == [str(number) for number in range(100)]


def test_nothing_is_lost_or_doubled_between_threads() -> None:
    queue, taken = SteeringQueue(maxsize=10_000), list[str]()

    def write(name: str) -> None:
        for number in range(500):
            queue.steer(f"{name} {number}")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        taken += queue.drain()
    taken += queue.drain()

    assert sorted(taken) == sorted(f"{name} {number}" for name in "abcd" for number in range(500))
    assert [text for text in taken if text.startswith("a")] == [f"a {number}" for number in range(500)]
