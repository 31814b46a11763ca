"""The history as a context keeps it: what may enter it, and a list that tells when more than its end has changed."""

from collections.abc import Callable, Iterable
from typing import Any

from amplifier_core.utils import json_safe
from amplifier_core.utils.timestamps import utc_timestamp
from amplifier_kit.types import PINNING_METADATA, Message

_MILLISECONDS_END = len("2000-01-01T00:00:00.000")
_MICROSECONDS_END = len("2000-01-01T00:00:00.000000")


def check_message(message: object) -> Message:
    """Return `message` when it can be kept: a dict with a role. Anything else is a `ValueError`."""
    if not isinstance(message, dict):
        raise ValueError(f"a message must be a dict with a 'role', got {type(message).__name__}")  # noqa: TRY004
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ValueError(f"a message needs a non-empty string as its 'role', got {role!r}")
    return message


def stamped(message: object) -> Message:
    """Return the copy of a message that a history keeps: checked, with the time in its metadata unless it has one."""
    copied = dict(check_message(message))
    metadata = copied.get("metadata")
    if metadata is None:
        copied["metadata"] = {"timestamp": _now()}
    elif isinstance(metadata, dict) and metadata.get("timestamp") is None:
        copied["metadata"] = {**metadata, "timestamp": _now()}
    return copied


def metadata_of(message: Message) -> Message:
    """Return a message's metadata, empty when it has none that can be read."""
    metadata = message.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def is_pinned(metadata: Message) -> bool:
    """True if a message with this metadata may never be removed, because something refers to it from outside."""
    return metadata.get("pinned") is True or not PINNING_METADATA.isdisjoint(metadata)


class StoredMessages(list[Message]):
    """A list of messages with a `revision` that changes whenever anything but its end does.

    A reader who knows the first n messages of a revision has to look at the rest only.
    """

    revision = 0


def _revising(name: str) -> Callable[..., Any]:
    change = getattr(list, name)

    def changing(self: StoredMessages, *args: Any, **options: Any) -> Any:
        try:
            return change(self, *args, **options)
        finally:  # afterwards: a reader that comes in between looks again
            self.revision += 1

    changing.__name__ = name
    return changing


for _name in ("__setitem__", "__delitem__", "__imul__", "insert", "pop", "remove", "clear", "sort", "reverse"):
    setattr(StoredMessages, _name, _revising(_name))


def _now() -> str:
    """Return the time with milliseconds."""
    with_microseconds = utc_timestamp()
    return with_microseconds[:_MILLISECONDS_END] + with_microseconds[_MICROSECONDS_END:]


# How many tokens a message takes, estimated without a tokenizer.
#
# A token is four characters of the message's text form. Images, audio and documents are not text: their payload
# counts for nothing, and each of them adds a flat number of tokens.


CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 1600

_MEDIA = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "document", "file", "input_file", "video"}
)
_PAYLOADS = frozenset({"data", "base64", "b64_json", "file_data", "bytes"})
_TEXT_SOURCES = frozenset({"text", "content"})
_ATOMS = frozenset({str, int, float, bool, type(None)})


def estimate_message(message: object, image_tokens: int = IMAGE_TOKENS) -> int:
    """Return the tokens of one message; never raises."""
    reduction = None
    try:
        if _may_hold_payload(message):
            reduction = _Reduction()
            message = reduction.reduce(message)
        text = str(message)
    except Exception:  # noqa: BLE001 - any code of the values' classes may run here, and an estimate must not fail
        text = str(json_safe(message))
    return len(text) // CHARACTERS_PER_TOKEN + (reduction.media * image_tokens if reduction is not None else 0)


def estimate_messages(messages: Iterable[object], image_tokens: int = IMAGE_TOKENS) -> int:
    """Return the sum of the messages' estimates."""
    return sum(estimate_message(message, image_tokens) for message in messages)


class _Reduction:
    """Takes the payloads out of a message and counts the blocks that are not text."""

    def __init__(self) -> None:
        self.media = 0
        self._path: set[int] = set()

    def reduce(self, value: Any, *, in_media: bool = False) -> Any:
        """Return `value` without payloads; the very object when there are none in it."""
        if isinstance(value, str):
            return "" if in_media and value.startswith("data:") else value
        if isinstance(value, bytes | bytearray | memoryview):
            return ""
        if type(value) in _ATOMS or id(value) in self._path:
            return value
        self._path.add(id(value))
        try:
            if isinstance(value, dict):
                return self._reduce_dict(value, in_media)
            if isinstance(value, list | tuple):
                reduced = [self.reduce(item, in_media=in_media) for item in value]
                return value if all(map(_is, reduced, value)) else reduced
            return self.reduce(value.model_dump(), in_media=in_media) if hasattr(value, "model_dump") else value
        finally:
            self._path.discard(id(value))

    def _reduce_dict(self, value: dict[Any, Any], in_media: bool) -> dict[Any, Any]:
        kind = value.get("type")
        if isinstance(kind, str):
            if kind in _TEXT_SOURCES:
                in_media = False
            elif kind in _MEDIA:
                in_media = not _has_text_source(value)
                self.media += in_media
        reduced = None
        for key, item in value.items():
            if type(item) in _ATOMS and not in_media:
                continue
            shorter = "" if in_media and key in _PAYLOADS and isinstance(item, str) else item
            shorter = self.reduce(shorter, in_media=in_media)
            if shorter is not item:
                reduced = {**value} if reduced is None else reduced
                reduced[key] = shorter
        return value if reduced is None else reduced


def _may_hold_payload(value: object) -> bool:
    """True if a closer look is needed; most messages are text, and a glance will do."""
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and kind in _MEDIA:
            return True
        value = value.values()
    elif not isinstance(value, list | tuple):
        return True
    for item in value:  # noqa: SIM110 - a generator would take longer than the glance
        if type(item) not in _ATOMS and _may_hold_payload(item):
            return True
    return False


def _is(one: object, other: object) -> bool:
    return one is other


def _has_text_source(block: dict[Any, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") in _TEXT_SOURCES
