"""What an agent is asked: words of the command line, text from a pipe, files and images."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .failures import UsageError

_LARGEST_TEXT = 1024 * 1024
_LARGEST_IMAGE = 20 * 1024 * 1024
_IMAGES: dict[str, Callable[[bytes], bool]] = {  # what models take, and how each begins
    "image/png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda data: data.startswith(b"\xff\xd8\xff"),
    "image/gif": lambda data: data.startswith((b"GIF87a", b"GIF89a")),
    "image/webp": lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP",
}


@dataclass(frozen=True)
class Prompt:
    """A text with the images that belong to it, as content blocks."""

    text: str
    images: tuple[dict[str, Any], ...] = ()


def read_prompt(words: Sequence[str], files: Iterable[Path] = ()) -> Prompt:
    """Return the prompt that words, stdin and files make together; a pipe's text follows the words.

    Raises:
        UsageError: there is none, or a file cannot be used.
    """
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()
    said = " ".join(word for word in words if word != "-").strip()
    texts, images = [said, piped], []
    for file in files:
        if image_type(file):
            images.append(read_image(file))
        else:
            texts.append(f'<file path="{file}">\n{_text_of(file)}\n</file>')
    text = "\n\n".join(filter(None, texts))
    if not text:
        raise UsageError("there is no prompt", hint='say what to do: amplifier run "List the files here"')
    return Prompt(text, tuple(images))


def image_type(file: Path) -> str | None:
    """Return the kind of image that a file is by its name, None when models take none of that kind."""
    import mimetypes  # loaded when a prompt has files

    kind = mimetypes.guess_type(file.name)[0]
    return kind if kind in _IMAGES else None


def read_image(file: Path) -> dict[str, Any]:
    """Return an image file as a content block.

    Raises:
        UsageError: it cannot be read, or is not what its name says.
    """
    data, media_type = _bytes_of(file, _LARGEST_IMAGE), str(image_type(file))
    if not _IMAGES[media_type](data):
        raise UsageError(
            f"{file} is not {media_type}, though its name says so",
            hint="rename it to match its format, or convert it",
        )
    return image_block(data, media_type)


def image_block(data: bytes, media_type: str) -> dict[str, Any]:
    """Return an image as a content block."""
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def _text_of(file: Path) -> str:
    try:
        return _bytes_of(file, _LARGEST_TEXT).decode("utf-8").strip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is neither text nor an image", hint="convert it to text, or to PNG, JPEG, GIF or WebP"
        ) from error


def _bytes_of(file: Path, largest: int) -> bytes:
    try:
        if file.stat().st_size > largest:
            raise UsageError(
                f"{file} is larger than {largest // 1024 // 1024} MiB", hint="give the agent its path instead"
            )
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="name a file that exists") from error
