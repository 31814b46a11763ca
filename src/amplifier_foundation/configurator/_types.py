"""The name by which applications find what items came from."""

from amplifier_foundation.bundle import Origin

from .records import IncludeStep, ItemRecord

__all__ = ["IncludeStep", "ItemRecord", "Origin"]
