"""How much a session and all its descendants together may use."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from .exceptions import InvalidLimitsError
from .issues import in_words


def no_boolean(value: Any) -> Any:
    """Return a number; pydantic would take True for 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic turns only ValueError into an issue
    return value


def _exact(value: Any) -> Any:
    """Return money as it was written: 0.1 is a tenth of a dollar."""
    return str(value) if isinstance(value, float) else value


def _as_float(value: Decimal) -> float:
    """Return money as a plain number; pydantic reads this signature a hundred times faster than that of `float`."""
    return float(value)


_Number = BeforeValidator(no_boolean)
Money = Annotated[
    Decimal,
    BeforeValidator(_exact),
    _Number,
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(_as_float, return_type=float, when_used="json"),
]
Count = Annotated[int, _Number, Field(ge=0)]
Seconds = Annotated[float, _Number, Field(ge=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """Limits of a session tree; one that is None does not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cost_usd: Money | None = None
    total_tokens: Count | None = None
    tool_calls: Count | None = None
    turns: Count | None = None
    seconds: Seconds | None = None

    @classmethod
    def read(cls, value: object, where: str = "limits") -> Limits:
        """Return the limits that a person, a request or a file gave.

        Raises:
            InvalidLimitsError: it is something else; the message names every offending key.
        """
        if value is None or isinstance(value, Limits):
            return value or Limits()
        if not isinstance(value, Mapping):
            raise InvalidLimitsError(f"{where}: expected a mapping, got {value!r}", hint=_HINT)
        try:
            return cls.model_validate(dict(value))
        except ValidationError as error:
            problems = "; ".join(_problem(where, problem) for problem in error.errors())
            raise InvalidLimitsError(problems, hint=_HINT) from error

    def within(self, other: Limits) -> Limits:
        """Return the smaller of both, limit by limit."""
        return Limits(**{name: _smaller(getattr(self, name), getattr(other, name)) for name in LIMIT_NAMES})

    def to_json(self) -> dict[str, Any]:
        """Return the limits that exist as plain values."""
        return self.model_dump(mode="json", exclude_none=True)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in LIMIT_NAMES)


LIMIT_NAMES = tuple(Limits.model_fields)
_HINT = f"limits are numbers of at least 0 under the names {', '.join(LIMIT_NAMES)}"


def _problem(where: str, problem: Mapping[str, Any]) -> str:
    key = ".".join(map(str, (where, *problem["loc"])))
    if problem["type"] == "extra_forbidden":
        return f"{key}: there is no such limit"
    return f"{key}: {in_words(problem)}, got {problem['input']!r}"


def _smaller(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
