"""The body and the headers of one request."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ChatRequest
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions
from amplifier_kit.providers.response_formats import JsonSchema, wanted_format
from amplifier_kit.providers.shortfalls import Shortfalls, WarnOnce, with_extras
from amplifier_kit.types import Block

from .caching import PromptCache, marker
from .conversation import Conversation, ConversationConverter, WireMessage
from .model_facts import ModelFacts, native_tool_beta
from .settings import MODULE_ID, AnthropicSettings
from .thinking import INTERLEAVED_BETA, ThinkingPlan, ThinkingRequest, plan_thinking
from .tools import asks_for_tool, convert_tool, convert_tool_choice, is_forced, mark_last_function, native_type

logger = logging.getLogger(__name__)

_JSON_INSTRUCTION = "Answer with one valid JSON value and nothing else: no explanation, no code fence."


@dataclass(slots=True)
class WireRequest:
    """What is sent, and what is worth telling about it."""

    body: dict[str, Any]
    betas: list[str]
    thinking: ThinkingPlan
    shortfalls: Shortfalls

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def headers(self) -> dict[str, str]:
        return {"anthropic-beta": ",".join(dict.fromkeys(self.betas))} if self.betas else {}

    @property
    def facts(self) -> dict[str, Any]:
        """What `llm:request` tells beyond what every provider does."""
        return {
            "has_system": "system" in self.body,
            "thinking_enabled": self.thinking.is_on,
            "thinking_budget": self.thinking.budget_tokens,
            "interleaved_thinking": INTERLEAVED_BETA in self.betas,
        }


class RequestBuilder:
    """Builds requests; what it made of messages and tools it keeps for as long as they live."""

    def __init__(self, settings: AnthropicSettings) -> None:
        self._settings = settings
        self._converter = ConversationConverter()
        self._cache = PromptCache(infers_from_history=settings.cache_infer_stability_from_history)
        self._tools: IdentityCache[Block] = IdentityCache()
        self._warn = WarnOnce(MODULE_ID)

    def build(
        self,
        request: ChatRequest,
        messages: list[NormalMessage],
        options: CallOptions,
        given: Mapping[str, Any],
        facts: ModelFacts,
    ) -> WireRequest:
        """Return the request for a conversation in plain form; `given` are the keywords of `complete`.

        Raises `InvalidRequestError` when a tool is forced on a model that cannot be forced.
        """
        conversation = self._converter.convert(messages, options.model)
        specs = request.tools or []
        tools = [self._tools.get(spec, convert_tool) for spec in specs]
        betas = [*self._settings.beta_headers, *filter(None, (native_tool_beta(native_type(s) or "") for s in specs))]
        is_parallel = given.get("parallel_tool_calls") is not False
        choice = convert_tool_choice(options.tool_choice, tools, is_parallel=is_parallel)
        if is_forced(choice) and not facts.has_forced_tool_choice:
            reason = f"{options.model} cannot be forced to use a tool; use tool_choice 'auto'"
            raise InvalidRequestError(reason, provider="anthropic", model=options.model)
        asked = ThinkingRequest(options, given, request.max_output_tokens, bool(tools), is_forced(choice))
        thinking = plan_thinking(asked, facts, self._settings)
        wire = WireRequest(
            {"model": options.model, "max_tokens": thinking.max_tokens},
            [*betas, *thinking.betas],
            thinking,
            Shortfalls(self._warn),
        )
        if asks_for_tool(options.tool_choice) and not is_forced(choice):
            wire.shortfalls.add(f"tool_choice {options.tool_choice!r}", "auto", "no such tool is offered")
        for lack in conversation.lacks:
            wire.shortfalls.add(lack, "text", "the API does not take it")
        output = {"effort": thinking.effort, "format": self._output_format(request, conversation, wire)}
        fields = {
            "messages": self._messages(conversation),
            "system": self._system(conversation),
            "tools": self._marked_tools(tools),
            "tool_choice": choice,
            **self._sampling(request, options, given, facts, thinking),
            "stop_sequences": [options.stop] if isinstance(options.stop, str) else options.stop,
            "thinking": thinking.param,
            "output_config": {name: value for name, value in output.items() if value},
        }
        wire.body |= {name: value for name, value in fields.items() if value not in (None, [], {})}
        wire.body["stream"] = options.streams
        wire.body = with_extras(wire.body, self._settings.extra_request_params, self._warn)
        return wire

    def _messages(self, conversation: Conversation) -> list[dict[str, Any]]:
        if not self._settings.enable_prompt_caching:
            return [{**message.body, "content": _short(message)} for message in conversation.messages]
        marked = self._cache.marked(conversation)
        wire = [message.body for message in conversation.messages]
        for place in marked:
            *rest, last = wire[place]["content"]
            wire[place] = {**wire[place], "content": [*rest, {**last, "cache_control": marker()}]}
        return wire

    def _system(self, conversation: Conversation) -> list[Block] | None:
        if not conversation.system:
            return None
        block: Block = {"type": "text", "text": conversation.system}
        if self._settings.enable_prompt_caching:
            block["cache_control"] = marker(ttl_1h=self._settings.cache_stable_region_ttl_1h)
        return [block]

    def _marked_tools(self, tools: list[Block]) -> list[Block]:
        if self._settings.enable_prompt_caching:
            mark_last_function(tools, marker(ttl_1h=self._settings.cache_stable_region_ttl_1h))
        return tools

    def _output_format(self, request: ChatRequest, conversation: Conversation, wire: WireRequest) -> Block | None:
        """Return the format of the answer; what the API has no field for becomes an instruction."""
        wanted = wanted_format(request.response_format)
        if isinstance(wanted, JsonSchema):
            return {"type": "json_schema", "schema": wanted.schema}
        if wanted is not None:
            conversation.system = "\n\n".join(filter(None, (conversation.system, _JSON_INSTRUCTION)))
            reason = "the API has no JSON mode without a schema; the model is asked for it"
            wire.shortfalls.add("json", "text", reason)
        return None

    def _sampling(
        self,
        request: ChatRequest,
        options: CallOptions,
        given: Mapping[str, Any],
        facts: ModelFacts,
        thinking: ThinkingPlan,
    ) -> dict[str, Any]:
        """Return temperature and top_p as far as the model takes them."""
        is_set = {
            name: getattr(request, name) is not None or given.get(name) is not None for name in ("temperature", "top_p")
        }
        if not facts.has_sampling:
            for name in (name for name, by_caller in is_set.items() if by_caller):
                logger.info("%s takes no %s; it is not sent", options.model, name)
            return {}
        if thinking.param is not None:
            return {"temperature": 1.0}
        if options.top_p is not None and not is_set["temperature"]:
            return {"top_p": options.top_p}  # models refuse both at once, and no one asked for the other
        return {"temperature": options.temperature, "top_p": options.top_p}


def _short(message: WireMessage) -> Any:
    """Return the content of a message; a user's that is one text is that text."""
    blocks = message.blocks
    is_text = message.body["role"] == "user" and len(blocks) == 1 and blocks[0]["type"] == "text"
    return blocks[0]["text"] if is_text else blocks
