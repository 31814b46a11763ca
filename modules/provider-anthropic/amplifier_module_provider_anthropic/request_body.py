"""The body and the headers of one request."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amplifier_core import ChatRequest, ToolSpec
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, clean
from amplifier_kit.providers.options import CallOptions, JsonSchema, Shortfalls, WarnOnce, wanted_format, with_extras
from amplifier_kit.types import Block

from .conversation import Conversation, ConversationConverter, PromptCache, WireMessage, marker
from .settings import MODULE_ID, AnthropicSettings, ModelFacts, native_tool_beta

logger = logging.getLogger(__name__)

# Whether, how and how long the model thinks in one call.


INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
UPDATES_BETA = "thinking-display-updates-2026-08-18"

_LEAST_BUDGET_TOKENS = 1024
_LOW_BUDGET_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """What one request says about thinking; `param` is its field `thinking`, None when there is none."""

    is_on: bool
    max_tokens: int
    param: dict[str, Any] | None = None
    effort: str | None = None
    betas: tuple[str, ...] = ()

    @property
    def budget_tokens(self) -> int | None:
        return self.param.get("budget_tokens") if self.param else None

    @property
    def is_manual(self) -> bool:
        return self.param is not None and self.param["type"] == "enabled"

    @property
    def shows_updates(self) -> bool:
        return self.param is not None and self.param.get("display") == "updates"


@dataclass(frozen=True, slots=True)
class ThinkingRequest:
    """What a call asks for: the options, the keywords of `complete`, and what else bears on it."""

    options: CallOptions
    given: Mapping[str, Any]
    cap_tokens: int | None  # more than this the caller does not want to get
    has_tools: bool
    is_tool_forced: bool

    @property
    def effort(self) -> str | None:
        asked = self.options.reasoning
        effort = asked.get("effort") if isinstance(asked, Mapping) else asked
        return str(effort).lower() if effort and effort != "none" else None


def plan_thinking(asked: ThinkingRequest, facts: ModelFacts, settings: AnthropicSettings) -> ThinkingPlan:
    """Return what to send; where that differs from what was asked for, the log says so."""
    max_tokens = asked.options.max_output_tokens or facts.max_output_tokens
    plain = ThinkingPlan(is_on=False, max_tokens=max_tokens)
    explicit = _first(asked.given.get("extended_thinking"), settings.extended_thinking)
    is_wanted = bool(explicit) if explicit is not None else asked.effort is not None
    if facts.thinking == "none":
        if is_wanted:
            logger.info("%s cannot think; the request to think is ignored", asked.options.model)
        return plain
    if facts.can_disable_thinking and explicit is not None and not explicit:
        return plain
    effort = _effort(asked, facts)
    if facts.thinking == "implicit":
        _report_unsent_budget(asked, settings, None, f"{asked.options.model} decides itself how long it thinks")
        return replace(plain, is_on=True, effort=effort)
    if facts.can_disable_thinking and not is_wanted:
        return plain
    plan = _plan_wanted(asked, facts, settings, max_tokens)
    if plan.is_manual and asked.is_tool_forced:
        logger.warning("%s does not think in this call: a tool is forced", asked.options.model)
        plan = plain
    return replace(plan, effort=effort)


def _plan_wanted(
    asked: ThinkingRequest, facts: ModelFacts, settings: AnthropicSettings, max_tokens: int
) -> ThinkingPlan:
    kind = _kind(asked, facts, settings)
    is_interleaved = kind == "enabled" and asked.has_tools and facts.family != "haiku"
    budget = _budget(asked, facts, settings)
    budget = max(_LEAST_BUDGET_TOKENS, min(budget, facts.max_output_tokens - (0 if is_interleaved else 1)))
    if asked.cap_tokens is None:
        max_tokens = min(max(max_tokens, budget + settings.thinking_budget_buffer), facts.max_output_tokens)
    elif kind == "enabled":
        budget = min(budget, asked.cap_tokens - 1)
        if budget < _LEAST_BUDGET_TOKENS:
            reason = f"max_output_tokens is {asked.cap_tokens}"
            logger.warning("%s does not think in this call: %s", asked.options.model, reason)
            _report_unsent_budget(asked, settings, None, reason)
            return ThinkingPlan(is_on=False, max_tokens=max_tokens)
    param: dict[str, Any] = {"type": kind}
    if kind == "enabled":
        param["budget_tokens"] = budget
        _report_unsent_budget(asked, settings, budget, "the model's and the request's limits")
    else:
        _report_unsent_budget(asked, settings, None, "with adaptive thinking the model decides")
    betas = [INTERLEAVED_BETA] if is_interleaved else []
    if facts.has_display:
        param["display"] = settings.thinking_display
        betas += [UPDATES_BETA] if settings.thinking_display == "updates" else []
    elif settings.thinking_display == "updates":
        logger.warning("%s has no thinking display 'updates'; it shows summaries", asked.options.model)
    return ThinkingPlan(is_on=True, max_tokens=max_tokens, param=param, betas=tuple(betas))


def _kind(asked: ThinkingRequest, facts: ModelFacts, settings: AnthropicSettings) -> str:
    kind = asked.given.get("thinking_type")
    if kind is None and asked.effort is not None:
        kind = "enabled" if asked.effort == "low" else "adaptive"
    if kind is None:
        kind = settings.thinking_type
    return str(kind) if kind in facts.thinking_types else facts.thinking_types[0]


def _budget(asked: ThinkingRequest, facts: ModelFacts, settings: AnthropicSettings) -> int:
    explicit = _explicit_budget(asked, settings)[1]
    if explicit is not None:
        return explicit
    return _LOW_BUDGET_TOKENS if asked.effort == "low" else facts.budget_tokens


def _explicit_budget(asked: ThinkingRequest, settings: AnthropicSettings) -> tuple[str, int | None]:
    """Return where a budget was asked for, and the budget."""
    given = asked.given.get("thinking_budget_tokens")
    if isinstance(given, int):
        return "the keyword thinking_budget_tokens", given
    return "the config key thinking_budget_tokens", settings.thinking_budget_tokens


def _report_unsent_budget(asked: ThinkingRequest, settings: AnthropicSettings, sent: int | None, reason: str) -> None:
    key, wanted = _explicit_budget(asked, settings)
    if wanted is not None and wanted != sent:
        logger.warning("%s asks for %d, %s is sent: %s", key, wanted, "none" if sent is None else sent, reason)


def _effort(asked: ThinkingRequest, facts: ModelFacts) -> str | None:
    """Return the effort that the model is told, if it knows that level."""
    effort = asked.effort
    if effort is None or effort in facts.effort_levels:
        return effort
    known = ", ".join(facts.effort_levels) or "none"
    logger.warning("%s has no effort level %r (levels: %s); none is sent", asked.options.model, effort, known)
    return None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


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


# The tools a request offers, and which of them the model is told to use.


_FORCED = ("any", "tool")
_WORDS = {"auto": "auto", "none": "none", "required": "any", "any": "any"}


def convert_tool(spec: ToolSpec) -> Block:
    """Return one tool for a request; one of the vendor's own, which has a type, goes as it is."""
    extras = spec.model_extra or {}
    if native_type(spec):
        return {"name": spec.name, **{key: value for key, value in extras.items() if value is not None}}
    tool = {
        "name": spec.name,
        "description": clean(spec.description or ""),
        "input_schema": {"type": "object", **clean(spec.parameters)},
    }
    return {**tool, "strict": extras["strict"]} if extras.get("strict") is not None else tool


