"""Text that arrives in pieces: its end is held back, so that a secret split between two pieces is seen whole."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amplifier_kit.redaction.secret_tokens import open_block

HELD_BACK = 256
"""So many characters of a block wait until more arrives, or the block ends."""

_MOST_HELD = 65_536
_MOST_BLOCKS = 256
_CUTS_TRIED = 8
_SPACE = re.compile(r"\s")

MaskText = Callable[[str], str]


class BlockId(NamedTuple):
    """Which block a piece belongs to."""

    event: str
    session_id: Any
    request_id: Any
    block_index: Any


@dataclass(slots=True)
class HeldBlock:
    """What is held back of one block, and the last event that brought a piece of it."""

    event: str
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""


class StreamedText:
    """The blocks of a session that are being streamed."""

    def __init__(self, mask: MaskText) -> None:
        self._mask = mask
        self._blocks: dict[BlockId, HeldBlock] = {}

    def pass_on(self, block_id: BlockId, event: str, data: dict[str, Any], piece: str) -> str:
        """Take a piece of a block and return what can be shown by now, masked; `data` is the event's."""
        block = self._blocks.setdefault(block_id, HeldBlock(event))
        if len(self._blocks) > _MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        block.event, block.data = event, data
        shown, block.text = _divided(block.text + piece, self._mask)
        return shown

    def end(self, belongs: Callable[[BlockId], bool]) -> list[tuple[HeldBlock, str]]:
        """End the blocks for which `belongs` says yes; returns each with the rest of its text, masked."""
        ended = [block_id for block_id in self._blocks if belongs(block_id)]
        blocks = [self._blocks.pop(block_id) for block_id in ended]
        return [(block, self._mask(block.text)) for block in blocks if block.text]

    def forget(self) -> None:
        """Let go of every text."""
        self._blocks.clear()


def _divided(text: str, mask: MaskText) -> tuple[str, str]:
    """Return the part that can be shown, masked, and the part that waits.

    A cut is safe where masking both parts gives the same as masking the whole. Text without a safe cut waits; when it
    has become very long it is masked as it is.
    """
    opened = open_block(text)
    cut = len(text) - HELD_BACK if opened is None else min(opened, len(text) - HELD_BACK)
    whole: str | None = None
    for _ in range(_CUTS_TRIED):
        cut = _last_space(text, cut)
        if cut <= 0:
            break
        whole = mask(text) if whole is None else whole
        shown = mask(text[:cut])
        if shown + mask(text[cut:]) == whole:
            return shown, text[cut:]
    return ("", text) if len(text) <= _MOST_HELD else (mask(text), "")


def _last_space(text: str, end: int) -> int:
    """Return the last place before `end` at which a word begins."""
    spaces = [match.start() for match in _SPACE.finditer(text, max(0, end - HELD_BACK), max(0, end))]
    return spaces[-1] if spaces else 0
