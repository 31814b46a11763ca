"""The scheduler that keeps a session within its budget."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from amplifier_core import HookResult
from amplifier_core.boundary import emit_quietly
from amplifier_core.events import LLM_RESPONSE, SESSION_END, TOOL_PRE
from amplifier_core.utils.tool_schema import tool_schema
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.scheduling import (
    TOOL_SELECTED,
    Choice,
    Scheduler,
    model_decides_on_error,
    options,
    use_instead,
)
from amplifier_kit.mounting import Handlers, find_mounted, hook_registry
from amplifier_kit.types import EventData

logger = logging.getLogger(__name__)

COST_ALERT = "scheduler:cost_alert"
BUDGET_EXCEEDED = "scheduler:budget_exceeded"
EMITTED_EVENTS = (COST_ALERT, BUDGET_EXCEEDED)

_BOOKKEEPING_PRIORITY = 10
_FULL = 0.8


class CostAwareScheduler(Scheduler):
    """Charges every tool call and lets none pass that the budget does not cover; a cheaper tool may stand in for it.

    With a coordinator it announces alerts and refusals, and replaces a tool only by one that takes the same arguments.
    """

    module_id = "hooks-scheduler-cost-aware"
    handler_prefix = "cost"
    priority = 60

    def __init__(self, config: Mapping[str, Any] | None = None, *, coordinator: Any = None) -> None:
        module_config = ModuleConfig(self.module_id, config)
        self.max_cost = module_config.number("max_cost", 100.0, minimum=0, aliases=("budget_limit",))
        self.alert_threshold = module_config.number("alert_threshold", None)
        self.prefer_cheaper = module_config.boolean("prefer_cheaper", True)
        self.prices = Prices.read(module_config)
        self.track_llm_cost = module_config.boolean("track_llm_cost", False)
        self.enforce_tool_pre = module_config.boolean("enforce_tool_pre", False)
        self.enabled_events = module_config.strings("enabled_events", None)
        module_config.warn_unknown()
        self._coordinator = coordinator
        self._ledger = Ledger()
        self._limit = Decimal(str(self.max_cost))
        self._has_alerted = False
        self._has_reported = False

    @property
    def session_cost(self) -> float:
        """What the session has spent so far."""
        return float(self._ledger.total)

    def register_on(self, handlers: Handlers) -> None:
        super().register_on(handlers)
        self.register_one(handlers, TOOL_SELECTED, self.handle_tool_selected, priority=_BOOKKEEPING_PRIORITY)
        self.register_one(handlers, SESSION_END, self.handle_session_end, priority=_BOOKKEEPING_PRIORITY)
        if self.track_llm_cost:
            self.register_one(handlers, LLM_RESPONSE, self.handle_llm_response, priority=_BOOKKEEPING_PRIORITY)
        if self.enforce_tool_pre:
            self.register_one(handlers, TOOL_PRE, self.handle_tool_pre, priority=self.priority)

    async def select(self, tool_name: str, data: EventData) -> HookResult:
        if self._is_affordable(tool_name):
            return HookResult()
        cheaper = self._find_cheaper(tool_name, data) if self.prefer_cheaper else None
        if cheaper is not None:
            return use_instead(cheaper, data, reason="Cost limit reached, using cheaper alternative")
        return await self._refuse(tool_name)

    def choose_tool(self, available: list[str], data: EventData) -> Choice | None:
        return self.prices.best(available)

    def choose_agent(self, available: list[str], data: EventData) -> Choice | None:
        return self.prices.best(available)

    def should_compact(self, context_size: float, max_size: float) -> bool:
        return context_size >= _FULL * max_size

    @model_decides_on_error
    async def handle_tool_selected(self, event: str, data: EventData) -> HookResult:
        tool_name = data.get("tool_name") or data.get("tool")
        if not isinstance(tool_name, str):
            return HookResult()
        self._ledger.charge(data.get("tool_call_id"), self.prices.cost(tool_name))
        return await self._alert()

    @model_decides_on_error
    async def handle_tool_pre(self, event: str, data: EventData) -> HookResult:
        tool_name, call_id = data.get("tool_name"), data.get("tool_call_id")
        if not isinstance(tool_name, str) or self._ledger.has_charged(call_id):
            return HookResult()
        if not self._is_affordable(tool_name):
            return await self._refuse(tool_name)
        self._ledger.charge(call_id, self.prices.cost(tool_name))
        return await self._alert()

    @model_decides_on_error
    async def handle_llm_response(self, event: str, data: EventData) -> HookResult:
        usage = data.get("usage")
        cost = exact(usage.get("cost_usd")) if isinstance(usage, Mapping) else None
        if cost is None:
            return HookResult()
        self._ledger.add(cost)
        return await self._alert()

    @model_decides_on_error
    async def handle_session_end(self, event: str, data: EventData) -> HookResult:
        self.report()
        self._ledger.reset()
        self._has_alerted = False
        return HookResult()

    def report(self) -> None:
        """Log what the session cost, once."""
        if not self._has_reported:
            self._has_reported = True
            logger.info("%s: the session cost %s of %s", self.module_id, self.session_cost, self.max_cost)

    def _is_affordable(self, tool_name: str) -> bool:
        return self._ledger.total + self.prices.cost(tool_name) <= self._limit

    def _find_cheaper(self, tool_name: str, data: EventData) -> str | None:
        mounted = find_mounted(self._coordinator, "tools")
        arguments = data.get("tool_input")

        def takes_the_arguments(other: str) -> bool:
            if not isinstance(mounted, Mapping) or other not in mounted or not isinstance(arguments, dict):
                return True
            required = tool_schema(mounted[other]).get("required") or []
            return all(key in arguments for key in required)

        return self.prices.cheaper_than(
            tool_name,
            options(data, "available_tools"),
            budget=self._limit - self._ledger.total,
            is_usable=takes_the_arguments,
        )

    async def _refuse(self, tool_name: str) -> HookResult:
        payload = {"tool_name": tool_name, "session_cost": self.session_cost, "max_cost": self.max_cost}
        reason = f"Would exceed cost budget (current: {self.session_cost}, limit: {self.max_cost})"
        await self._emit(BUDGET_EXCEEDED, payload)
        return HookResult(action="deny", reason=reason)

    async def _alert(self) -> HookResult:
        """Announce, once, that the threshold is reached."""
        threshold = self.alert_threshold
        if threshold is None or self._has_alerted or self._ledger.total < Decimal(str(threshold)):
            return HookResult()
        self._has_alerted = True
        spent = {"session_cost": self.session_cost, "alert_threshold": threshold, "max_cost": self.max_cost}
        await self._emit(COST_ALERT, spent)
        text = f"The session has cost {self.session_cost} of {self.max_cost} (alert at {threshold})"
        return HookResult(user_message=text, user_message_level="warning", user_message_source=self.module_id)

    async def _emit(self, event: str, payload: EventData) -> None:
        await emit_quietly(hook_registry(self._coordinator), event, payload)


# What a session has spent, to the last decimal.


ZERO = Decimal(0)


def exact(value: Any) -> Decimal | None:
    """Return a cost as a finite decimal that is not negative, None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and cost >= 0 else None