def native_type(spec: ToolSpec) -> str | None:
    """Return the type of a tool of the vendor's own, None for every other."""
    kind = (spec.model_extra or {}).get("type")
    return kind if isinstance(kind, str) and kind != "function" else None


def mark_last_function(tools: list[Block], marker: Block) -> None:
    """Put a cache marker on the last tool that is not the vendor's own."""
    place = next((place for place in reversed(range(len(tools))) if "input_schema" in tools[place]), None)
    if place is not None:
        tools[place] = {**tools[place], "cache_control": marker}


def convert_tool_choice(choice: Any, tools: Sequence[Block], *, is_parallel: bool) -> Block | None:
    """Return the field `tool_choice`, None when there is nothing to say or the tool to be forced is not offered."""
    if not tools:
        return None
    offered = {tool["name"] for tool in tools}
    wire = _choice(choice, offered)
    if wire is not None and wire.get("type") == "tool" and wire.get("name") not in offered:
        wire = None
    if is_parallel or (wire is not None and wire.get("type") == "none"):
        return wire
    return {**(wire or {"type": "auto"}), "disable_parallel_tool_use": True}


def asks_for_tool(choice: Any) -> bool:
    """True if a caller wants a tool to be called, in whatever words."""
    word = choice.get("type") if isinstance(choice, Mapping) else choice
    return word not in (None, "", "auto", "none")


def is_forced(choice: Block | None) -> bool:
    """True if the model must call a tool."""
    return choice is not None and choice.get("type") in _FORCED


def _choice(choice: Any, offered: set[str]) -> Block | None:
    match choice:
        case str() if choice in _WORDS:
            return {"type": _WORDS[choice]}
        case str() if choice in offered:
            return {"type": "tool", "name": choice}
        case {"type": "function", "function": {"name": str() as name}}:
            return {"type": "tool", "name": name}
        case {"type": "function", "name": str() as name}:
            return {"type": "tool", "name": name}
        case {"type": "required"}:
            return {"type": "any"}
        case Mapping():
            return dict(choice)
    return None
