"""What was used: tokens, tool calls and money, of a call, a session or a whole tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import amplifier_core

TOKEN_KINDS = ("input", "output", "total", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens by kind; `input` includes cache reads, and `total` is input and output."""

    input: int = 0
    output: int = 0
    total: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        if other is NO_TOKENS:
            return self
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.total + other.total,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    def __neg__(self) -> Tokens:
        return Tokens(-self.input, -self.output, -self.total, -self.cache_read, -self.cache_write)

    @classmethod
    def of_call(cls, used: amplifier_core.Usage) -> Tokens:
        """Return the tokens that a provider reports for one call."""
        total = used.total_tokens or used.input_tokens + used.output_tokens
        return cls(
            used.input_tokens, used.output_tokens, total, used.cache_read_tokens or 0, used.cache_write_tokens or 0
        )

    def to_json(self) -> dict[str, int]:
        return {
            "input": self.input,
            "output": self.output,
            "total": self.total,
            "cache_read": self.cache_read,
            "cache_write": self.cache_write,
        }

    @classmethod
    def from_json(cls, value: object) -> Tokens:
        given = value if isinstance(value, Mapping) else {}
        return cls(**{kind: _whole(given.get(kind)) for kind in TOKEN_KINDS})


NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True)
class Usage:
    """Everything that was used, to be added up.

    `cost_usd` is the sum of the calls whose price is known: None, which is not zero, when there is none of them.
    `unpriced_tokens` says how many tokens it leaves out. `by_agent` has what the sessions of delegated agents used; the
    rest of a tree's usage is that of its root.
    """

    tokens: Tokens = NO_TOKENS
    tool_calls: int = 0
    turns: int = 0
    seconds: float = 0.0
    cost_usd: Decimal | None = None
    unpriced_tokens: int = 0
    by_model: Mapping[str, Usage] = field(default_factory=dict)
    by_agent: Mapping[str, Usage] = field(default_factory=dict)

    def __add__(self, other: Usage) -> Usage:
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        return Usage(
            self.tokens + other.tokens,
            self.tool_calls + other.tool_calls,
            self.turns + other.turns,
            self.seconds + other.seconds,
            _added(self.cost_usd, other.cost_usd),
            self.unpriced_tokens + other.unpriced_tokens,
            _merged(self.by_model, other.by_model),
            _merged(self.by_agent, other.by_agent),
        )

    def __neg__(self) -> Usage:
        """Return what takes it back, added to what it is counted in."""
        return Usage(
            -self.tokens,
            -self.tool_calls,
            -self.turns,
            -self.seconds,
            None if self.cost_usd is None else -self.cost_usd,
            -self.unpriced_tokens,
            {model: -part for model, part in self.by_model.items()},
            {agent: -part for agent, part in self.by_agent.items()},
        )

    @classmethod
    def of_call(cls, used: amplifier_core.Usage, model: str = "") -> Usage:
        """Return what one provider call used."""
        tokens = Tokens.of_call(used)
        unpriced = tokens.total if used.cost_usd is None else 0
        usage = cls(tokens=tokens, cost_usd=used.cost_usd, unpriced_tokens=unpriced)
        if not model:
            return usage
        return cls(tokens=tokens, cost_usd=used.cost_usd, unpriced_tokens=unpriced, by_model={model: usage})

    def for_agent(self, agent: str | None) -> Usage:
        """Return it as a part of a tree's usage, on the account of an agent."""
        if agent is None:
            return self
        return replace(self, by_agent=_merged(self.by_agent, {agent: replace(self, by_model={}, by_agent={})}))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; money is text, because it is exact."""
        parts = (("by_model", self.by_model), ("by_agent", self.by_agent))
        return {**self._sums(), **{name: {key: part._sums() for key, part in of.items()} for name, of in parts}}

    def _sums(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens.to_json(),
            "tool_calls": self.tool_calls,
            "turns": self.turns,
            "seconds": round(self.seconds, 3),
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
            "unpriced_tokens": self.unpriced_tokens,
        }

    @classmethod
    def from_json(cls, value: object) -> Usage:
        """Return what `to_json` wrote; what is missing or unreadable counts as nothing."""
        given = value if isinstance(value, Mapping) else {}
        return cls(
            tokens=Tokens.from_json(given.get("tokens")),
            tool_calls=_whole(given.get("tool_calls")),
            turns=_whole(given.get("turns")),
            seconds=_seconds(given.get("seconds")),
            cost_usd=_money(given.get("cost_usd")),
            unpriced_tokens=_whole(given.get("unpriced_tokens")),
            by_model=_parts(given.get("by_model")),
            by_agent=_parts(given.get("by_agent")),
        )


NOTHING = Usage()
ONE_TOOL_CALL = Usage(tool_calls=1)


def _added(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _merged(one: Mapping[str, Usage], other: Mapping[str, Usage]) -> Mapping[str, Usage]:
    if not other or not one:
        return one or other
    return {**one, **{key: one[key] + part if key in one else part for key, part in other.items()}}


def _parts(value: object) -> dict[str, Usage]:
    return {str(key): Usage.from_json(part) for key, part in value.items()} if isinstance(value, Mapping) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _money(value: object) -> Decimal | None:
    try:
        money = Decimal(str(value)) if value is not None else None
    except InvalidOperation:
        return None
    return money if money is not None and money.is_finite() else None
