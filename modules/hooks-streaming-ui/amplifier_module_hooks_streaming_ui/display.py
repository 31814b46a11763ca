"""The hook that prints a session, and the preferences that a host takes from it."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from amplifier_core import HookResult
from amplifier_core.handler_call import Handler
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING
from amplifier_kit.mounting import find_capability
from amplifier_kit.types import AGENT_TOOLS
from amplifier_system.visible import visible, visible_line

MODULE_ID = "hooks-streaming-ui"
RENDERER = "ui.renderer"
"""Registered by a host that shows sessions itself: then nothing is printed here."""

_LINE = 120


@dataclass(frozen=True, slots=True)
class Preferences:
    """How a person wants a session to be shown."""

    show_thinking_stream: bool = True
    show_tool_lines: int = 5
    show_token_usage: bool = True
    stream_tokens: bool = False
    spawn_tools: tuple[str, ...] = tuple(sorted(AGENT_TOOLS))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "spawn_tools": list(self.spawn_tools)}


class StreamingUIHooks:
    """Prints text, thinking, tool calls and usage of a session; of a child only its tools and its last text."""

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None, stream: TextIO | None = None) -> None:
        self._coordinator, self._stream = coordinator, stream
        read = ModuleConfig(MODULE_ID, config)
        ui = ModuleConfig(f"{MODULE_ID} ui", read.mapping("ui", {}))
        self.enabled_events = read.strings("enabled_events", None)
        self.preferences = Preferences(
            show_thinking_stream=ui.boolean("show_thinking_stream", True),
            show_tool_lines=ui.integer("show_tool_lines", 5, minimum=0),
            show_token_usage=ui.boolean("show_token_usage", True),
            stream_tokens=ui.boolean("stream_tokens", False),
            spawn_tools=tuple(ui.strings("spawn_tools", sorted(AGENT_TOOLS))),
        )
        ui.warn_unknown()
        read.warn_unknown()
        self._is_streamed = False
        self._last_text = ""

    def handlers(self) -> dict[str, Handler]:
        """Return what is listened to, by event."""
        own: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "content_block:start": self._block_start,
            "content_block:end": self._block_end,
            "tool:pre": self._tool_pre,
            "tool:post": self._tool_post,
            "orchestrator:complete": self._complete,
        }
        if self.preferences.stream_tokens and self._out.isatty():
            own |= {
                "llm:stream_block_delta": self._delta,
                "llm:stream_block_end": self._stream_end,
                "llm:stream_aborted": self._stream_end,
            }
        return {event: self._handler(show) for event, show in own.items()}

    @property
    def is_silent(self) -> bool:
        """Whether a host shows the session."""
        has_display = getattr(self._coordinator, "display_system", None) is not None
        return has_display or find_capability(self._coordinator, RENDERER) is not None

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stdout

    @property
    def _is_child(self) -> bool:
        session = getattr(self._coordinator, "session", None)
        parent = getattr(session, "parent_id", None) or getattr(self._coordinator, "parent_id", None)
        return isinstance(parent, str) and bool(parent)

    def _handler(self, show: Callable[[Mapping[str, Any]], None]) -> Handler:
        async def handle(event: str, data: dict[str, Any]) -> HookResult:
            if isinstance(data, Mapping) and not self.is_silent:
                show(data)
            return NOTHING

        return handle

    def _print(self, text: str, *, end: str = "\n") -> None:
        self._out.write(f"{text}{end}")
        self._out.flush()

    def _block_start(self, data: Mapping[str, Any]) -> None:
        kind = data.get("block_type") or data.get("type")
        if kind in ("thinking", "reasoning") and self.preferences.show_thinking_stream and not self._is_child:
            self._print("… thinking")

    def _block_end(self, data: Mapping[str, Any]) -> None:
        block = data.get("block")
        known = block if isinstance(block, Mapping) else data
        kind = known.get("type") or data.get("block_type")
        text = str(known.get("text") or known.get("thinking") or known.get("content") or "")
        if kind == "text":
            self._last_text = text
            if not self._is_child and not self._is_streamed and text.strip():
                self._print(visible(text))
        elif kind in ("thinking", "reasoning") and self.preferences.show_thinking_stream and not self._is_child:
            for line in text.splitlines():
                self._print(f"  │ {visible_line(line)}")
        if self.preferences.show_token_usage and isinstance(usage := data.get("usage"), Mapping):
            self._usage(usage)

    def _delta(self, data: Mapping[str, Any]) -> None:
        text = next((data[key] for key in ("text", "delta", "content") if isinstance(data.get(key), str)), "")
        if text and not self._is_child and data.get("block_type", "text") == "text":
            self._is_streamed = True
            self._print(visible(text), end="")

    def _stream_end(self, data: Mapping[str, Any]) -> None:
        if self._is_streamed:
            self._print("")

    def _tool_pre(self, data: Mapping[str, Any]) -> None:
        given = json.dumps(data.get("tool_input"), ensure_ascii=False, default=str)
        self._is_streamed = False
        self._print(f"{self._indent}▸ {visible_line(str(data.get('tool_name')))} {_short(visible_line(given))}")

    def _tool_post(self, data: Mapping[str, Any]) -> None:
        result = data.get("result", data.get("tool_result"))
        known = result if isinstance(result, Mapping) else {}
        has_failed = known.get("success") is False
        if data.get("tool_name") in self.preferences.spawn_tools and not has_failed:
            return  # the agent's own last text was shown
        output = known.get("error") if has_failed else known.get("output", result)
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
        lines = text.splitlines()
        for line in lines[: self.preferences.show_tool_lines]:
            self._print(f"{self._indent}  {_short(visible_line(line))}")
        if len(lines) > self.preferences.show_tool_lines > 0:
            self._print(f"{self._indent}  … {len(lines) - self.preferences.show_tool_lines} more lines")

    def _complete(self, data: Mapping[str, Any]) -> None:
        if self._is_child and self._last_text.strip():
            agent = getattr(getattr(self._coordinator, "session", None), "session_id", "") or ""
            self._print(
                f"{self._indent}{visible_line(agent.rpartition('_')[2] or 'agent')}: {visible(self._last_text)}"
            )
        self._last_text, self._is_streamed = "", False

    def _usage(self, usage: Mapping[str, Any]) -> None:
        read, created = (_count(usage, f"cache_{name}") for name in ("read_tokens", "write_tokens"))
        read = read or _count(usage, "cache_read_input_tokens")
        created = created or _count(usage, "cache_creation_input_tokens")
        total = _count(usage, "input_tokens") + read + created
        share = f", {100 * read // total} % cached" if read and total else ""
        self._print(f"{self._indent}  tokens: {total} in{share}, {_count(usage, 'output_tokens')} out")

    @property
    def _indent(self) -> str:
        return "  " if self._is_child else ""


def _short(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
