"""The shorter forms of messages."""

from typing import Any

import pytest

from amplifier_kit.contexts.shortening import clip_result, is_long_user_message, stub_user_message, truncate_result

IMAGE = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}


def result(content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "a", "content": content, "metadata": {"timestamp": "now"}}


def test_a_truncated_result_says_how_much_there_was_and_keeps_the_beginning() -> None:
    truncated = truncate_result(result("abcd" * 1000), 8)

    assert truncated["content"] == "[truncated: ~1000 tokens - call tool again if needed] abcdabcd..."
    assert (truncated["tool_call_id"], truncated["metadata"]) == ("a", {"timestamp": "now"})


@pytest.mark.parametrize("text", ["short", "[truncated: ~9 tokens - call tool again if needed] " + "x" * 500])
def test_a_short_or_truncated_result_is_not_truncated(text: str) -> None:
    assert truncate_result(result(text), 250)["content"] == text


def test_of_blocks_only_the_texts_are_truncated() -> None:
    blocks = [{"type": "text", "text": "x" * 400}, IMAGE, {"type": "text", "text": "short"}]

    text, image, short = truncate_result(result(blocks), 10)["content"]

    assert text["text"].endswith("xxxxxxxxxx...")
    assert (image, short) == (IMAGE, blocks[2])


@pytest.mark.parametrize("key", ["content", "output"])
def test_in_a_user_message_only_the_result_blocks_are_truncated(key: str) -> None:
    question = {"type": "text", "text": "y" * 400}
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", key: "x" * 400}, question]}

    block, text = truncate_result(message, 10)["content"]

    assert block[key].startswith("[truncated: ~100 tokens")
    assert text == question


def test_a_result_that_is_data_is_truncated_as_json() -> None:
    assert truncate_result(result({"rows": ["x" * 400]}), 6)["content"].endswith('{"rows...')


def test_data_that_is_short_stays_data() -> None:
    assert truncate_result(result({"rows": []}), 250)["content"] == {"rows": []}


def test_the_given_message_is_left_alone() -> None:
    blocks = [{"type": "text", "text": "x" * 4000}]
    message = result(blocks)

    truncate_result(message, 10)
    clip_result(message, 1024)

    assert message == result([{"type": "text", "text": "x" * 4000}])


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 3000, "🙂" * 2000, "a" + "é" * 3000], ids=["1", "2", "4", "odd"])
def test_a_clipped_result_has_whole_characters_and_at_most_so_many_bytes(text: str) -> None:
    clipped = clip_result(result(text), 1024)

    assert clipped is not None
    content = clipped.message["content"]
    beginning, marker = content.split("\n[clipped")
    assert text.startswith(beginning)
    assert len(beginning.encode()) > 800
    assert len(content.encode()) == clipped.clipped_bytes <= 1024
    assert str(len(text.encode())) in marker
    assert (clipped.original_bytes, clipped.content_kind) == (len(text.encode()), "text")


@pytest.mark.parametrize("text", ["", "x" * 1024, "é" * 512])
def test_a_result_that_fits_is_not_clipped(text: str) -> None:
    assert clip_result(result(text), 1024) is None


def test_the_texts_of_blocks_share_the_bytes() -> None:
    blocks = [{"type": "text", "text": letter * 600} for letter in "abc"]

    clipped = clip_result(result([blocks[0], IMAGE, blocks[1], blocks[2]]), 1024)

    assert clipped is not None
    first, image, second = clipped.message["content"]
    assert (first, image) == (blocks[0], IMAGE)
    assert second["text"].startswith("bbbb")
    assert clipped.content_kind == "blocks"
    assert clipped.clipped_bytes <= 1024


def test_a_result_without_content_is_not_clipped() -> None:
    assert clip_result(result(None), 1024) is None


def test_lone_surrogates_are_no_reason_to_fail() -> None:
    assert clip_result(result("\ud800" * 5000), 1024) is not None


def test_a_stub_keeps_the_beginning_on_one_line() -> None:
    message = {"role": "user", "content": "first\nsecond " + "x" * 100, "metadata": {"timestamp": "now"}}

    stub = stub_user_message(message)

    assert stub["content"] == f'[User message compacted - original: "first second {"x" * 37}..."]'
    assert stub["metadata"] == {"timestamp": "now"}


@pytest.mark.parametrize(
    ("content", "is_long"),
    [
        ("x" * 80, False),
        ("x" * 81, True),
        ([{"type": "text", "text": "x" * 80}], False),
        ([{"type": "text", "text": "x" * 81}], True),
        ([{"type": "text", "text": "look"}, IMAGE], True),
        (None, False),
    ],
)
def test_what_is_worth_a_stub(content: Any, is_long: bool) -> None:
    assert is_long_user_message({"role": "user", "content": content}) is is_long
