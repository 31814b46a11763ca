"""Keeping what was made of an object for as long as the object lives."""

import weakref
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

V = TypeVar("V")
S = TypeVar("S")


class IdentityCache(Generic[V]):
    """Values by the identity of the object they were made of; each goes when its object does.

    The requests of a conversation hold the same message objects again and again, so that a provider converts each
    message once. What is kept must not depend on where the message stands.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[object], V]] = {}

    def get(self, source: S, make: Callable[[S], V]) -> V:
        """Return what was made of this very object, or make it now."""
        return self.get_all((source,), make)[0]

    def get_all(self, sources: Iterable[S], make: Callable[[S], V]) -> list[V]:
        """Return what was made of each of these very objects, or make it now."""
        known = self._kept
        return [
            kept[1] if (kept := known.get(id(source))) is not None and kept[0]() is source else self._make(source, make)
            for source in sources
        ]

    def __len__(self) -> int:
        return len(self._kept)

    def _make(self, source: S, make: Callable[[S], V]) -> V:
        key = id(source)
        value = make(source)
        try:
            reference: weakref.ref[object] = weakref.ref(source, lambda gone: self._drop(key, gone))
        except TypeError:  # a plain dict: converted every time
            return value
        self._kept[key] = (reference, value)
        return value

    def _drop(self, key: int, gone: "weakref.ref[object]") -> None:
        kept = self._kept.get(key)
        if kept is not None and kept[0] is gone:  # the place may belong to a newer object by now
            del self._kept[key]
