"""Rendering in a process of its own: it starts when it is needed, and comes back when it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_rendering.plain import plain
from amplifierd.server.events.renderer import Renderer


@pytest.fixture
def children() -> set[int]:
    return processes()


def processes() -> set[int]:
    """Return the processes that this one started."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


async def test_it_renders_and_leaves_no_process(children: set[int]) -> None:
    renderer = Renderer()

    assert await renderer.render("*a*") == '<p dir="auto"><em>a</em></p>\n'
    assert len(processes() - children) == 1
    await renderer.close()

    assert processes() <= children


async def test_what_is_not_needed_is_not_started(children: set[int]) -> None:
    renderer = Renderer()

    assert await renderer.render(" \n") == ""
    assert (await renderer.render("a" * (2 << 20))).startswith('<pre class="md-plain">aaa')

    assert processes() <= children


async def test_a_process_that_is_killed_is_replaced(children: set[int]) -> None:
    renderer = Renderer()
    await renderer.render("*a*")
    (pid,) = processes() - children

    os.kill(pid, signal.SIGKILL)
    shown = [await renderer.render(f"*b* {number}") for number in range(3)]
    await renderer.close()

    assert shown[-1] == '<p dir="auto"><em>b</em> 2</p>\n'


async def test_a_lexer_that_is_stuck_in_one_token_is_given_up(children: set[int]) -> None:
    stuck = "```matlab\n" + "\n" * 16_000 + "x\n```"  # looks for the end of the empty lines from each of them
    renderer = Renderer()
    await renderer.render("warm")
    (pid,) = processes() - children

    shown = await renderer.render(stuck)

    assert shown == plain(stuck)
    assert await renderer.render("*a*") == '<p dir="auto"><em>a</em></p>\n'
    assert processes() - children == {pid}
    await renderer.close()


async def test_who_stops_waiting_mixes_up_no_answers() -> None:
    renderer = Renderer()
    await renderer.render("warm")

    for number in range(5):
        waiting = asyncio.create_task(renderer.render(f"{'*a **a ' * 2000} {number}"))
        await asyncio.sleep(0.001 * number)
        waiting.cancel()
        assert await renderer.render(f"text {number}") == f'<p dir="auto">text {number}</p>\n'
    await renderer.close()


async def test_many_at_once_get_their_own() -> None:
    renderer = Renderer()

    shown = await asyncio.gather(*(renderer.render(f"text {number}") for number in range(50)))
    await renderer.close()

    assert shown == [f'<p dir="auto">text {number}</p>\n' for number in range(50)]
