"""The scheduler that chooses by a strategy and knows nothing about the tools."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from amplifier_core import HookResult
from amplifier_kit.config import ModuleConfig, make_do
from amplifier_kit.loops.scheduling import Choice, Scheduler, options, use_instead
from amplifier_kit.types import EventData

_FALLBACK = "first"
_SCORE = 0.5
_FULL = 0.92


class HeuristicScheduler(Scheduler):
    """Refuses tools that are not there and, where that is enabled, replaces the model's choice by its own."""

    module_id = "hooks-scheduler-heuristic"
    handler_prefix = "heuristic"
    priority = 50

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        module_config = ModuleConfig(self.module_id, config)
        self.strategy_name = _strategy_name(module_config)
        self.override_enabled = module_config.boolean("override_enabled", False)
        self.tools = module_config.strings("tools", None)
        self.enabled_events = module_config.strings("enabled_events", None)
        self.strategy = STRATEGIES[self.strategy_name](module_config.integer("seed", None))
        module_config.warn_unknown()

    async def select(self, tool_name: str, data: EventData) -> HookResult:
        available = options(data, "available_tools")
        if available and tool_name not in available:
            return HookResult(action="deny", reason=f"Tool {tool_name} not in available tools")
        candidates = self._candidates(available)
        if not self.override_enabled or not candidates:
            return HookResult()
        chosen = self.strategy.select_tool(candidates, data)
        if chosen == tool_name:
            return HookResult()
        return use_instead(chosen, data, reason=f"{chosen} was chosen by strategy {self.strategy_name}")

    def choose_tool(self, available: list[str], data: EventData) -> Choice | None:
        candidates = self._candidates(available)
        return self._choice(self.strategy.select_tool(candidates, data.get("context"))) if candidates else None

    def choose_agent(self, available: list[str], data: EventData) -> Choice | None:
        return self._choice(self.strategy.select_agent(available, str(data.get("task") or ""), data.get("context")))

    def should_compact(self, context_size: float, max_size: float) -> bool:
        return context_size > _FULL * max_size

    def _candidates(self, available: list[str]) -> list[str]:
        return available if self.tools is None else [name for name in available if name in self.tools]

    def _choice(self, option: str) -> Choice:
        metadata = {"strategy": self.strategy_name}
        return Choice(option, _SCORE, f"{option} was chosen by strategy {self.strategy_name}", metadata)


def _strategy_name(config: ModuleConfig) -> str:
    name = config.raw("strategy")
    if name is None:
        return _FALLBACK
    if isinstance(name, str) and name in STRATEGIES:
        return name
    known = ", ".join(STRATEGIES)
    make_do(f"{config.module_id}: strategy {name!r} is not known ({known})", f"; {_FALLBACK!r} is used")
    return _FALLBACK


# Ways to pick one of several names.


class SelectionStrategy(Protocol):
    """Picks a tool or an agent; from an empty list it picks the empty string."""

    def select_tool(self, available_tools: Sequence[str], context: Any = None) -> str: ...

    def select_agent(self, available_agents: Sequence[str], task: str = "", context: Any = None) -> str: ...


class FirstAvailableStrategy:
    """Always the first."""

    def select_tool(self, available_tools: Sequence[str], context: Any = None) -> str:
        return available_tools[0] if available_tools else ""

    def select_agent(self, available_agents: Sequence[str], task: str = "", context: Any = None) -> str:
        return available_agents[0] if available_agents else ""


class RoundRobinStrategy:
    """One after the other, tools and agents counted separately."""

    def __init__(self) -> None:
        self._picked = {"tool": 0, "agent": 0}

    def select_tool(self, available_tools: Sequence[str], context: Any = None) -> str:
        return self._next("tool", available_tools)

    def select_agent(self, available_agents: Sequence[str], task: str = "", context: Any = None) -> str:
        return self._next("agent", available_agents)

    def _next(self, kind: str, available: Sequence[str]) -> str:
        if not available:
            return ""
        index = self._picked[kind] % len(available)
        self._picked[kind] += 1
        return available[index]


class RandomStrategy:
    """Any of them, the same ones again for the same seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def select_tool(self, available_tools: Sequence[str], context: Any = None) -> str:
        return self._random.choice(available_tools) if available_tools else ""

    def select_agent(self, available_agents: Sequence[str], task: str = "", context: Any = None) -> str:
        return self._random.choice(available_agents) if available_agents else ""


STRATEGIES: dict[str, Callable[[int | None], SelectionStrategy]] = {
    "first": lambda seed: FirstAvailableStrategy(),
    "round-robin": lambda seed: RoundRobinStrategy(),
    "random": RandomStrategy,
}
