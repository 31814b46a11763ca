"""Files of JSON lines: written whole, read up to the last whole line."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from amplifierd.stored_json import json_text

logger = logging.getLogger(__name__)

_BLOCK = 1 << 16
_json: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_public_json: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="null"))
_write, _to_json, _from_json = os.write, _json.serializer.to_json, _json.validator.validate_json  # used for every line
_to_public_json = _public_json.serializer.to_json


def encoded(value: Any) -> bytes:
    """Return a value as one compact line without its end; halves of surrogate pairs are escaped.

    Raises:
        ValueError: there is something in it that JSON cannot say.
    """
    try:
        return _to_json(value)
    except ValueError:
        return _encode_slowly(value)


def encoded_for_others(value: Any) -> bytes:
    """Return a value as every program can read it: halves of surrogate pairs become `?`, what is not a number null."""
    try:
        return _to_public_json(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def encoded_file(value: Any) -> bytes:
    """Return a value as a file of its own, for people to read too; raises what `encoded` raises."""
    try:
        return _to_json(value, indent=2) + b"\n"
    except ValueError:
        return json_text(value)


def as_stored(value: Any) -> Any:
    """A copy of a value as a store gives it back."""
    return json.loads(encoded(value))


def encoded_lines(entries: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(encoded(entry) + b"\n" for entry in entries)


def append_whole(descriptor: int, data: bytes) -> None:
    """Append all of `data` or nothing; no other process may write at the same time.

    Raises:
        OSError: the file is as it was.
    """
    written = 0
    try:
        written = _write(descriptor, data)
        while written < len(data):  # the rest says why it did not fit
            written += os.write(descriptor, data[written:])
    except OSError:
        if written:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def read_last(path: Path) -> dict[str, Any] | None:
    """Return the object of the last whole line, None when there is none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            data = b""
            while end > 0:
                start = max(0, end - _BLOCK)
                file.seek(start)
                data = file.read(end - start) + data
                end = start
                for line in reversed(data.split(b"\n")[1 if start else 0 : -1]):
                    if (entry := _parsed(line, path, end)) is not None:
                        return entry
    except FileNotFoundError:
        pass
    return None


def read_since(path: Path, is_earlier: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return the objects at the end of a file, those after the last one that is earlier; the rest is not read."""
    found: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            end = _end_of_last_line(file.fileno(), file.seek(0, os.SEEK_END))
            begun, size = b"", _BLOCK
            while end > 0:
                start = max(0, end - size)
                file.seek(start)
                lines = (file.read(end - start) + begun).split(b"\n")
                begun = lines.pop(0) if start else b""
                size = max(_BLOCK, len(begun))  # of a line that is long, as much again is read at once
                for line in reversed(lines):
                    if (entry := _parsed(line, path, start)) is not None:
                        if is_earlier(entry):
                            return found[::-1]
                        found.append(entry)
                end = start
    except FileNotFoundError:
        pass
    return found[::-1]


def find_last(path: Path, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Return the last object of a file that is wanted; what stands before it is not read."""
    found: list[dict[str, Any]] = []

    def look(entry: dict[str, Any]) -> bool:
        if is_wanted(entry):
            found.append(entry)
        return bool(found)

    read_since(path, look)
    return found[0] if found else None


def find_last_with(descriptor: int, text: bytes) -> dict[str, Any] | None:
    """Return the last object of an open file in whose line a text stands; only that line is parsed."""
    end, rest = os.fstat(descriptor).st_size, b""
    while end > 0:
        start = max(0, end - _BLOCK)
        block = os.pread(descriptor, end - start, start) + rest
        if (place := block.rfind(text)) >= 0:
            return parse_line(_line_around(descriptor, start + place))
        end, rest = start, block[: len(text) - 1]
    return None


def _line_around(descriptor: int, place: int) -> bytes:
    """Return the line in which a place lies."""
    start, line = _end_of_last_line(descriptor, place), b""
    while b"\n" not in line and (block := os.pread(descriptor, _BLOCK, start + len(line))):
        line += block
    return line.partition(b"\n")[0]


def count_lines(path: Path) -> int:
    """Return how many whole lines a file has."""
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))
    except FileNotFoundError:
        return 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file, none when it does not exist; lines that hold none are skipped."""
    entries = (_parsed(line, path, place) for place, line in whole_lines(path))
    return [entry for entry in entries if entry is not None]


def whole_lines(path: Path, start: int = 0) -> list[tuple[int, bytes]]:
    """Return the lines after a place, each with its own; the last one counts once its end is written."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return []
    lines = []
    for line in data.split(b"\n")[:-1]:
        lines.append((start, line))
        start += len(line) + 1
    return lines


def line_at(path: Path, place: int) -> bytes:
    """Return the line that begins at a place, nothing when the file ends before it."""
    try:
        with path.open("rb") as file:
            file.seek(place)
            return file.readline()
    except FileNotFoundError:
        return b""


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the object on a line, None when there is none."""
    try:
        entry = _from_json(line)
    except ValueError:
        entry = _parse_slowly(line)
    return entry if isinstance(entry, dict) else None


def parse_value(text: str) -> Any:
    """Return the value that `encoded` was given."""
    try:
        return _from_json(text)
    except ValueError:
        return json.loads(text)


def truncate_torn(path: Path) -> None:
    """Remove the beginning of a line that a killed process left at the end of a file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(descriptor).st_size
        end = _end_of_last_line(descriptor, size)
        if end < size:
            logger.warning("%s: %d bytes of a line that was never finished are removed", path, size - end)
            os.ftruncate(descriptor, end)
    finally:
        os.close(descriptor)


def _end_of_last_line(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _encode_slowly(value: Any) -> bytes:
    """Encode what is text to Python and not to others."""
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except TypeError as error:
        raise ValueError(f"cannot be stored as JSON: {error}") from error


def _parse_slowly(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _parsed(line: bytes, path: Path, place: int) -> dict[str, Any] | None:
    entry = parse_line(line)
    if entry is None and line.strip():
        logger.warning("%s: the line at byte %d is not a JSON object and is skipped", path, place)
    return entry
