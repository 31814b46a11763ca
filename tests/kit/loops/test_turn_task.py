"""The task of a turn: cancellations wait where they must, and what is said is read at the reader's pace."""

import asyncio
from typing import Any

import pytest

from amplifier_kit.loops.turn_task import TurnTask


class Steps:
    """Work in named steps, of which the middle one may be protected."""

    def __init__(self, turn_task: TurnTask) -> None:
        self.turn_task = turn_task
        self.done: list[str] = []
        self.is_inside = asyncio.Event()

    async def run(self) -> str:
        with self.turn_task:
            self.is_inside.set()
            await self._pause("first write")
            await self._pause("second write")
        await self._pause("after the writes")
        return "result"

    async def _pause(self, name: str) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.done.append(name)


async def test_the_result_of_the_work_is_returned() -> None:
    turn_task = TurnTask()

    assert await turn_task.run(Steps(turn_task).run()) == "result"


async def test_its_error_is_raised() -> None:
    async def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await TurnTask().run(fail())


@pytest.mark.parametrize("times", [1, 2, 50])
async def test_protected_work_is_finished_however_often_it_is_cancelled(times: int) -> None:
    turn_task = TurnTask()
    steps = Steps(turn_task)
    task = asyncio.create_task(turn_task.run(steps.run()))
    await steps.is_inside.wait()

    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])

    assert task.cancelled()
    assert steps.done[:2] == ["first write", "second write"]
    assert "after the writes" not in steps.done


async def test_unprotected_work_is_cancelled_at_once_and_waited_for() -> None:
    turn_task, started, ended = TurnTask(), asyncio.Event(), list[str]()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    task = asyncio.create_task(turn_task.run(work()))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert ended == ["cleaned up"]


async def test_a_time_limit_inside_of_protected_work_still_counts() -> None:
    turn_task = TurnTask()

    async def work() -> str:
        with turn_task:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "limited"
        return "not limited"

    assert await turn_task.run(work()) == "limited"


async def test_a_cancellation_that_waits_replaces_an_error_of_protected_work() -> None:
    turn_task, inside = TurnTask(), asyncio.Event()

    async def work() -> None:
        with turn_task:
            inside.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            raise OSError("no disk")

    task = asyncio.create_task(turn_task.run(work()))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


class TestInterruptible:
    async def test_a_cancellation_is_let_through_and_held_back_again_afterwards(self) -> None:
        turn_task, inside, done = TurnTask(), asyncio.Event(), list[str]()

        async def work() -> None:
            with turn_task:
                try:
                    with turn_task.interruptible:
                        inside.set()
                        await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    done.append("written all the same")
                    raise

        task = asyncio.create_task(turn_task.run(work()))
        await inside.wait()
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert done == ["written all the same"]

    async def test_one_that_waits_already_is_raised_at_its_beginning(self) -> None:
        turn_task, inside, done = TurnTask(), asyncio.Event(), list[str]()

        async def work() -> None:
            with turn_task:
                inside.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                with turn_task.interruptible:
                    done.append("began")

        task = asyncio.create_task(turn_task.run(work()))
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert done == []

    async def test_one_that_somebody_swallowed_is_raised_at_its_end(self) -> None:
        turn_task, inside, done = TurnTask(), asyncio.Event(), list[str]()

        async def work() -> None:
            with turn_task.interruptible:
                inside.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    done.append("swallowed")
            done.append("went on")

        task = asyncio.create_task(turn_task.run(work()))
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert done == ["swallowed"]


class TestStream:
    async def test_what_is_said_is_yielded_in_order(self) -> None:
        turn_task = TurnTask()

        async def work() -> None:
            for text in ("one", "two"):
                await turn_task.say(text)

        assert [text async for text in turn_task.stream(work())] == ["one", "two"]

    async def test_the_work_goes_on_when_the_reader_asks_for_more(self) -> None:
        turn_task, said = TurnTask(), list[str]()

        async def work() -> None:
            for text in ("one", "two", "three"):
                said.append(text)
                await turn_task.say(text)

        async for text in turn_task.stream(work()):
            assert said[-1] == text
            await asyncio.sleep(0)

    async def test_without_a_reader_saying_something_waits_for_nobody(self) -> None:
        turn_task = TurnTask()

        async def work() -> bool:
            await turn_task.say("one")
            return turn_task.is_read

        assert await turn_task.run(work()) is False

    async def test_an_error_comes_after_what_was_said_before_it(self) -> None:
        turn_task, heard = TurnTask(), list[str]()

        async def work() -> None:
            await turn_task.say("one")
            raise OSError("no disk")

        async def read() -> None:
            async for text in turn_task.stream(work()):
                heard.append(text)

        with pytest.raises(OSError, match="no disk"):
            await read()

        assert heard == ["one"]

    async def test_a_reader_that_leaves_waits_for_what_must_be_finished(self) -> None:
        turn_task, done = TurnTask(), list[str]()

        async def work() -> None:
            try:
                await turn_task.say("one")
                await turn_task.say("two")
            except asyncio.CancelledError:
                with turn_task:
                    await asyncio.sleep(0)
                    done.append("written")
                raise

        stream = turn_task.stream(work())
        assert await anext(stream) == "one"
        await stream.aclose()

        assert done == ["written"]


def test_a_caller_that_is_closed_with_its_loop_leaves_no_running_work() -> None:
    turn_task, ended = TurnTask(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        waiting: Any = turn_task.run(work())
        waiting.send(None)
        await asyncio.sleep(0)
        waiting.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())

    assert ended == ["cancelled"]
