"""How many tokens a request may have: as asked for, as the provider's model allows, or as configured."""

import inspect
import logging
from collections.abc import Iterator
from typing import NamedTuple

from amplifier_core import Provider
from amplifier_core.boundary import Boundary, at_once
from amplifier_core.utils.tool_messages import field_of

logger = logging.getLogger(__name__)

SAFETY_TOKENS = 4096


class Budget(NamedTuple):
    """A number of tokens and where it comes from."""

    tokens: int
    source: str


def find_budget(
    token_budget: int | None,
    provider: Provider | None,
    *,
    max_tokens: int,
    is_ceiling: bool,
    output_reserve_fraction: float,
) -> Budget:
    """Return the first budget there is: `token_budget`, the provider's, else `max_tokens`.

    What a provider allows is its model's window without a share of the output and a margin, never less than a
    quarter of the window; with `is_ceiling` it is at most `max_tokens`.
    """
    if token_budget is not None and token_budget > 0:
        return Budget(int(token_budget), "the caller")
    for source, info in _model_infos(provider):
        window, output = _number(info, "context_window"), _number(info, "max_output_tokens")
        if window and output:
            allowed = max(window - int(output * output_reserve_fraction) - SAFETY_TOKENS, window // 4)
            return Budget(min(allowed, max_tokens) if is_ceiling else allowed, source)
    return Budget(max_tokens, "max_tokens")


def _model_infos(provider: Provider | None) -> Iterator[tuple[str, object]]:
    """Yield where a model's limits may be found; many providers have `get_model_info`, which no contract asks for."""
    if provider is not None:
        yield "provider.get_model_info", _ask(provider, "get_model_info")
        yield "provider.get_info", field_of(_ask(provider, "get_info"), "defaults")


def _ask(provider: Provider, question: str) -> object:
    answer: object = None
    with Boundary(logger, "the provider does not say what its model allows: %s", level=logging.DEBUG):
        answer = at_once(getattr(provider, question)())
    return None if inspect.isawaitable(answer) else answer  # a budget is not worth a request to the vendor


def _number(info: object, name: str) -> int:
    value = field_of(info, name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0
