"""Tokens, money and rate limits of an answer."""

from collections.abc import Mapping
from typing import Any

from amplifier_core import Usage
from amplifier_kit.messages.token_estimate import CHARACTERS_PER_TOKEN
from amplifier_kit.providers.cost import Prices, TokenCounts
from amplifier_kit.providers.rate_limits import read_rate_limits

_LIMIT_KINDS = ("requests", "tokens")


def responses_usage(given: Any) -> Usage:
    """Read the usage of the Responses API; nothing reported counts as zero."""
    return _read(given, "input_tokens", "output_tokens")


def chat_usage(given: Any) -> Usage:
    """Read the usage of the Chat Completions API."""
    return _read(given, "prompt_tokens", "completion_tokens")


def estimated_usage(sent_characters: int, received_characters: int) -> Usage:
    """Guess what a server used that does not say so: a token for every four characters."""
    sent, received = -(-sent_characters // CHARACTERS_PER_TOKEN), -(-received_characters // CHARACTERS_PER_TOKEN)
    return Usage.model_validate(
        {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received, "estimated": True}
    )


async def priced(usage: Usage, prices: Prices, reported: object, model: str) -> Usage:
    """Return the usage with its cost, as far as a price is known: that of the `reported` model, else of `model`."""
    name = reported if isinstance(reported, str) and reported else model
    cost = await prices.cost_of(name, TokenCounts.of(usage, has_writes_in_input=True))
    return usage.model_copy(update={"cost_usd": cost})


def rate_limits(headers: Mapping[str, str]) -> dict[str, Any] | None:
    """Read the `x-ratelimit-*` headers; None when there are none."""
    return read_rate_limits(headers, "x-ratelimit-{part}-{kind}", _LIMIT_KINDS) or None


def _read(given: Any, input_name: str, output_name: str) -> Usage:
    reported = given if isinstance(given, Mapping) else {}
    sent, received = _number(reported.get(input_name)) or 0, _number(reported.get(output_name)) or 0
    details = [reported.get(f"{name}_details") for name in (input_name, output_name)]
    details_in, details_out = (given if isinstance(given, Mapping) else {} for given in details)
    return Usage(
        input_tokens=sent,
        output_tokens=received,
        total_tokens=sent + received,
        reasoning_tokens=_number(details_out.get("reasoning_tokens")),
        cache_read_tokens=_number(details_in.get("cached_tokens")),
        cache_write_tokens=_number(details_in.get("cache_write_tokens")),
    )


def _number(given: Any) -> int | None:
    try:
        return None if given is None else int(given)
    except (TypeError, ValueError):
        return None
