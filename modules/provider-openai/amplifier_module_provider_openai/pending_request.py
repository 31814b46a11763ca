"""One call of the provider: what was asked for, and what could not be done."""

from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions
from amplifier_kit.providers.shortfalls import Shortfalls

from .model_facts import ModelFacts


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
    shortfalls: Shortfalls

    @property
    def tools(self) -> list[Any]:
        """The tools of the request, then those of the keyword `tools`."""
        return [*(self.request.tools or ()), *(self.given.get("tools") or ())]
