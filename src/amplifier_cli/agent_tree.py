"""The agents that are at work for a session: who delegates to whom, what each does, and what it used so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_system.visible import visible_line

from .render import money


@dataclass
class _Agent:
    name: str
    parent_id: str
    doing: str = "begins"
    tokens: int = 0
    cost_usd: float = 0.0

    def __str__(self) -> str:
        parts = [visible_line(f"{self.name}: {self.doing}"), f"{self.tokens:,} tokens"]
        return " · ".join([*parts, money(self.cost_usd)] if self.cost_usd else parts)


class AgentTree:
    """Knows the running agents by their sessions; one that is done is taken out."""

    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        self._names: dict[str, str] = {}

    def begin(self, session_id: str, parent_id: str, name: str) -> None:
        self._names[session_id] = name
        self._agents[session_id] = _Agent(name, parent_id)

    def note(self, session_id: str, doing: str) -> None:
        if agent := self._agents.get(session_id):
            agent.doing = doing

    def count(self, session_id: str, usage: Mapping[str, Any]) -> None:
        """Add what one call of a model used."""
        if agent := self._agents.get(session_id):
            agent.tokens += int(usage.get("total_tokens") or 0)
            agent.cost_usd += float(usage.get("cost_usd") or 0)

    def end(self, session_id: str) -> None:
        self._agents.pop(session_id, None)

    def name(self, session_id: str) -> str:
        """Return the name of an agent that works or has worked; `agent` where none is known."""
        return self._names.get(session_id, "agent")

    def depth(self, session_id: str) -> int:
        """Return how many agents are above a session's agent, itself included."""
        depth = 1
        while (agent := self._agents.get(session_id)) and agent.parent_id in self._agents:
            depth, session_id = depth + 1, agent.parent_id
        return depth

    def lines(self) -> list[str]:
        """Return the tree, a line to an agent."""
        roots = [child for child, agent in self._agents.items() if agent.parent_id not in self._agents]
        return [*self._below(roots, "")]

    def _below(self, children: list[str], indent: str) -> Iterator[str]:
        for child in children:
            is_last = child == children[-1]
            yield f"{indent}{'└' if is_last else '├'} {self._agents[child]}"
            theirs = [one for one, agent in self._agents.items() if agent.parent_id == child]
            yield from self._below(theirs, f"{indent}{'  ' if is_last else '│ '}")
