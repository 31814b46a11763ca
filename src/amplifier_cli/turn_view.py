"""A turn as it is seen: events become lines of an answer and of what was done for it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from amplifier_cli.terminal.render import counted, money, shortened, styled
from amplifier_core.packages import type_from_prefix
from amplifier_system.visible import visible, visible_line

from .failures import retry_words
from .session_names import TAINTED

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
        self._calls: dict[tuple[str, str], tuple[int, str]] = {}
        self._last_drawn: tuple[str, str] | None = None
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
            "module:load_failed": self._missing,
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
        """True if an event ends the turn that is shown, or one that failed before there was anything to show.

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
        self._last_drawn = _call_id(event, data)
        self._calls[self._last_drawn] = (number, line)
        self._has_drawn_calls = True
        self._page.line(f"{self._indent(event)}{styled('●', 'cyan')} {line}{self._mark(number)}")
        for changed in diff_lines(data.get("tool_input")):
            self._page.line(f"{self._indent(event)}    {changed}")
        self._now(event, line)

    def _tool_done(self, event: Event, data: Mapping[str, Any]) -> None:
        self._now(event, "")
        call_id = _call_id(event, data)
        known = self._calls.pop(call_id, None)
        found = outcome(data) if event["event"] == "tool:outcome" else shortened(error_text(data), _WIDE * 2)
        if known is None:
            return
        number, line = known
        if self._details is not None:
            self._details.extend(number, outcome_text(data))
        if not found:
            return
        failed = event["event"] == "tool:error" or not data.get("success", True)
        mark = styled("✗", "red") if failed else styled("└", "dim")
        whose = "" if call_id == self._last_drawn else f"{line}{self._mark(number)}: "  # others were drawn in between
        self._last_drawn = None
        self._page.line(f"{self._indent(event)}  {mark} {whose}{found if failed else styled(found, 'dim')}")

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
        self._note(event, retry_words(data))
        if self._is_own(event):
            self._stream.restart()
            self._page.status(retry_words(data))

    def _missing(self, event: Event, data: Mapping[str, Any]) -> None:
        """Say which module is missing; of a provider without a key, the session's warnings say what matters."""
        if type_from_prefix(str(data.get("module_id"))) != "provider":
            self._note(event, f"{data.get('module_id')}: {data.get('error')}")

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
    """True if an event tells that a session has nothing to do."""
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
    if cost := float(usage.get("cost_usd") or 0):
        parts.append(money(cost))
    return " · ".join(parts)


def cost_words(usage: Mapping[str, Any]) -> str:
    """Return what something cost, and of which models no price is known."""
    priced = {name: part.get("cost_usd") for name, part in (usage.get("by_model") or {}).items()}
    unpriced = ", ".join(visible_line(str(name)) for name, cost in priced.items() if cost is None)
    cost = float(usage.get("cost_usd") or 0)
    if not unpriced:
        return money(cost)
    known = f"at least {money(cost)}" if cost else "the cost is unknown"
    return f"{known}: no price is known for {unpriced}; rates in the provider's config set one"


_FENCES = ("```", "~~~")
_PREVIEW = 70
_AGAIN = "*(The answer broke off and begins again.)*"


class AnswerStream:
    """Collects pieces of an answer; `feed` returns the parts that are complete, `finish` what is left.

    A part ends with an empty line outside of a code block. The pieces of some providers lose spaces or come late; the
    whole text, which is given at the end, is what counts.
    """

    def __init__(self) -> None:
        self._taken = self._rest = self._before = ""

    def restart(self) -> None:
        """Drop what is not drawn: the answer comes again from its beginning, and what is drawn is not drawn twice."""
        self._before, self._taken, self._rest = self._taken or self._before, "", ""

    @property
    def preview(self) -> str:
        """The last line of what has arrived and is not drawn yet."""
        line = self._rest[-_PREVIEW * 4 :].strip().rpartition("\n")[2]
        return line if len(line) <= _PREVIEW else f"…{line[-_PREVIEW:]}"

    def feed(self, piece: str) -> list[str]:
        self._rest += piece
        if "\n" not in piece and not self._before:
            return []
        begun = self._begun_again()
        end = 0 if self._before else _last_end(self._rest)
        if not end:
            return begun
        part, self._rest = self._rest[:end], self._rest[end:]
        self._taken += part
        return [*begun, part.strip("\n")] if part.strip() else begun

    def _begun_again(self) -> list[str]:
        """Pass over what was drawn before the answer broke off; one that comes otherwise now is told from that."""
        before, self._before = self._before, ""
        if self._rest.startswith(before):
            self._taken, self._rest = self._taken + before, self._rest[len(before) :]
            return []
        if before.startswith(self._rest):
            self._before = before
            return []
        return [_AGAIN]

    def finish(self, whole: str | None = None) -> list[str]:
        """Return what was not drawn yet, and begin anew. `whole` is the complete text where it is known."""
        rest, begun = self._rest, list[str]()
        if whole is not None:
            if self._before:
                self._rest = whole
                begun = self._begun_again()
            rest = whole[len(self._taken) :] if whole.startswith(self._taken) else whole
        self._taken = self._rest = self._before = ""
        return [*begun, rest.strip("\n")] if rest.strip() else begun


