"""A turn as it is seen: events become lines of an answer and of what was done for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from amplifier_system.visible import visible, visible_line

from .agent_tree import AgentTree
from .answer_stream import AnswerStream
from .details import Details, input_text, outcome_text
from .render import money, shortened, styled
from .session_names import TAINTED
from .tool_lines import called, diff_lines, outcome

Event = Mapping[str, Any]

_THOUGHT = 100


class Page(Protocol):
    """Where a turn is drawn."""

    def answer(self, text: str) -> None:
        """Draw a part of the answer, which is markdown."""

    def line(self, text: str) -> None:
        """Draw a line about what is being done."""

    def status(self, text: str) -> None:
        """Show what is going on right now, until something else does; empty takes it away."""

    def agents(self, lines: Sequence[str]) -> None:
        """Show the tree of the agents that are at work right now; none takes it away."""


class TurnView:
    """Draws the events of a session and its children on a page; with `details`, lines are numbered and kept in full."""

    def __init__(
        self, page: Page, session_id: str, *, show_thinking: bool = True, details: Details | None = None
    ) -> None:
        self._page, self._session_id, self._show_thinking = page, session_id, show_thinking
        self._details = details
        self._stream = AnswerStream()
        self._calls: dict[tuple[str, str], int] = {}
        self._agents = AgentTree()
        self._has_drawn_calls = False
        self._turn_id: str | None = None
        self._handlers: dict[str, Callable[[Event, Mapping[str, Any]], None]] = {
            "llm:stream_block_delta": self._piece,
            "content_block:delta": self._piece,
            "content_block:end": self._block,
            "thinking:delta": self._thinking,
            "provider:request": lambda event, data: self._now(event, "thinking"),
            "llm:response": self._used,
            "provider:retry": self._retry,
            "tool:pre": self._tool,
            "tool:outcome": self._tool_done,
            "tool:error": self._tool_done,
            "approval:denied": lambda event, data: self._note(event, f"denied: {data.get('reason') or 'no reason'}"),
            "delegate:agent_spawned": self._spawned,
            "task:agent_spawned": self._spawned,
            "execution:done": self._child_done,
            "display:message": lambda event, data: self._note(event, str(data.get("message") or "")),
            "session:tainted": lambda event, data: self._note(event, f"this session is tainted: {TAINTED}"),
            "mention:unresolved": lambda event, data: self._note(event, f"{data.get('mention')}: {data.get('reason')}"),
            "module:load_failed": lambda event, data: self._note(
                event, f"{data.get('module_id')}: {data.get('error')}"
            ),
            "budget:warning": lambda event, data: self._note(event, f"80 % of {data.get('limit')} is used"),
            "orchestrator:steering_injected": lambda event, data: self._note(
                event, "the agent has received your message"
            ),
        }

    @property
    def preview(self) -> str:
        """The last words that have arrived and are not drawn yet."""
        return self._stream.preview

    def show(self, event: Event) -> None:
        if self._is_own(event) and event.get("sequence") is not None:
            self._turn_id = None if _is_at_rest(event) else event.get("correlation_id") or self._turn_id
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event, event.get("data") or {})

    def is_end(self, event: Event) -> bool:
        """Say whether an event ends the turn that is shown, or one that failed before there was anything to show.

        A prompt that waits while another turn runs, or is taken out of the queue, has an end of its own, which is
        stored nowhere and has no number.
        """
        if event["event"] != "execution:done" or not self._is_own(event):
            return False
        if event.get("sequence") is not None or event.get("correlation_id") == self._turn_id:
            return True
        return self._turn_id is None and event["data"].get("status") != "cancelled"

    def end(self) -> None:
        """Draw what is left of an answer that came to no end."""
        self._answer(self._stream.finish())
        self._page.status("")
        self._has_drawn_calls = False

    # --- the answer

    def _piece(self, event: Event, data: Mapping[str, Any]) -> None:
        if not self._is_own(event):
            return
        if data.get("block_type") in ("thinking", "reasoning"):
            self._thinking(event, data)
        elif data.get("block_type", "text") == "text" and isinstance(text := data.get("text"), str):
            self._answer(self._stream.feed(visible(text)))
            if self._stream.preview:
                self._page.status(self._stream.preview)

    def _block(self, event: Event, data: Mapping[str, Any]) -> None:
        block = data.get("block") or {}
        if not self._is_own(event):
            return
        if block.get("type") == "text":
            self._page.status("")
            self._answer(self._stream.finish(visible(block.get("text") or "")))
        elif block.get("type") in ("thinking", "reasoning") and self._show_thinking:
            thought = block.get("thinking") or block.get("text") or ""
            if isinstance(thought, str) and thought.strip():
                mark = self._mark(self._keep("∴", thought))
                self._page.line(styled(f"  ∴ {shortened(thought, _THOUGHT)}", "dim") + mark)

    def _answer(self, parts: list[str]) -> None:
        for part in parts:
            self._page.status("")
            if self._has_drawn_calls:
                self._page.line("")
                self._has_drawn_calls = False
            self._page.answer(part)

    def _thinking(self, event: Event, data: Mapping[str, Any]) -> None:
        words = data.get("text") or data.get("delta") or ""
        self._now(event, f"thinking: {words}" if self._show_thinking and words else "thinking")

    # --- what is done for it

    def _tool(self, event: Event, data: Mapping[str, Any]) -> None:
        line = called(str(data.get("tool_name")), data.get("tool_input"))
        number = self._keep(f"● {data.get('tool_name')}", input_text(data.get("tool_input")))
        self._calls[_call_id(event, data)] = number
        self._has_drawn_calls = True
        self._page.line(f"{self._indent(event)}{styled('●', 'cyan')} {line}{self._mark(number)}")
        for changed in diff_lines(data.get("tool_input")):
            self._page.line(f"{self._indent(event)}    {changed}")
        self._now(event, line)

    def _tool_done(self, event: Event, data: Mapping[str, Any]) -> None:
        self._now(event, "")
        number = self._calls.pop(_call_id(event, data), None)
        told = outcome(data) if event["event"] == "tool:outcome" else str(data.get("error") or "")
        if number is None:
            return
        if self._details is not None:
            self._details.extend(number, outcome_text(data))
        if not told:
            return
        failed = event["event"] == "tool:error" or not data.get("success", True)
        mark = styled("✗", "red") if failed else styled("└", "dim")
        self._page.line(f"{self._indent(event)}  {mark} {told if failed else styled(told, 'dim')}")

    def _spawned(self, event: Event, data: Mapping[str, Any]) -> None:
        agent = visible_line(str(data.get("agent") or "agent"))
        self._page.line(f"{self._indent(event)}{styled('▸', 'cyan')} agent {agent}")
        self._agents.begin(str(data.get("sub_session_id") or data.get("session_id")), str(event["session_id"]), agent)
        self._page.agents(self._agents.lines())

    def _used(self, event: Event, data: Mapping[str, Any]) -> None:
        if not self._is_own(event):
            self._agents.count(str(event.get("session_id")), data.get("usage") or {})
            self._page.agents(self._agents.lines())

    def _child_done(self, event: Event, data: Mapping[str, Any]) -> None:
        """Say what an agent used, once its session is done."""
        if self._is_own(event):
            return
        session_id, used = str(event.get("session_id")), summary(data.get("usage") or {})
        indent, agent = self._indent(event), self._agents.name(session_id)
        self._agents.end(session_id)
        self._page.agents(self._agents.lines())
        self._page.line(f"{indent}{styled('▪', 'cyan')} agent {agent} is done: {styled(used, 'dim')}")

    def _retry(self, event: Event, data: Mapping[str, Any]) -> None:
        reason = data.get("error_message") or data.get("error") or data.get("error_type")
        self._note(event, f"the provider failed ({reason}); trying again")

    def _note(self, event: Event, text: str) -> None:
        if text.strip():
            self._page.status("")
            self._page.line(f"{self._indent(event)}{styled(f'  {text}', 'yellow')}")

    def _is_own(self, event: Event) -> bool:
        return event.get("session_id") == self._session_id

    def _indent(self, event: Event) -> str:
        return "" if self._is_own(event) else "    " * self._agents.depth(str(event.get("session_id")))

    def _now(self, event: Event, text: str) -> None:
        """Show what is being done: for the person, or by an agent."""
        if self._is_own(event):
            self._page.status(text)
        elif text:
            self._agents.note(str(event.get("session_id")), text)
            self._page.agents(self._agents.lines())

    def _keep(self, title: str, text: str) -> int:
        return self._details.add(title, text) if self._details is not None else 0

    def _mark(self, number: int) -> str:
        return styled(f" ·{number}", "dim") if number else ""


def _is_at_rest(event: Event) -> bool:
    """Say whether an event tells that a session has nothing to do."""
    return event["event"] == "session:status" and event["data"].get("activity") in ("idle", None)


def _call_id(event: Event, data: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells a call from those of other agents, whose models may count in the same way."""
    return str(event.get("session_id")), str(data.get("tool_call_id"))


def summary(usage: Mapping[str, Any]) -> str:
    """Return what a turn used, in one line."""
    tokens = (usage.get("tokens") or {}).get("total") or 0
    parts = [f"{usage.get('seconds') or 0:.1f} s", f"{tokens:,} tokens"]
    if usage.get("tool_calls"):
        parts.append(f"{usage['tool_calls']} tool calls" if usage["tool_calls"] != 1 else "1 tool call")
    if isinstance(cost := usage.get("cost_usd"), int | float) and cost:
        parts.append(money(cost))
    return " · ".join(parts)
