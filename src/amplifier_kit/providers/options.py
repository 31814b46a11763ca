"""What one call asks for: the request, the caller's keywords and the configuration, in the order that decides."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ChatRequest, Degradation
from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema
from amplifier_kit.types import Config, JsonObject


@dataclass(frozen=True, slots=True)
class OptionDefaults:
    """What the configuration says; None leaves the option out of the vendor's request."""

    model: str
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: list[str] | None = None
    reasoning: str | JsonObject | None = None
    timeout_s: float | None = None
    use_streaming: bool = True


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one call; `timeout_s` holds for each attempt."""

    model: str
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: list[str] | None
    tool_choice: str | JsonObject | None
    reasoning: str | JsonObject | None
    timeout_s: float | None
    streams: bool


def read_options(request: ChatRequest, given: Config, defaults: OptionDefaults) -> CallOptions:
    """Return the options of a call; `given` are the keywords of `complete`, of which unknown ones do not count."""

    def sampling(name: str, default: Any) -> Any:
        return _first(getattr(request, name), given.get(name), default)

    given_tokens = _first(given.get("max_tokens"), given.get("max_output_tokens"))
    effort = _first(given.get("reasoning_effort"), request.reasoning_effort)
    return CallOptions(
        model=given.get("model") or request.model or defaults.model,
        max_output_tokens=_first(request.max_output_tokens, given_tokens, defaults.max_output_tokens),
        temperature=sampling("temperature", defaults.temperature),
        top_p=sampling("top_p", defaults.top_p),
        stop=sampling("stop", defaults.stop),
        tool_choice=_first(given.get("tool_choice"), request.tool_choice),
        reasoning=_first(given.get("reasoning"), effort, defaults.reasoning),
        timeout_s=_first(request.timeout, defaults.timeout_s),
        streams=defaults.use_streaming and (request.metadata or {}).get("stream") is not False,
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None and value != ""), None)


# The form that an answer is asked to have.


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A schema that an answer has to follow."""

    name: str
    schema: JsonObject
    strict: bool

    def to_dict(self) -> JsonObject:
        return {"name": self.name, "schema": self.schema, "strict": self.strict}


def wanted_format(response_format: object) -> JsonSchema | str | None:
    """Return a response format: a schema, the word `json_object`, or None for plain text.

    A schema stands alone, or as the `schema` of a mapping that names it; what has a `type` is a schema itself.
    """
    if isinstance(response_format, ResponseFormatJson):
        return "json_object"
    if not isinstance(response_format, ResponseFormatJsonSchema):
        return None
    given = response_format.json_schema
    schema = given.get("schema")
    wrapper = given if isinstance(schema, dict) and "type" not in given else {"schema": given}
    strict = response_format.strict if response_format.strict is not None else wrapper.get("strict")
    return JsonSchema(str(wrapper.get("name") or "response"), wrapper["schema"], strict is True)


# What a provider does less, or otherwise, than it was asked to: each is logged once, and told with the response.


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
