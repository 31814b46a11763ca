"""Images that are dragged into a chat: their paths become marks."""

import base64
from pathlib import Path

import pytest

from amplifier_cli.chat.chat_input import Attachments

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "a screen #1.png"
    file.write_bytes(PIXEL)
    return file


def test_a_file_is_attached_by_its_path_or_its_url(image: Path) -> None:
    texts = (f"'{image}'", image.as_uri(), image.as_uri().replace("file://", "file://localhost"))

    assert [Attachments().paste(text) for text in texts] == ["[image 1: a screen #1.png]"] * 3


def test_a_file_of_another_machine_is_just_a_text(image: Path) -> None:
    elsewhere = image.as_uri().replace("file://", "file://elsewhere")

    assert Attachments().paste(elsewhere) == elsewhere
