"""What one call asks for: the request, the caller's keywords and the configuration, in the order that decides."""

from dataclasses import dataclass
from typing import Any

from amplifier_core import ChatRequest
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

    asked_tokens = _first(given.get("max_tokens"), given.get("max_output_tokens"))
    effort = _first(given.get("reasoning_effort"), request.reasoning_effort)
    return CallOptions(
        model=given.get("model") or request.model or defaults.model,
        max_output_tokens=_first(request.max_output_tokens, asked_tokens, defaults.max_output_tokens),
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
