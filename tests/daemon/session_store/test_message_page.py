"""A page of a transcript that is read from its end is the page of the whole transcript."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifierd.store.json_lines import encoded_lines
from amplifierd.store.protocol import Place

SIZES = st.lists(st.sampled_from([1, 300, 70_000, 200_000]), max_size=8)
IDS = st.none() | st.integers(0, 9).map(str)


@example(sizes=[1, 1, 1], limit=6, before="0", after="1")
@example(sizes=[1, 1, 1], limit=6, before="1", after="1")
@example(sizes=[1, 1, 1], limit=1, before="9", after="0")
@given(sizes=SIZES, limit=st.integers(1, 6), before=IDS, after=IDS)
def test_reading_from_the_end_finds_the_same_page(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, before: str | None, after: str | None
) -> None:
    messages = [{"id": str(number), "content": "x" * size} for number, size in enumerate(sizes)]
    path: Path = tmp_path_factory.getbasetemp() / "transcript.jsonl"
    path.write_bytes(encoded_lines(messages) + b'{"id": "torn')
    place = Place(limit, before, after)

    assert place.read(path) == place.page(messages)


def test_the_end_of_a_long_transcript_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"not read, so nobody is warned\n" * 10_000 + encoded_lines([{"id": "a"}, {"id": "b"}]) * 5_000)

    page = Place(80).read(path)

    assert (len(page.messages), page.total, page.has_more) == (80, 20_000, True)


def test_there_is_no_page_without_a_transcript(tmp_path: Path) -> None:
    assert Place(80).read(tmp_path / "transcript.jsonl").total == 0
