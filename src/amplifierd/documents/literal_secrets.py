"""Secrets that stand in a profile itself: they would be copied into its builds and into every session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_core.utils import SENSITIVE_KEYS
from amplifier_kit.redaction import mask_text
from amplifier_kit.redaction.named_secrets import names_secret

_SHORTEST = 8  # shorter ones, and those without a digit, stand where a server wants any key at all


def literal_secrets(value: Any, place: str = "") -> Iterator[str]:
    """Yield the key paths of texts in configurations that are secrets themselves, by their name or by their format."""
    for key, inner, below in _inside(value, place):
        yield from _secrets(inner, below) if key == "config" else literal_secrets(inner, below)


def _secrets(value: Any, place: str) -> Iterator[str]:
    for key, inner, below in _inside(value, place):
        if not isinstance(inner, str):
            yield from _secrets(inner, below)
        elif "${" not in inner and (_is_named(key, inner) or mask_text(inner, ("secrets",)) != inner):
            yield below


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any, str]]:
    """Yield what is in a mapping or a list, each with its key and its key path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key), inner, f"{place}.{key}" if place else str(key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield "", inner, f"{place}[{index}]"


def _is_named(key: str, value: str) -> bool:
    names_one = key.lower() in SENSITIVE_KEYS or names_secret(key)
    return names_one and len(value) >= _SHORTEST and any(map(str.isdigit, value))
