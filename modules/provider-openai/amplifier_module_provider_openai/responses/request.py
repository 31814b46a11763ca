"""The request of the Responses API."""

import logging
from dataclasses import dataclass, field
from typing import Any

from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.response_formats import JsonSchema, wanted_format
from amplifier_kit.providers.shortfalls import WarnOnce, with_extras
from amplifier_module_provider_openai.pending_request import PendingRequest, Prepared
from amplifier_module_provider_openai.request_fields import note_lost, output_cap, resolve_reasoning
from amplifier_module_provider_openai.settings import OpenAISettings, parse_chaining
from amplifier_module_provider_openai.tools import OfferedTool, chosen_tool, offered_tool

from .items import RESPONSE_ID, Input, ItemConverter

logger = logging.getLogger(__name__)

_MIN_OUTPUT_TOKENS = 16
_ENCRYPTED_REASONING = "reasoning.encrypted_content"


@dataclass(slots=True)
class RequestBuilder:
    """Builds requests for one provider."""

    settings: OpenAISettings
    warn: WarnOnce
    is_chaining_lost: bool = False  # the server does not keep responses
    _converter: ItemConverter = field(default_factory=ItemConverter)
    _offered: IdentityCache[OfferedTool] = field(default_factory=IdentityCache)

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request; an effort that the model does not know is an `InvalidRequestError`."""
        settings, options, facts = self.settings, asked.options, asked.facts
        is_chaining = self._is_chaining(asked)
        convert = self._converter.convert
        full = convert(asked.messages, replays=not is_chaining, has_vision=facts.supports_vision)
        last = _last_response(asked) if is_chaining and not asked.is_repaired else None
        chained_to, rest = None, full
        if last is not None:
            chained_to = last.metadata[RESPONSE_ID]
            place = next(at for at, message in enumerate(asked.messages) if message is last)
            rest = convert(asked.messages[place + 1 :], replays=False, has_vision=facts.supports_vision)
        self._note_shortfalls(asked, full)
        store = is_chaining or settings.enable_state
        reasoning = resolve_reasoning(asked, settings)
        cap = output_cap(asked, settings)
        body = {
            "model": options.model,
            "input": rest.items,
            "store": store,
            "instructions": full.instructions or None,
            "max_output_tokens": None if cap is None else max(cap, _MIN_OUTPUT_TOKENS),
            "temperature": options.temperature,
            "top_p": options.top_p,
            "reasoning": reasoning,
            "include": None if store or not _will_reason(asked, reasoning) else [_ENCRYPTED_REASONING],
            **self._tools(asked),
            "max_tool_calls": asked.given.get("max_tool_calls"),
            "truncation": settings.truncation,
            "text": self._text(asked),
            "prompt_cache_key": settings.prompt_cache_key,
            "prompt_cache_retention": self._retention(asked),
            "safety_identifier": settings.safety_identifier,
            "previous_response_id": chained_to,
        }
        body = {key: value for key, value in body.items() if value is not None}
        body["stream"] = options.streams
        return Prepared(with_extras(body, settings.extra_request_params, self.warn), full.items, chained_to)

    def _is_chaining(self, asked: PendingRequest) -> bool:
        given = asked.given.get("enable_response_chaining")
        chaining = (None if given is None else parse_chaining(given)) or self.settings.enable_response_chaining
        wants = chaining == "true" or (chaining == "auto" and asked.facts.supports_reasoning)
        return wants and not self.is_chaining_lost

    def _tools(self, asked: PendingRequest) -> dict[str, Any]:
        tools: list[dict[str, Any]] = []
        for offered in self._offered.get_all(asked.tools, offered_tool):
            if offered.native:
                tools.append(offered.native)
            elif offered.function:
                tools.append({"type": "function", **offered.function})
        if not tools:
            return {}
        choice = chosen_tool(asked.options.tool_choice) or "auto"
        if isinstance(choice, dict) and set(choice) == {"name"}:
            choice = {"type": "function", **choice}
        return {
            "tools": tools,
            "tool_choice": choice,
            "parallel_tool_calls": self.settings.parallel_tool_calls,
        }

    def _text(self, asked: PendingRequest) -> dict[str, Any] | None:
        text: dict[str, Any] = {}
        wanted = wanted_format(asked.request.response_format)
        if isinstance(wanted, JsonSchema):
            text["format"] = {"type": "json_schema", **wanted.to_dict()}
        elif wanted:
            text["format"] = {"type": wanted}
        if self.settings.text_verbosity:
            text["verbosity"] = self.settings.text_verbosity
        return text or None

    def _retention(self, asked: PendingRequest) -> str | None:
        retention = self.settings.prompt_cache_retention
        if retention is None or not asked.facts.rejects_retention(retention):
            return retention
        logger.warning("provider-openai: %s rejects prompt_cache_retention %r", asked.options.model, retention)
        return None

    def _note_shortfalls(self, asked: PendingRequest, full: Input) -> None:
        if asked.options.stop:
            asked.shortfalls.add("stop", "the answer is not stopped", "the Responses API has no stop sequences")
        note_lost(asked, full.lost)


def _will_reason(asked: PendingRequest, reasoning: dict[str, Any] | None) -> bool:
    effort = (reasoning or {}).get("effort")
    return effort != "none" if effort is not None else asked.facts.supports_reasoning


def _last_response(asked: PendingRequest) -> NormalMessage | None:
    """Return the last answer that the vendor has kept, if what was said since can be sent without what was before."""
    stored = asked.stored
    for place in range(len(stored) - 1, -1, -1):
        response_id = stored[place].metadata.get(RESPONSE_ID) if stored[place].role == "assistant" else None
        if isinstance(response_id, str) and response_id:
            return stored[place] if _is_answered(stored, place) else None
    return None


def _is_answered(messages: list[NormalMessage], place: int) -> bool:
    """Say whether what follows answers the calls made at that place, and no earlier ones."""
    later = messages[place:]
    results = {result.call_id for message in later for result in message.results}
    made = {call["id"] for message in later for call in message.calls}
    return {call["id"] for call in messages[place].calls} <= results <= made
