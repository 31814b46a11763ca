"""One call of the provider: what was asked for, and what could not be done."""

import logging
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, Degradation
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions

from .model_facts import ModelFacts

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Shortfalls:
    """What a call does less than was asked; each is logged."""

    _found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, requested: str, actual: str, reason: str) -> None:
        if requested not in self._found:
            logger.warning("provider-openai: %s is not possible: %s; instead: %s", requested, reason, actual)
            self._found[requested] = (actual, reason)

    @property
    def degradation(self) -> Degradation | None:
        """All of them as the response tells it, None when everything was done."""
        if not self._found:
            return None
        actual, reasons = zip(*self._found.values(), strict=True)
        return Degradation(requested=", ".join(self._found), actual="; ".join(actual), reason="; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request to send. A chained one says only what is new; `full_input` is the whole conversation."""

    body: dict[str, Any]
    full_input: list[dict[str, Any]] = field(default_factory=list)
    chained_to: str | None = None

    def unchained(self) -> dict[str, Any]:
        """Return the body with the whole conversation in it."""
        rest = {key: value for key, value in self.body.items() if key != "previous_response_id"}
        return {**rest, "input": self.full_input}


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request on its way, its messages in plain form: `stored` as they came, `messages` in the order to be sent.

    `given` are the caller's keywords; `is_repaired` tells that results had to be made up for calls that had none.
    """

    call: ProviderCall
    request: ChatRequest
    given: dict[str, Any]
    options: CallOptions
    facts: ModelFacts
    stored: list[NormalMessage]
    messages: list[NormalMessage]
    is_repaired: bool
    shortfalls: Shortfalls = field(default_factory=Shortfalls)

    @property
    def tools(self) -> list[Any]:
        """The tools of the request, then those of the keyword `tools`."""
        return [*(self.request.tools or ()), *(self.given.get("tools") or ())]
