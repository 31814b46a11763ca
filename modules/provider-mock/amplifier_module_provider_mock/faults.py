"""Errors on demand: every class of the kernel's taxonomy, at chosen calls, also in the middle of a stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import LLMError, llm_errors

from .conditions import Conditions
from .turn_view import TurnView

CLASSES: dict[str, type[LLMError]] = {
    name: kind for name, kind in vars(llm_errors).items() if isinstance(kind, type) and issubclass(kind, LLMError)
}
_SHORT_NAMES: dict[str, tuple[str, int | None, float]] = {  # class, status code, delay multiplier
    "timeout": ("LLMTimeoutError", None, 1.0),
    "rate_limit": ("RateLimitError", 429, 1.0),
    "overloaded": ("ProviderUnavailableError", 529, 10.0),
    "stream": ("StreamError", None, 1.0),
    "auth": ("AuthenticationError", 401, 1.0),
    "context_length": ("ContextLengthError", 400, 1.0),
}
_ERROR_KEYS = frozenset({"type", "message", "retry_after", "status_code", "after_deltas"})
_FAULT_KEYS = _ERROR_KEYS | {"call", "every", "when", "times"}


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """An error to raise; with `after_deltas` only after that many fragments were streamed."""

    type: str
    message: str
    retry_after: float | None = None
    status_code: int | None = None
    after_deltas: int | None = None

    @classmethod
    def parse(cls, given: Any) -> "ErrorSpec":
        """Read a class name, a short name, or a mapping with `type`; raises `TypeError` or `ValueError`."""
        fields = {"type": given} if isinstance(given, str) else given
        if not isinstance(fields, Mapping):
            raise TypeError(f"an error is a name or a mapping, got {given!r}")
        if unknown := sorted(set(fields) - _ERROR_KEYS):
            raise ValueError(f"an error has no {', '.join(map(repr, unknown))}")
        kind = fields.get("type")
        if kind not in CLASSES and kind not in _SHORT_NAMES:
            known = ", ".join((*_SHORT_NAMES, *CLASSES))
            raise ValueError(f"{kind!r} is not an error; known are {known}")
        return cls(
            type=str(kind),
            message=str(fields.get("message") or f"mock error: {kind}"),
            retry_after=_number(fields, "retry_after"),
            status_code=_count(fields, "status_code"),
            after_deltas=_count(fields, "after_deltas"),
        )

    def error(self, *, provider: str, model: str) -> LLMError:
        """Return the exception."""
        name, status_code, delay_multiplier = _SHORT_NAMES.get(self.type, (self.type, None, 1.0))
        return CLASSES[name](
            self.message,
            provider=provider,
            model=model,
            status_code=status_code if self.status_code is None else self.status_code,
            retry_after=self.retry_after,
            delay_multiplier=delay_multiplier,
        )


@dataclass(slots=True)
class Fault:
    """When an error happens: at call `call`, at every `every`-th call, or where `when` holds; without any, always.

    It happens on the first attempt of such a call; with `times` on every attempt, until it has happened that often.
    """

    spec: ErrorSpec
    call: int | None = None
    every: int | None = None
    when: Conditions = field(default_factory=Conditions)
    times: int | None = None
    happened: int = 0

    @classmethod
    def parse(cls, given: Any) -> "Fault":
        """Read an item of the key `errors`; raises `TypeError` or `ValueError`."""
        if not isinstance(given, Mapping):
            raise TypeError(f"a fault is a mapping, got {given!r}")
        if unknown := sorted(set(given) - _FAULT_KEYS):
            raise ValueError(f"a fault has no {', '.join(map(repr, unknown))}")
        return cls(
            spec=ErrorSpec.parse({key: value for key, value in given.items() if key in _ERROR_KEYS}),
            call=_count(given, "call"),
            every=_count(given, "every", minimum=1),
            when=Conditions.parse(given.get("when")),
            times=_count(given, "times"),
        )

    def happens(self, view: TurnView, attempt: int) -> bool:
        """Say whether it happens now, and count it; `attempt` is 0 for the first of a call."""
        is_due = (
            (self.call is None or view.call_number == self.call)
            and (self.every is None or view.call_number % self.every == 0)
            and (attempt == 0 if self.times is None else self.happened < self.times)
            and self.when.broken(view) is None
        )
        self.happened += is_due
        return is_due


class Faults:
    """The faults of one provider; the first that is due happens."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults

    def next(self, view: TurnView, attempt: int) -> ErrorSpec | None:
        return next((fault.spec for fault in self._faults if fault.happens(view, attempt)), None)


def _number(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{key} is a number that is not negative, got {value!r}")
    return float(value)


def _count(fields: Mapping[str, Any], key: str, *, minimum: int = 0) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{key} is a whole number of at least {minimum}, got {value!r}")
    return value
