"""The three forms of a backup, and the way back from two of them."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core.utils import json_safe

Message = dict[str, Any]
Metadata = dict[str, Any]

EXTENSIONS = {"jsonl": "jsonl", "json": "json", "text": "txt"}


def encode(form: str, messages: list[Message], metadata: Metadata | None) -> bytes:
    """Return a transcript in one of the forms; without metadata none is written."""
    safe_metadata = None if metadata is None else json_safe(metadata)
    return _ENCODERS[form](json_safe(messages), safe_metadata)


def read_backup(path: Path | str) -> dict[str, Any]:
    """Return the `metadata` and `messages` of a `jsonl` or `json` backup, compressed or not.

    The messages can be handed to a context manager's `set_messages`. Raises `ValueError` for a file that is not such a
    backup (text cannot be read back) or is damaged, `OSError` for one that cannot be read.
    """
    path = Path(path)
    decode = _DECODERS.get(Path(path.name.removesuffix(".gz")).suffix)
    if decode is None:
        raise ValueError(
            f"{path} is not a backup that can be read: only .jsonl and .json files can, and those with .gz"
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        metadata, messages = decode(text)
    except (ValueError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ValueError(f"{path} is damaged: {exc}") from exc
    return {"metadata": metadata, "messages": messages}


def _dumps(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be kept in its escaped form
        return json.dumps(value, indent=indent)
    return text


def _to_jsonl(messages: list[Message], metadata: Metadata | None) -> bytes:
    head = [] if metadata is None else [{"metadata": metadata}]
    return "".join(f"{_dumps(line)}\n" for line in (*head, *messages)).encode()


def _to_json(messages: list[Message], metadata: Metadata | None) -> bytes:
    tail = {} if metadata is None else {"metadata": metadata}
    return f"{_dumps({'messages': messages, **tail}, indent=2)}\n".encode()


def _to_text(messages: list[Message], metadata: Metadata | None) -> bytes:
    paragraphs = (f"{message.get('role', 'unknown')}: {_spoken(message)}" for message in messages)
    return "".join(f"{paragraph}\n\n" for paragraph in paragraphs).encode("utf-8", "replace")


def _spoken(message: Message) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    spoken = [
        str(block["text"]) if isinstance(block, Mapping) and "text" in block else _dumps(block) for block in blocks
    ]
    spoken += [f"[calls {_dumps(call)}]" for call in message.get("tool_calls") or []]
    return "\n".join(part for part in spoken if part)


def _from_jsonl(text: str) -> tuple[Metadata, list[Message]]:
    lines = [_mapping(json.loads(line)) for line in text.split("\n") if line.strip()]
    has_metadata = bool(lines) and lines[0].keys() == {"metadata"}
    return _mapping(lines.pop(0)["metadata"]) if has_metadata else {}, lines


def _from_json(text: str) -> tuple[Metadata, list[Message]]:
    backup = _mapping(json.loads(text))
    messages = backup.get("messages")
    if not isinstance(messages, list):
        raise TypeError("it has no list of messages")
    return _mapping(backup.get("metadata", {})), [_mapping(message) for message in messages]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object was expected, not {type(value).__name__}")
    return value


_ENCODERS: dict[str, Callable[[list[Message], Metadata | None], bytes]] = {
    "jsonl": _to_jsonl,
    "json": _to_json,
    "text": _to_text,
}
_DECODERS: dict[str, Callable[[str], tuple[Metadata, list[Message]]]] = {".jsonl": _from_jsonl, ".json": _from_json}
