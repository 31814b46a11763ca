"""A turn as it is seen: events become lines of an answer and of what was done for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .answer_stream import AnswerStream
from .render import money, shortened, styled
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


class TurnView:
    """Draws the events of a session and its children on a page."""

    def __init__(self, page: Page, session_id: str, *, show_thinking: bool = True) -> None:
        self._page, self._session_id, self._show_thinking = page, session_id, show_thinking
        self._stream = AnswerStream()
        self._calls: dict[str, str] = {}
        self._agents: dict[str, str] = {}
        self._handlers: dict[str, Callable[[Event, Mapping[str, Any]], None]] = {
            "llm:stream_block_delta": self._piece,
            "content_block:delta": self._piece,
            "content_block:end": self._block,
            "thinking:delta": self._thinking,
            "provider:request": lambda event, data: self._page.status(self._who(event, "thinking")),
            "provider:retry": self._retry,
            "tool:pre": self._tool,
            "tool:outcome": self._tool_done,
            "tool:error": self._tool_done,
            "approval:denied": lambda event, data: self._note(event, f"denied: {data.get('reason') or 'no reason'}"),
            "delegate:agent_spawned": self._spawned,
            "task:agent_spawned": self._spawned,
            "execution:done": self._child_done,
            "display:message": lambda event, data: self._note(event, str(data.get("message") or "")),
            "mention:unresolved": lambda event, data: self._note(event, f"{data.get('mention')}: {data.get('reason')}"),
            "module:load_failed": lambda event, data: self._note(
                event, f"{data.get('module_id')}: {data.get('error')}"
            ),
            "budget:warning": lambda event, data: self._note(event, f"80 % of {data.get('limit')} is used"),
            "orchestrator:steering_injected": lambda event, data: self._note(
                event, "your words have reached the agent"
            ),
        }

    @property
    def preview(self) -> str:
        """The last words that have arrived and are not drawn yet."""
        return self._stream.preview

    def show(self, event: Event) -> None:
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event, event.get("data") or {})

    def end(self) -> None:
        """Draw what is left of an answer that came to no end."""
        self._answer(self._stream.finish())
        self._page.status("")

    # --- the answer

    def _piece(self, event: Event, data: Mapping[str, Any]) -> None:
        if not self._is_own(event):
            return
        if data.get("block_type") in ("thinking", "reasoning"):
            self._thinking(event, data)
        elif data.get("block_type", "text") == "text" and isinstance(text := data.get("text"), str):
            self._answer(self._stream.feed(text))
            if self._stream.preview:
                self._page.status(self._stream.preview)

    def _block(self, event: Event, data: Mapping[str, Any]) -> None:
        block = data.get("block") or {}
        if not self._is_own(event):
            return
        if block.get("type") == "text":
            self._page.status("")
            self._answer(self._stream.finish(block.get("text") or ""))
        elif block.get("type") in ("thinking", "reasoning") and self._show_thinking:
            thought = block.get("thinking") or block.get("text") or ""
            if isinstance(thought, str) and thought.strip():
                self._page.line(styled(f"  ∴ {shortened(thought, _THOUGHT)}", "dim"))

    def _answer(self, parts: list[str]) -> None:
        for part in parts:
            self._page.status("")
            self._page.answer(part)

    def _thinking(self, event: Event, data: Mapping[str, Any]) -> None:
        words = data.get("text") or data.get("delta") or ""
        self._page.status(self._who(event, f"thinking: {words}" if self._show_thinking and words else "thinking"))

    # --- what is done for it

    def _tool(self, event: Event, data: Mapping[str, Any]) -> None:
        line = called(str(data.get("tool_name")), data.get("tool_input"))
        self._calls[str(data.get("tool_call_id"))] = line
        self._page.line(f"{self._indent(event)}{styled('●', 'cyan')} {line}")
        for changed in diff_lines(data.get("tool_input")):
            self._page.line(f"{self._indent(event)}    {changed}")
        self._page.status(self._who(event, line))

    def _tool_done(self, event: Event, data: Mapping[str, Any]) -> None:
        self._page.status("")
        line = self._calls.pop(str(data.get("tool_call_id")), None)
        told = outcome(data) if event["event"] == "tool:outcome" else str(data.get("error") or "")
        if line is None or not told:
            return
        failed = event["event"] == "tool:error" or not data.get("success", True)
        mark = styled("✗", "red") if failed else styled("⎿", "dim")
        self._page.line(f"{self._indent(event)}  {mark} {told if failed else styled(told, 'dim')}")

    def _spawned(self, event: Event, data: Mapping[str, Any]) -> None:
        agent = str(data.get("agent") or "agent")
        self._agents[str(data.get("sub_session_id") or data.get("session_id"))] = agent
        self._page.line(f"{self._indent(event)}{styled('▸', 'cyan')} agent {agent}")

    def _child_done(self, event: Event, data: Mapping[str, Any]) -> None:
        """Say what an agent used, once its session is done."""
        if not self._is_own(event):
            agent = self._agents.get(str(event.get("session_id")), "")
            used = summary(data.get("usage") or {})
            self._page.line(f"    {styled('▪', 'cyan')} agent {agent} is done: {styled(used, 'dim')}")

    def _retry(self, event: Event, data: Mapping[str, Any]) -> None:
        self._note(event, f"the provider failed ({data.get('error') or data.get('error_type')}); trying again")

    def _note(self, event: Event, text: str) -> None:
        if text.strip():
            self._page.status("")
            self._page.line(f"{self._indent(event)}{styled(f'  {text}', 'yellow')}")

    def _is_own(self, event: Event) -> bool:
        return event.get("session_id") == self._session_id

    def _indent(self, event: Event) -> str:
        return "" if self._is_own(event) else "    "

    def _who(self, event: Event, text: str) -> str:
        agent = self._agents.get(str(event.get("session_id")), "agent")
        return text if self._is_own(event) else f"{agent}: {text}"


def summary(usage: Mapping[str, Any]) -> str:
    """Return what a turn used, in one line."""
    tokens = (usage.get("tokens") or {}).get("total") or 0
    parts = [f"{usage.get('seconds') or 0:.1f} s", f"{tokens:,} tokens"]
    if usage.get("tool_calls"):
        parts.append(f"{usage['tool_calls']} tool calls" if usage["tool_calls"] != 1 else "1 tool call")
    if isinstance(cost := usage.get("cost_usd"), int | float) and cost:
        parts.append(money(cost))
    return " · ".join(parts)
