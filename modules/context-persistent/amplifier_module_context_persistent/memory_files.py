"""Files that a fresh conversation begins with, one system message each."""

import logging
from collections.abc import Iterable
from pathlib import Path

from amplifier_kit.messages.stored_messages import stamped
from amplifier_kit.types import Message

logger = logging.getLogger(__name__)


def load_memory_files(paths: Iterable[Path], working_dir: Path) -> dict[Path, Message]:
    """Return the messages by file, in order; what cannot be read is logged and left out."""
    loaded: dict[Path, Message] = {}
    for given in paths:
        path = working_dir / given.expanduser()
        if not path.is_file():
            logger.warning("memory file %s is %s; it is skipped", path, "no file" if path.exists() else "not there")
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            logger.exception("memory file %s cannot be read; it is skipped", path)
            continue
        if not text.strip():
            logger.debug("memory file %s is empty; it is skipped", path)
            continue
        loaded[path] = stamped({"role": "system", "content": f"[Context from {path.name}]\n\n{text}"})
    return loaded
