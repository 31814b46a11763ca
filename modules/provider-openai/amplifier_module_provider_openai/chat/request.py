"""The request of the Chat Completions API."""

from dataclasses import dataclass, field
from typing import Any

from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.response_formats import JsonSchema, wanted_format
from amplifier_kit.providers.shortfalls import WarnOnce, with_extras
from amplifier_module_provider_openai.pending_request import PendingRequest, Prepared
from amplifier_module_provider_openai.request_fields import note_lost, output_cap, resolve_reasoning
from amplifier_module_provider_openai.settings import OpenAISettings
from amplifier_module_provider_openai.tools import OfferedTool, chosen_tool, offered_tool

from .messages import MessageConverter


@dataclass(slots=True)
class RequestBuilder:
    """Builds requests for one provider."""

    settings: OpenAISettings
    warn: WarnOnce
    _converter: MessageConverter = field(default_factory=MessageConverter)
    _offered: IdentityCache[OfferedTool] = field(default_factory=IdentityCache)

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request; an effort that the model does not know is an `InvalidRequestError`."""
        settings, options = self.settings, asked.options
        messages, lost = self._converter.convert(asked.messages, has_vision=asked.facts.supports_vision)
        note_lost(asked, lost)
        cap_name = "max_completion_tokens" if settings.is_default_host else "max_tokens"
        effort = (resolve_reasoning(asked, settings) or {}).get("effort")
        body = {
            "model": options.model,
            "messages": messages,
            **self._tools(asked),
            cap_name: output_cap(asked, settings),
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": options.stop or None,
            "seed": settings.seed,
            "response_format": _response_format(asked),
            "reasoning_effort": None if effort == "none" else effort,
            "prompt_cache_key": settings.prompt_cache_key,
        }
        body = {key: value for key, value in body.items() if value is not None}
        body["stream"] = options.streams
        if options.streams:
            body["stream_options"] = {"include_usage": True}
        return Prepared(with_extras(body, settings.extra_request_params, self.warn))

    def _tools(self, asked: PendingRequest) -> dict[str, Any]:
        tools: list[dict[str, Any]] = []
        for offered in self._offered.get_all(asked.tools, offered_tool):
            if offered.native:
                reason = "the Chat Completions API has no hosted tools"
                asked.shortfalls.add("hosted tools", "the model does without", reason)
            elif offered.function:
                function = {key: value for key, value in offered.function.items() if key != "strict" or value}
                tools.append({"type": "function", "function": function})
        if not tools:
            return {}
        choice = chosen_tool(asked.options.tool_choice)
        if isinstance(choice, dict) and set(choice) == {"name"}:
            choice = {"type": "function", "function": choice}
        return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": self.settings.parallel_tool_calls}


def _response_format(asked: PendingRequest) -> dict[str, Any] | None:
    wanted = wanted_format(asked.request.response_format)
    if isinstance(wanted, JsonSchema):
        return {"type": "json_schema", "json_schema": wanted.to_dict()}
    return {"type": wanted} if wanted else None
