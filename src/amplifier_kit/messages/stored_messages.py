"""The history as a context keeps it: what may enter it, and a list that tells when more than its end has changed."""

from collections.abc import Callable
from typing import Any

from amplifier_core.utils.timestamps import utc_timestamp
from amplifier_kit.types import Message
from amplifier_kit.undeclared import PINNING_METADATA

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
    """Say whether a message with this metadata may never be removed, because something refers to it from outside."""
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
