"""Images that are pasted into a chat: files that are dragged in, and what the clipboard holds."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from amplifier_cli.failures import UsageError
from amplifier_cli.prompt_input import image_block, image_type, read_image
from amplifier_core.local_sources import path_of_source

_CLIPBOARDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_PATIENCE_S = 3
_MOST = 20


class Attachments:
    """Each image stands in the text as `[image 1: screen.png]`; who deletes that from the line does not send it."""

    def __init__(self) -> None:
        self._images: dict[str, dict[str, Any]] = {}
        self._count = 0

    def paste(self, text: str) -> str:
        """Return what a pasted text becomes: marks, if it is nothing but the paths of images, else the text itself."""
        try:
            files = [_path(word) for word in shlex.split(text)]
            if not files or not all(file.is_file() and image_type(file) for file in files):
                return text
            return " ".join(self._kept(read_image(file), file.name) for file in files)
        except (ValueError, OSError, UsageError):  # quotes that do not match, or a name that cannot be one: words
            return text

    def paste_clipboard(self) -> str:
        """Return the mark of the image in the clipboard, empty when there is none or no program that gives it."""
        for program, *arguments in _CLIPBOARDS:
            if (found := shutil.which(program)) is None:
                continue
            try:
                run = subprocess.run([found, *arguments], capture_output=True, timeout=_PATIENCE_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if run.returncode == 0 and run.stdout.startswith(b"\x89PNG"):
                return self._kept(image_block(run.stdout, "image/png"), "clipboard")
        return ""

    def named_in(self, text: str) -> tuple[dict[str, Any], ...]:
        """Return the images that a text has marks of; they stay, for a prompt that is edited again in the queue."""
        return tuple(image for mark, image in self._images.items() if mark in text)

    def _kept(self, image: dict[str, Any], name: str) -> str:
        self._count += 1
        mark = f"[image {self._count}: {name}]"
        self._images[mark] = image
        if len(self._images) > _MOST:
            del self._images[next(iter(self._images))]
        return mark


def _path(word: str) -> Path:
    return path_of_source(word) or Path(word).expanduser()
