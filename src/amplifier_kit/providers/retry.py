"""How a provider retries: its settings, and the wait that a vendor asks for."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.lenient_config import LenientConfig

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")


def read_retry_config(
    config: LenientConfig, *, max_retries: int = 5, min_delay_s: float = 1.0, jitter: bool = True
) -> RetryConfig:
    """Read the keys `max_retries`, `min_retry_delay`, `max_retry_delay` and `retry_jitter`; the rest are defaults."""
    return RetryConfig(
        max_retries=config.integer("max_retries", max_retries, minimum=0),
        initial_delay=config.number("min_retry_delay", min_delay_s, minimum=0),
        max_delay=config.number("max_retry_delay", 60.0, minimum=0),
        jitter=config.boolean("retry_jitter", jitter),
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a vendor asks to wait: `retry-after` as seconds or date, else one of the headers in ms."""
    by_name = {name.lower(): value for name, value in headers.items()}
    given = by_name.get("retry-after")
    seconds = None if given is None else _non_negative(given)
    if seconds is None and given is not None:
        seconds = _until(given)
    if seconds is None:
        milliseconds = (_non_negative(by_name[name]) for name in _MILLISECONDS if name in by_name)
        seconds = next((value / 1000 for value in milliseconds if value is not None), None)
    return seconds


def _non_negative(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _until(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - datetime.now(UTC)).total_seconds()
    return seconds if seconds >= 0 else None
