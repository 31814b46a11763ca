"""What a provider does less, or otherwise, than it was asked to: each is logged once, and told with the response."""

import logging
from collections.abc import Mapping

from amplifier_core import Degradation
from amplifier_kit.types import JsonObject

logger = logging.getLogger(__name__)


class WarnOnce:
    """Logs the warnings of one provider, each the first time only: the same conversation is sent again and again."""

    def __init__(self, module_id: str) -> None:
        self._module_id = module_id
        self._logged: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            logger.warning("%s: %s", self._module_id, text)


class Shortfalls:
    """What one call could not do as asked."""

    def __init__(self, warn: WarnOnce) -> None:
        self._warn = warn
        self._found: dict[str, tuple[str, str]] = {}

    def add(self, requested: str, actual: str, reason: str) -> None:
        """Take note of one; the first thing that is said about something counts."""
        self._found.setdefault(requested, (actual, reason))
        self._warn(f"{requested} is not possible: {reason}; instead: {actual}")

    @property
    def degradation(self) -> Degradation | None:
        """All of them as the response tells it, None when everything was done."""
        if not self._found:
            return None
        actual, reasons = (dict.fromkeys(texts) for texts in zip(*self._found.values(), strict=True))
        return Degradation(requested="; ".join(self._found), actual="; ".join(actual), reason="; ".join(reasons))


def with_extras(body: JsonObject, extras: Mapping[str, object], warn: WarnOnce) -> JsonObject:
    """Return a request's body with the configured `extra_request_params` in it; taking a field's place is reported."""
    for key, value in extras.items():
        if key in body and body[key] != value:
            warn(f"extra_request_params overrides {key!r} of the request")
    return {**body, **extras}
