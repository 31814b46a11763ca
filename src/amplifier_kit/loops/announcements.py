"""What hooks are told about requests and responses; what takes work to build is built only if anyone listens."""

import logging
from collections.abc import Callable, Mapping

from amplifier_core import ChatResponse, LLMError, Provider
from amplifier_core.events import CONTENT_BLOCK_END, CONTENT_BLOCK_START, PROVIDER_RESPONSE
from amplifier_core.packages import provider_module_id, provider_name
from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import Call, block_type
from amplifier_kit.messages.conversation import block_dict, content_blocks, display_blocks, usage_of
from amplifier_kit.types import EventData, Message

from .hook_points import HookPoints


class ResponseAnnouncement:
    """Announces one response."""

    def __init__(self, points: HookPoints, response: ChatResponse) -> None:
        self._points = points
        self._response = response
        self._dumped: list[object] | None = None

    async def announce(self, calls: list[Call], *, provider: str, iteration: int) -> None:
        """Emit `provider:response`."""
        points, response = self._points, self._response
        payload: EventData = {
            "provider": provider,
            "iteration": iteration,
            "usage": usage_of(response),
            "tool_calls": bool(calls),
            "finish_reason": json_safe(response.finish_reason),
        }
        if points.listens(PROVIDER_RESPONSE):
            content = self._content() or json_safe(response.content)
            payload["response"] = {"content": content, "tool_calls": [json_safe(call.to_dict()) for call in calls]}
        await points.emit(PROVIDER_RESPONSE, payload)

    async def announce_blocks(self, details: Callable[[object], EventData] = lambda block: {}) -> None:
        """Emit a start and an end for every block: those made for display, else those of the content.

        `details` says what the start of a block made for display carries besides.
        """
        points = self._points
        if not (points.reaches(CONTENT_BLOCK_START) or points.reaches(CONTENT_BLOCK_END)):
            return
        displayed = display_blocks(self._response)
        blocks = displayed or content_blocks(self._response)
        usage = usage_of(self._response)
        total = len(blocks)
        for index, block in enumerate(blocks):
            start = {"block_type": block_type(block), "block_index": index, "total_blocks": total}
            await points.emit(CONTENT_BLOCK_START, {**start, **details(block)} if displayed else start)
            end: EventData = {"block_index": index, "total_blocks": total}
            if points.listens(CONTENT_BLOCK_END):
                end["block"] = json_safe(block_dict(block)) if displayed else self._content()[index]
            if usage is not None:
                end["usage"] = usage
            await points.emit(CONTENT_BLOCK_END, end)

    def _content(self) -> list[object]:
        """Return the blocks of the content as JSON data, made once."""
        if self._dumped is None:
            self._dumped = [json_safe(block_dict(block)) for block in content_blocks(self._response)]
        return self._dumped


def provider_request(
    name: str, provider: Provider, messages: list[Message], *, iteration: int, is_last: bool
) -> EventData:
    """Return the payload of `provider:request`."""
    payload = {"provider": name, "iteration": iteration, "model": model_of(provider), "messages": messages}
    return {**payload, "max_reached": True} if is_last else payload


def provider_error(provider: str, error: Exception) -> EventData:
    """Return the payload of `provider:error`."""
    payload: EventData = {"provider": provider, "error": {"type": type(error).__name__, "msg": str(error)}}
    if isinstance(error, LLMError):
        payload |= {"retryable": error.retryable, "status_code": error.status_code}
    return payload


# Choosing among the mounted providers.


logger = logging.getLogger(__name__)

_DEFAULT_PRIORITY = 100.0


def by_preference(
    providers: Mapping[str, Provider], preferred: str | None, *, rank: bool = True
) -> list[tuple[str, Provider]]:
    """Return name and provider of all that are mounted: the preferred one first, then by priority number.

    Without `rank` the rest keeps the order in which it was mounted.
    """
    ordered = list(providers.items())
    if rank and len(ordered) > 1:
        ordered.sort(key=lambda item: priority_of(item[1]))
    if preferred:
        chosen = next((name for name in _spellings(preferred) if name in providers), None)
        if chosen is None:
            logger.warning("no provider %r is mounted (mounted: %s)", preferred, ", ".join(providers) or "none")
        else:
            ordered.sort(key=lambda item: item[0] != chosen)
    return ordered


def priority_of(provider: Provider) -> float:
    """Return a provider's priority number; lower comes first."""
    priority = getattr(provider, "priority", None)
    if priority is None:
        config = getattr(provider, "config", None)
        priority = config.get("priority") if isinstance(config, Mapping) else None
    if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
        return _DEFAULT_PRIORITY
    return float(priority)


def model_of(provider: Provider) -> str | None:
    """Return the model a provider is set to, as far as it says so."""
    config = getattr(provider, "config", None)
    candidates = [getattr(provider, name, None) for name in ("default_model", "model")]
    if isinstance(config, Mapping):
        candidates += [config.get("default_model"), config.get("model")]
    return next((model for model in candidates if isinstance(model, str) and model), None)


def _spellings(name: str) -> tuple[str, ...]:
    return (name, provider_name(name), provider_module_id(name))
