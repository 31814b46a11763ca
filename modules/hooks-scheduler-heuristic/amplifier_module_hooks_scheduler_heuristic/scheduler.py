"""The scheduler that chooses by a strategy and knows nothing about the tools."""

from collections.abc import Mapping
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import ModuleConfig, make_do
from amplifier_kit.loops.scheduling import Choice, Scheduler, options, use_instead
from amplifier_kit.types import EventData

from .strategies import STRATEGIES

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
