"""The configuration keys of a module that runs programs."""

from typing import Literal, cast

from amplifier_kit.lenient_config import LenientConfig

from .limits import Limits

Mode = Literal["auto", "required", "off"]

_MODES = ("auto", "required", "off")


def read_mode(given: LenientConfig, *, default: Mode) -> Mode:
    """Return the key `sandbox`; a value that cannot be understood must not open what it was meant to close.

    YAML reads a bare `off` as false and `on` as true.
    """
    value = given.raw("sandbox")
    if value is None:
        return default
    word = {False: "off", True: "required"}[value] if isinstance(value, bool) else str(value).strip().lower()
    return cast("Mode", word) if word in _MODES else given.refuse("sandbox", value, ", ".join(_MODES), "required")


def read_limits(given: LenientConfig) -> Limits:
    """Return the keys `memory_mb`, `processes` and `cpu_seconds`; one that cannot be read is narrow."""
    return Limits(
        memory_mb=given.integer("memory_mb", None, minimum=1, when_unusable=512),
        processes=given.integer("processes", None, minimum=1, when_unusable=64),
        cpu_seconds=given.integer("cpu_seconds", None, minimum=1, when_unusable=60),
    )
