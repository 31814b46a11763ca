"""A hash of everything that a session has: two stores that give the same one have the same session."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from .protocol import NewSession


def fingerprint(whole: NewSession) -> str:
    """Return the SHA-256 of a session's record, plans, messages, events, documents and parts, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in _pieces(whole):
        digest.update(f"{len(piece)}:".encode())
        digest.update(piece)
    return digest.hexdigest()


def _pieces(whole: NewSession) -> Iterator[bytes]:
    yield _canonical(whole.record.fields())
    for lines in ((whole.plan, *whole.archived_plans), whole.messages, whole.events):
        yield str(len(lines)).encode()
        yield from map(_canonical, lines)
    for name in sorted(whole.documents):
        yield name.encode()
        yield _canonical(whole.documents[name])
    for name in sorted(whole.parts):
        yield name.encode()
        yield whole.parts[name]


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
