"""Whether, how and how long the model thinks in one call."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from amplifier_kit.providers.options import CallOptions

from .model_facts import ModelFacts
from .settings import AnthropicSettings

logger = logging.getLogger(__name__)

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
