"""The handler that masks what events show."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS, CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END, PROVIDER_REQUEST, THINKING_DELTA
from amplifier_kit.mounting import Handlers, declared_events, offer_capability
from amplifier_kit.redaction.scrubbing import IDENTIFIER_KEYS, Scrubber
from amplifier_kit.redaction.secret_patterns import open_block
from amplifier_kit.types import STAMP

from .settings import MODULE_ID, RedactionSettings

# Text that arrives in pieces: its end is held back, so that a secret split between two pieces is seen whole.


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


_PIECES = {"llm:stream_block_delta": "text", CONTENT_BLOCK_DELTA: "delta", THINKING_DELTA: "delta"}
"""The events that bring a piece of a block, each with the key of its text."""

_ENDS_BLOCK = {"llm:stream_block_end": "llm:stream_block_delta", CONTENT_BLOCK_END: CONTENT_BLOCK_DELTA}
"""The events that end one block, each with the event that brought its pieces."""

_ENDS_ALL = frozenset({"llm:stream_aborted", "thinking:final", "llm:response", "execution:end"})
"""The events that end every block of their request, or of the session where they name none."""

logger = logging.getLogger(__name__)


class RedactionHook:
    """Masks the events of one coordinator, for the handlers behind it; what is masked is marked with a stamp.

    Orchestrators know the stamp: it is a view for logs, and the conversation goes on with the original.
    """

    def __init__(self, coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
        self.coordinator = coordinator
        self.settings = RedactionSettings.read(config)
        self._scrubber = Scrubber(self.settings.rules, self.settings.allowlist)
        self._streams = StreamedText(self._scrubber.scrub)
        self._handlers = Handlers(MODULE_ID, coordinator)

    def offer_scrubbing(self) -> None:
        """Let others mask by the same rules what they write themselves."""
        offer_capability(self.coordinator, "redaction.scrub", self._scrubber.scrub)

    def register_known_events(self) -> int:
        """Register for the kernel's events; returns their number."""
        return self._register(ALL_EVENTS)

    async def register_declared_events(self) -> int:
        """Register for the events that modules announced; returns their number."""
        return self._register(await declared_events(self.coordinator))

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        """Return the data masked and stamped; when that fails, nothing of it but the identifiers."""
        if not self.settings.rules or not isinstance(data, dict) or event in self.settings.skip_events:
            return HookResult(action="continue")
        try:
            if event in _ENDS_BLOCK or event in _ENDS_ALL:
                await self._show_rest(event, data)
            return HookResult(action="modify", data=self._redacted(event, data))
        except Exception as exc:  # noqa: BLE001 - its text and traceback could show what must not be shown
            logger.warning(
                "%s: %s could not be scrubbed (%s); its data is left out", MODULE_ID, event, type(exc).__name__
            )
        identifiers = {key: data[key] for key in IDENTIFIER_KEYS if isinstance(data.get(key), str)}
        stamp = {"applied": False, "error": "scrub_failed"}
        return HookResult(action="modify", data={**identifiers, STAMP: stamp})

    def cleanup(self) -> None:
        """Unregister, and let go of everything that was seen; scrubbing still works."""
        self._handlers.clear()
        self._scrubber.forget()
        self.settings.searches.end()
        self._streams.forget()

    async def _show_rest(self, event: str, data: dict[str, Any]) -> None:
        """Emit what is held back of the blocks that this event ends, as one more piece of each."""
        if event in _ENDS_BLOCK:
            ended = _block_id(_ENDS_BLOCK[event], data)
            rests = self._streams.end(lambda block_id: block_id == ended)
        else:
            request = data.get("request_id")
            rests = self._streams.end(lambda block_id: request is None or block_id.request_id == request)
        for block, rest in rests:
            key = _PIECES[block.event]
            sequence = block.data.get("sequence")
            following = {} if not isinstance(sequence, int) else {"sequence": sequence + 1}
            stamp = {"applied": True, "rules": list(self.settings.rule_names), "held_back": True}
            await self.coordinator.hooks.emit(block.event, {**block.data, **following, key: rest, STAMP: stamp})

    def _register(self, events: Iterable[str]) -> int:
        return sum(
            self._handlers.register(event, self, priority=self.settings.priority, name=MODULE_ID)
            for event in events
            if event not in self.settings.skip_events
        )

    def _redacted(self, event: str, data: dict[str, Any]) -> dict[str, Any]:
        stamp: dict[str, Any] = {"applied": True, "rules": list(self.settings.rule_names)}
        key = _PIECES.get(event)
        if key is not None and isinstance(data.get(key), str):
            return self._redacted_piece(event, data, key, stamp)
        if event != PROVIDER_REQUEST or "messages" not in data:
            return {**self._scrubber.scrub(data), STAMP: stamp}
        # The whole conversation: the code that writes it scrubs it, and then each message only once.
        rest = {key: value for key, value in data.items() if key != "messages"}
        stamp["skipped"] = ["messages"]
        return {**self._scrubber.scrub(rest), "messages": data["messages"], STAMP: stamp}

    def _redacted_piece(self, event: str, data: dict[str, Any], key: str, stamp: dict[str, Any]) -> dict[str, Any]:
        if data.get(STAMP, {}).get("held_back"):
            return {**data, key: self._scrubber.scrub(data[key])}  # the rest of a block, which this hook emitted
        rest = {name: value for name, value in data.items() if name != key}
        redacted = {**self._scrubber.scrub(rest), STAMP: stamp}
        redacted[key] = self._streams.pass_on(_block_id(event, data), event, redacted, data[key])
        return redacted


def _block_id(event: str, data: Mapping[str, Any]) -> BlockId:
    return BlockId(event, data.get("session_id"), data.get("request_id"), data.get("block_index"))