def _last_end(text: str) -> int:
    """Return where the last complete part of a text ends, 0 when none is complete."""
    end, position, fence = 0, 0, ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        mark = line.lstrip()[:3]
        if mark in _FENCES and (not fence or mark == fence):
            fence = "" if fence else mark
        if not fence and not line.strip() and line.endswith("\n"):
            end = position
    return end


# A tool call in a few lines: what it is about, what came of it, and the change it makes to a file.


_TELLING = ("command", "file_path", "pattern", "query", "path", "url", "agent", "instruction", "name", "action")
_COUNTS = {"count": ("found", "found"), "total_lines": ("line", "lines"), "total_matches": ("match", "matches")}
_WIDE = 60
_MOST_DIFF_LINES = 12


def called(name: str, arguments: Any) -> str:
    """Return a call in one line: the tool, and the argument that tells most."""
    return f"{visible_line(name)} {_summary_of(arguments)}".rstrip()


def outcome(data: Mapping[str, Any]) -> str:
    """Return what came of a call in one line, empty when it is nothing to speak of."""
    result = data.get("result")
    result = result if isinstance(result, Mapping) else {}
    if not data.get("success", True):
        return shortened(error_text(result) or str(data.get("content") or "it failed"), _WIDE * 2)
    return _summed_up(result.get("output"))


def error_text(data: Mapping[str, Any]) -> str:
    """Return the sentence of the `error` of a result or an event, empty where there is none."""
    error = data.get("error")
    text = error.get("message") or error.get("msg") if isinstance(error, Mapping) else error
    return str(text or "")


def diff_lines(arguments: Any) -> Iterator[str]:
    """Yield the lines that an edit takes out and puts in, in colour where the terminal has it."""
    if not isinstance(arguments, Mapping):
        return
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return
    lines = [*difflib.unified_diff(visible(old).splitlines(), visible(new).splitlines(), lineterm="", n=1)][3:]
    for line in lines[:_MOST_DIFF_LINES]:
        yield styled(line, "green" if line.startswith("+") else "red" if line.startswith("-") else "dim")
    if len(lines) > _MOST_DIFF_LINES:
        yield styled(f"… {len(lines) - _MOST_DIFF_LINES} more lines", "dim")


def _summary_of(arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    value = next((arguments[key] for key in _TELLING if arguments.get(key)), None)
    if value is None:
        value = next((each for each in arguments.values() if isinstance(each, str) and each), arguments or "")
    return shortened(value if isinstance(value, str) else json.dumps(value, default=str), _WIDE)


def _summed_up(output: Any) -> str:
    if isinstance(output, Mapping):
        numbers = [counted(output[key], *words) for key, words in _COUNTS.items() if key in output]
        if numbers or "exit_code" in output:
            return ", ".join([*numbers, *([f"exit code {output['exit_code']}"] if "exit_code" in output else [])])
        output = next((each for each in output.values() if isinstance(each, str)), "")
    if not isinstance(output, str) or not output.strip():
        return ""
    lines = visible(output).strip().splitlines()
    return shortened(lines[0], _WIDE) if len(lines) == 1 else f"{len(lines)} lines"


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


# What is drawn as one line, in full: calls of tools with their results, and thoughts.


_MOST = 500


@dataclass
class Detail:
    """A line, and what is behind it."""

    title: str
    parts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for part in self.parts for line in visible(part).splitlines())])


class Details:
    """Numbers what is drawn, from 1; the oldest is forgotten when there is too much."""

    def __init__(self) -> None:
        self._found: dict[int, Detail] = {}
        self.last = 0

    def add(self, title: str, *parts: str) -> int:
        """Keep something and return its number."""
        self.last += 1
        self._found[self.last] = Detail(title, [*parts])
        self._found.pop(self.last - _MOST, None)
        return self.last

    def extend(self, number: int, part: str) -> None:
        if number in self._found:
            self._found[number].parts.append(part)

    def find(self, number: int) -> Detail | None:
        return self._found.get(number)


def input_text(arguments: Any) -> str:
    """Return the input of a call, an argument to a paragraph."""
    if not isinstance(arguments, Mapping):
        return _text(arguments)
    return "\n".join(f"{key}: {_text(value)}" for key, value in arguments.items())


def outcome_text(data: Mapping[str, Any]) -> str:
    """Return what a call returned, or the error that it ended with."""
    result = data.get("result")
    result = result if isinstance(result, Mapping) else {}
    output = result.get("output") if result.get("success", True) else result.get("error")
    return input_text(output if output is not None else data.get("content") or error_text(data))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
