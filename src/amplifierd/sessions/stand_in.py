"""Objects that stand for others and change one thing about them."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Has everything that the real object has, its class included; a subclass overrides what is to differ."""

    __slots__ = ("_real",)

    def __init__(self, real: Any) -> None:
        object.__setattr__(self, "_real", real)

    @property  # type: ignore[misc] # asking for the class means that of the real object
    def __class__(self) -> type:
        return type(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)
