"""Text that arrives in pieces: a secret is masked wherever the pieces are cut, and nothing else is lost."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_hooks_redaction import mask_text, mount

from amplifier_core.events import CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END
from amplifier_core.testing import MockCoordinator

KEY = "sk-abcdefghijklmnop0123456789"
WORDS = "the quick brown fox jumps over the lazy dog and keeps on running through the fields "
DELTA, END, ABORTED = "llm:stream_block_delta", "llm:stream_block_end", "llm:stream_aborted"

Stream = Callable[..., Any]


@pytest.fixture
def stream(coordinator: MockCoordinator) -> Stream:
    """Stream pieces of one block through hooks-redaction and return what later handlers saw of it."""

    async def run(pieces: list[str], *, delta: str = DELTA, end: str = END, key: str = "text") -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []

        async def watch(event: str, data: dict[str, Any]) -> None:
            seen.append(data)

        await mount(coordinator, {})
        for event in (delta, end):
            coordinator.hooks.register(event, watch, priority=1000)
        for event in {DELTA, END, ABORTED} & {delta, end}:
            await _mask_also(coordinator, event)
        place = {"request_id": "r1", "block_index": 0, "block_type": "text"}
        for number, piece in enumerate(pieces):
            await coordinator.hooks.emit(delta, {**place, "sequence": number, key: piece})
        await coordinator.hooks.emit(end, dict(place))
        return seen

    return run


async def _mask_also(coordinator: MockCoordinator, event: str) -> None:
    from amplifier_module_hooks_redaction import on_session_ready

    coordinator.register_contributor("observability.events", event, lambda: [event])
    await on_session_ready(coordinator)


def shown(seen: list[dict[str, Any]], key: str = "text") -> str:
    return "".join(data.get(key, "") for data in seen)


async def test_a_key_split_between_two_pieces_is_masked(stream: Stream) -> None:
    seen = await stream([f"use {KEY[:12]}", f"{KEY[12:]} today"])

    assert shown(seen) == "use [REDACTED:SECRET] today"


async def test_a_key_that_arrives_letter_by_letter_is_masked(stream: Stream) -> None:
    text = f"{WORDS * 4}{KEY} {WORDS * 4}"

    seen = await stream(list(text))

    assert shown(seen) == mask_text(text)


async def test_text_is_shown_while_it_arrives_except_for_its_end(stream: Stream) -> None:
    pieces = [WORDS] * 20

    seen = await stream(pieces)

    before_the_end = shown(seen[: len(pieces)])
    assert (WORDS * 20).startswith(before_the_end)
    assert len(WORDS) * 20 - len(before_the_end) < 256 + len(WORDS)
    assert shown(seen) == WORDS * 20


async def test_the_end_of_a_block_brings_the_rest_as_one_more_piece(stream: Stream) -> None:
    seen = await stream(["all of it"])

    assert [data.get("text") for data in seen] == ["", "all of it", None]
    assert [data.get("sequence") for data in seen] == [0, 1, None]


async def test_a_key_block_is_never_shown_in_part(stream: Stream) -> None:
    block = "-----BEGIN PRIVATE KEY-----\n" + "MIIEabcdefgh0123 \n" * 200 + "-----END PRIVATE KEY-----"

    seen = await stream([f"{WORDS}{block}"[at : at + 50] for at in range(0, len(WORDS) + len(block), 50)])

    assert shown(seen) == f"{WORDS}[REDACTED:SECRET]"


async def test_an_aborted_stream_shows_the_rest_too(stream: Stream) -> None:
    seen = await stream([f"use {KEY}"], end=ABORTED)

    assert shown(seen) == "use [REDACTED:SECRET]"


async def test_pieces_that_a_loop_streams_are_guarded_alike(stream: Stream) -> None:
    seen = await stream([KEY[:9], KEY[9:]], delta=CONTENT_BLOCK_DELTA, end=CONTENT_BLOCK_END, key="delta")

    assert shown(seen, "delta") == "[REDACTED:SECRET]"


async def test_no_secret_is_seen_however_the_text_is_cut(stream: Stream, sensitive_texts: list[str]) -> None:
    chance = random.Random(3)
    text = " ".join(f"{WORDS[: chance.randrange(80)]} {sensitive}" for sensitive in sensitive_texts)
    pieces, at = [], 0
    while at < len(text):
        size = chance.randrange(1, 40)
        pieces.append(text[at : at + size])
        at += size

    seen = await stream(pieces)

    assert shown(seen) == mask_text(text)