class Ledger:
    """Adds up costs; a tool call is charged once, however often it is announced."""

    def __init__(self) -> None:
        self.total = ZERO
        self._charged: set[str] = set()

    def has_charged(self, tool_call_id: Any) -> bool:
        return isinstance(tool_call_id, str) and tool_call_id in self._charged

    def charge(self, tool_call_id: Any, cost: Decimal) -> None:
        """Add the cost of a call that has not been charged before; a call without an id is charged every time."""
        if self.has_charged(tool_call_id):
            return
        if tool_call_id and isinstance(tool_call_id, str):
            self._charged.add(tool_call_id)
        self.total += cost

    def add(self, cost: Decimal) -> None:
        self.total += cost

    def reset(self) -> None:
        self.total = ZERO
        self._charged.clear()


DEFAULT_TOOL_COSTS: Mapping[str, float] = {
    "web_search": 5,
    "code_analysis": 10,
    "file_write": 1,
    "file_read": 0.5,
    "bash": 2,
}
_DEFAULT_LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs and latencies by name; the weights add up to 1."""

    costs: Mapping[str, Decimal]
    default_cost: Decimal
    latencies_s: Mapping[str, float]
    cost_weight: float
    latency_weight: float

    @classmethod
    def read(cls, config: ModuleConfig) -> "Prices":
        cost_weight = config.number("cost_weight", 0.6, minimum=0)
        latency_weight = config.number("latency_weight", 0.4, minimum=0)
        total = cost_weight + latency_weight
        costs = _numbers(config.module_id, "tool_costs", config.mapping("tool_costs", DEFAULT_TOOL_COSTS))
        return cls(
            costs={name: Decimal(str(cost)) for name, cost in costs.items()},
            default_cost=Decimal(str(config.number("default_tool_cost", 1.0, minimum=0))),
            latencies_s=_numbers(config.module_id, "tool_latencies", config.mapping("tool_latencies", {})),
            cost_weight=cost_weight / total if total else 0.5,
            latency_weight=latency_weight / total if total else 0.5,
        )

    def cost(self, name: str) -> Decimal:
        return self.costs.get(name, self.default_cost)

    def latency_s(self, name: str) -> float:
        return self.latencies_s.get(name, _DEFAULT_LATENCY_S)

    def cheaper_than(
        self, name: str, available: Sequence[str], *, budget: Decimal, is_usable: Callable[[str], bool]
    ) -> str | None:
        """Return the cheapest usable tool that costs less than `name` and fits the budget, the first among equals."""
        limit = self.cost(name)
        fitting = (
            other for other in available if self.cost(other) < limit and self.cost(other) <= budget and is_usable(other)
        )
        return min(fitting, key=self.cost, default=None)

    def best(self, available: Sequence[str]) -> Choice:
        """Return the option with the best score, the first among equals."""
        dearest = float(max(map(self.cost, available)))
        slowest = max(map(self.latency_s, available))

        def score(name: str) -> float:
            saved = 1 - float(self.cost(name)) / dearest if dearest else 1.0
            gained = 1 - self.latency_s(name) / slowest if slowest else 1.0
            return round(self.cost_weight * saved + self.latency_weight * gained, 4)

        option = max(available, key=score)
        metadata = {
            "cost_weight": self.cost_weight,
            "latency_weight": self.latency_weight,
            "costs": {name: float(self.cost(name)) for name in available},
        }
        rationale = f"{option} costs {float(self.cost(option))} and takes about {self.latency_s(option)} s"
        return Choice(option, score(option), rationale, metadata)


def _numbers(module_id: str, key: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values as numbers that are not negative; raises `ValueError` for any that is not."""
    nested = ModuleConfig(f"{module_id} {key}", values)
    numbers = {name: nested.number(name, None, minimum=0) for name in values}
    return {name: number for name, number in numbers.items() if number is not None}
