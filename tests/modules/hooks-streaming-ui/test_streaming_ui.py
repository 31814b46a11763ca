"""What is printed where no host shows a session, and that nothing is where one does."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_hooks_streaming_ui import StreamingUIHooks, mount

from amplifier_core.testing import MockCoordinator

CALL = {"tool_name": "bash", "tool_input": {"command": "ls"}}
USAGE = {"input_tokens": 100, "cache_read_tokens": 300, "cache_write_tokens": 0, "output_tokens": 7}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def printed(*events: tuple[str, dict[str, Any]], parent_id: str | None = None, **ui: Any) -> str:
    coordinator = SimpleNamespace(
        session=SimpleNamespace(parent_id=parent_id, session_id="x-1_finder"), session_id="x-1_finder"
    )
    stream = Terminal()
    handlers = StreamingUIHooks(coordinator, {"ui": ui}, stream).handlers()
    for event, data in events:
        if event in handlers:
            await handlers[event](event, data)
    return stream.getvalue()


async def test_a_session_is_printed_as_it_goes() -> None:
    text = await printed(
        ("content_block:start", {"block_type": "thinking"}),
        ("content_block:end", {"block": {"type": "thinking", "thinking": "hm"}}),
        ("tool:pre", CALL),
        ("tool:post", {**CALL, "result": {"success": True, "output": "a\nb\nc\x1b[31m"}}),
        ("content_block:end", {"block": {"type": "text", "text": "Done."}, "usage": USAGE}),
        show_tool_lines=2,
    )

    assert text.splitlines() == [
        "… thinking",
        "  │ hm",
        '▸ bash {"command": "ls"}',
        "  a",
        "  b",
        "  … 1 more lines",
        "Done.",
        "  tokens: 400 in, 75 % cached, 7 out",
    ]


async def test_of_a_child_the_tools_and_the_last_text_are_shown() -> None:
    text = await printed(
        ("content_block:end", {"block": {"type": "text", "text": "First"}}),
        ("content_block:start", {"block_type": "thinking"}),
        ("llm:stream_block_delta", {"text": "la"}),
        ("content_block:end", {"block": {"type": "text", "text": "Last"}}),
        ("orchestrator:complete", {}),
        parent_id="x",
        stream_tokens=True,
    )

    assert text == "  finder: Last\n"


async def test_an_agents_answer_is_not_repeated_and_its_error_is() -> None:
    text = await printed(
        ("tool:post", {"tool_name": "delegate", "result": {"success": True, "output": {"response": "long"}}}),
        ("tool:post", {"tool_name": "delegate", "result": {"success": False, "error": {"message": "gone"}}}),
    )

    assert text == '  {"message": "gone"}\n'


@pytest.mark.parametrize("key", ["text", "delta", "content"])
async def test_tokens_are_shown_as_they_arrive_and_once(key: str) -> None:
    text = await printed(
        ("llm:stream_block_delta", {key: "Do"}),
        ("llm:stream_block_delta", {key: "ne"}),
        ("llm:stream_block_end", {}),
        ("content_block:end", {"block": {"type": "text", "text": "Done"}}),
        stream_tokens=True,
    )

    assert text == "Done\n"


@pytest.mark.parametrize("host", ["display", "renderer"])
async def test_where_a_host_shows_the_session_nothing_is_printed(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    coordinator = MockCoordinator()
    coordinator.display_system = object() if host == "display" else None
    if host == "renderer":
        coordinator.register_capability("ui.renderer", object())
    await mount(coordinator, {"ui": {"show_tool_lines": 3}})

    await coordinator.hooks.emit("tool:pre", dict(CALL))

    assert capsys.readouterr().out == ""
    preferences = coordinator.get_capability("ui.preferences")
    assert (preferences["show_tool_lines"], preferences["spawn_tools"]) == (3, ["delegate", "task"])
