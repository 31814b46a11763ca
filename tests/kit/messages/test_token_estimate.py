"""How many tokens messages are estimated to take."""

import base64
from typing import Any

import pytest

from amplifier_core import ImageBlock
from amplifier_kit.messages.stored_messages import IMAGE_TOKENS, estimate_message, estimate_messages

PICTURE = base64.b64encode(bytes(3_000_000)).decode()


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", **source}}


def test_a_message_takes_a_quarter_of_the_characters_of_its_text_form() -> None:
    message = {"role": "user", "content": "hello", "metadata": {"timestamp": "now"}}

    assert estimate_message(message) == len(str(message)) // 4


def test_twenty_thousand_characters_are_about_five_thousand_tokens() -> None:
    assert estimate_message({"role": "user", "content": "word " * 4000}) == pytest.approx(5000, rel=0.05)


def test_a_list_takes_exactly_the_sum_of_its_messages() -> None:
    messages = [{"role": "user", "content": "x" * number} for number in range(50)]

    assert estimate_messages(messages) == sum(estimate_message(message) for message in messages)


@pytest.mark.parametrize(
    "content",
    [
        [image(data=PICTURE)],
        [{"type": "text", "text": "look"}, image(data=PICTURE)],
        [{"type": "tool_result", "tool_use_id": "a", "content": [image(data=PICTURE)]}],
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}],
        [{"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}],
        [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURE}}],
        [{"type": "image", "source": {"data": bytes(3_000_000)}}],
        [ImageBlock(source={"type": "base64", "media_type": "image/png", "data": PICTURE})],
        ({"deeply": [{"nested": [image(data=PICTURE)]}]},),
    ],
    ids=["image", "beside text", "in a result", "data url", "audio", "document", "bytes", "object", "nested"],
)
def test_a_payload_counts_for_nothing_and_its_block_for_a_flat_sum(content: Any) -> None:
    tokens = estimate_message({"role": "user", "content": content})

    assert IMAGE_TOKENS < tokens < IMAGE_TOKENS + 200


def test_every_image_counts() -> None:
    one, three = ([image(data=PICTURE)] * number for number in (1, 3))

    assert estimate_message({"role": "user", "content": three}, 1000) > 3000
    assert estimate_message({"role": "user", "content": one}, 1000) < 1100


def test_the_text_of_a_document_counts_as_text() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "word " * 4000}}

    assert estimate_message({"role": "user", "content": [document]}) == pytest.approx(5000, rel=0.05)


def test_data_that_is_no_block_counts_as_text() -> None:
    call = {"id": "a", "tool": "write", "arguments": {"data": "x" * 4000}}

    assert estimate_message({"role": "assistant", "content": "", "tool_calls": [call]}) > 1000


def test_what_refers_to_itself_is_estimated() -> None:
    content: list[Any] = ["text"]
    content.append({"type": "image", "again": content})

    assert estimate_message({"role": "user", "content": content}) > 0


def test_what_is_nested_without_end_is_estimated() -> None:
    content: list[Any] = []
    for _ in range(5000):
        content = [content]

    assert estimate_message({"role": "user", "content": content}) > 0


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_what_cannot_be_printed_is_estimated() -> None:
    assert estimate_message({"role": "user", "content": Unprintable()}) > 0


def test_estimating_changes_nothing() -> None:
    block = image(data="AAAA")

    estimate_message({"role": "user", "content": [block]})

    assert block == image(data="AAAA")
