"""Ways to pick one of several names."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol


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
