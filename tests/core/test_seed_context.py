"""The snippets of the published context contract work as they are written there."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import warm_python

from amplifier_core import ContextManager, ModuleCoordinator, ProviderInfo
from amplifier_core.testing import EventRecorder, MockContextManager, TestCoordinator
from amplifier_core.validation.base import import_module_from_path

MY_CONTEXT = '''
from collections.abc import Callable
from typing import Any

from amplifier_core import ContextManager, HookRegistry, ModuleCoordinator


class MyContextManager:
    def __init__(self, max_tokens, compaction_threshold=0.8, hooks=None):
        self._max_tokens = max_tokens
        self._compaction_threshold = compaction_threshold
        self._hooks = hooks or HookRegistry()
        self._keep_recent = 10
        self._messages = []
        self._token_count = 0

    def _estimate_tokens(self, message):
        return len(str(message)) // 4

    async def add_message(self, message: dict[str, Any]) -> None:
        """Add a message to the context."""
        # Validate required fields
        if "role" not in message:
            raise ValueError("Message must have 'role' field")

        # Store message
        self._messages.append(message)

        # Track token count (approximate)
        self._token_count += self._estimate_tokens(message)

    async def get_messages_for_request(
        self,
        token_budget: int | None = None,
        provider: Any | None = None,
    ) -> list[dict[str, Any]]:
        budget = self._calculate_budget(token_budget, provider)

        # Check if compaction needed
        if self._token_count > (budget * self._compaction_threshold):
            await self._compact_internal()

        return list(self._messages)  # Return copy to prevent mutation

    def _calculate_budget(self, token_budget: int | None, provider: Any | None) -> int:
        """Calculate effective token budget from provider or fallback to config."""
        # Explicit budget takes precedence (for backward compatibility)
        if token_budget is not None:
            return token_budget

        # Try provider-based dynamic budget
        if provider is not None:
            try:
                info = provider.get_info()
                defaults = info.defaults or {}
                context_window = defaults.get("context_window")
                max_output_tokens = defaults.get("max_output_tokens")

                if context_window and max_output_tokens:
                    safety_margin = 1000  # Buffer to avoid hitting hard limits
                    return context_window - max_output_tokens - safety_margin
            except Exception:
                pass  # Fall back to configured max_tokens

        return self._max_tokens

    async def get_messages(self) -> list[dict[str, Any]]:
        """Get all messages (raw, uncompacted) for transcripts/debugging."""
        return list(self._messages)  # Return copy to prevent mutation

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Set messages directly (for session resume)."""
        self._messages = list(messages)
        self._token_count = sum(self._estimate_tokens(m) for m in self._messages)

    async def clear(self) -> None:
        """Clear all messages."""
        self._messages = []
        self._token_count = 0

    async def _compact_internal(self) -> None:
        """Internal compaction - preserves tool pairs."""
        # Emit pre-compaction event
        await self._hooks.emit("context:pre_compact", {
            "message_count": len(self._messages),
            "token_count": self._token_count
        })

        # Build tool_call_id -> tool_use index map
        tool_use_ids = set()
        for msg in self._messages:
            if msg.get("role") == "assistant" and msg.get("tool_calls"):
                for tc in msg["tool_calls"]:
                    tool_use_ids.add(tc.get("id"))

        # Identify which tool results have matching tool_use
        orphan_result_indices = []
        for i, msg in enumerate(self._messages):
            if msg.get("role") == "tool":
                if msg.get("tool_call_id") not in tool_use_ids:
                    orphan_result_indices.append(i)

        # Strategy: Keep system messages + recent messages
        # But ensure we don't split tool pairs
        system_messages = [m for m in self._messages if m["role"] == "system"]

        # Find safe truncation point (not in middle of tool sequence)
        keep_count = self._keep_recent
        recent_start = max(0, len(self._messages) - keep_count)

        # Adjust start to not split tool sequences
        while recent_start > 0:
            msg = self._messages[recent_start]
            if msg.get("role") == "tool":
                # This is a tool result - need to include the tool_use before it
                recent_start -= 1
            else:
                break

        recent_messages = self._messages[recent_start:]

        self._messages = system_messages + recent_messages
        self._token_count = sum(self._estimate_tokens(m) for m in self._messages)

        # Emit post-compaction event
        await self._hooks.emit("context:post_compact", {
            "message_count": len(self._messages),
            "token_count": self._token_count
        })


class ViewingContextManager(MyContextManager):
    def _count_tokens(self, messages):
        return sum(self._estimate_tokens(m) for m in messages)

    def _should_compact(self, token_count, budget):
        return token_count > budget * self._compaction_threshold

    def _compact_messages(self, messages, budget):
        return messages[-self._keep_recent:]

    async def get_messages_for_request(self, token_budget=None, provider=None):
        """Return compacted VIEW without modifying internal state."""
        budget = self._calculate_budget(token_budget, provider)

        # Read current messages (don't modify)
        messages = list(self._messages)  # Copy!

        # Check if compaction needed
        token_count = self._count_tokens(messages)
        if not self._should_compact(token_count, budget):
            return messages

        # Compact EPHEMERALLY - return compacted copy
        return self._compact_messages(messages, budget)  # Returns NEW list

    async def get_messages(self):
        """Return FULL history (never compacted)."""
        return list(self._messages)  # Always complete


class Truncating(MyContextManager):
    def compact(self, keep_count):
        # Find safe truncation point
        keep_from = len(self._messages) - keep_count
        # Adjust to not split tool pairs
        while keep_from > 0 and self._messages[keep_from].get("role") == "tool":
            keep_from -= 1
        self._messages = self._messages[keep_from:]


class Summarizing(MyContextManager):
    async def compact(self, keep_recent, summarize):
        # Summarize old messages
        old_messages = self._messages[:-keep_recent]
        summary = await summarize(old_messages)

        # Replace with summary
        self._messages = [
            {"role": "system", "content": f"Previous conversation summary: {summary}"},
            *self._messages[-keep_recent:]
        ]


class Weighing(MyContextManager):
    def _score_importance(self, message):
        return len(message["content"])

    def _reorder_preserving_tool_pairs(self, kept):
        return [message for message in self._messages if message in kept]

    def compact(self, keep_count):
        scored = [(m, self._score_importance(m)) for m in self._messages]
        scored.sort(key=lambda x: x[1], reverse=True)
        # Keep high-importance messages, but preserve tool pairs
        self._messages = self._reorder_preserving_tool_pairs(
            [m for m, _ in scored[:keep_count]]
        )


async def mount(coordinator: ModuleCoordinator, config: dict) -> ContextManager | Callable | None:
    """
    Initialize and return context manager instance.

    Returns:
        - ContextManager instance
        - Cleanup callable
        - None for graceful degradation
    """
    context = MyContextManager(
        max_tokens=config.get("max_tokens", 100000),
        compaction_threshold=config.get("compaction_threshold", 0.8)
    )
    await coordinator.mount("session", context, name="context")
    return context
'''

PERSISTENT = """
import json
import logging
from typing import Any

logger = logging.getLogger(__name__)


class PersistentContextManager:
    def __init__(self, path):
        self._path = path
        self._loaded_from_file = path.exists()
        self._messages = json.loads(path.read_text()) if self._loaded_from_file else []

    def _write_to_file(self):
        self._path.write_text(json.dumps(self._messages))

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        if self._loaded_from_file:
            # Already have complete history - ignore CLI's filtered transcript
            logger.info("Ignoring set_messages - loaded from persistent file")
            return

        # Fresh session: accept messages
        self._messages = list(messages)
        self._write_to_file()

    async def get_messages(self):
        return list(self._messages)


async def mount(coordinator, config):
    pass
"""

PYPROJECT = """
[project.entry-points."amplifier.modules"]
my-context = "my_context:mount"
"""

TOOL_CALL = {"id": "call_123", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}

EVERY_SHAPE: list[dict[str, Any]] = [
    {"role": "system", "content": "System instructions"},
    {"role": "user", "content": "User's input text"},
    {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
    {"role": "tool", "tool_call_id": "call_123", "content": "Tool output"},
    {"role": "assistant", "content": "Assistant's response"},
]


@pytest.fixture
def module(modules: Any) -> Any:
    folder = modules.root / "my-context"
    written = modules.write("context", module_id=folder.name, package="my_context", folder=folder, source=MY_CONTEXT)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return written


@pytest.fixture
def code(module: Any) -> ModuleType:
    return import_module_from_path(module.file.parent)


class Windowed:
    """A provider that says how much its model reads and writes."""

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id="windowed", display_name="Windowed", defaults={"context_window": 1350, "max_output_tokens": 250}
        )


async def _filled(context: Any, count: int) -> Any:
    for number in range(count):
        await context.add_message({"role": "user", "content": f"Message {number}"})
    return context


def test_the_five_documented_methods_are_the_protocol(code: ModuleType) -> None:
    assert isinstance(code.MyContextManager(max_tokens=1000), ContextManager)
    assert not isinstance(object(), ContextManager)


async def test_the_session_spelling_mounts_at_the_contexts_place(code: ModuleType) -> None:
    coordinator = TestCoordinator()

    context = await code.mount(coordinator, {})

    assert coordinator.get("context") is context
    assert coordinator.get("session", "context") is context


async def test_the_context_runs_in_a_session_with_its_config(modules: Any, module: Any) -> None:
    plan = modules.plan(context={"config": {"max_tokens": 5}})
    plan["session"]["context"] = "my-context"

    async with modules.session(plan) as session:
        await session.execute("Hello")
        context = await _filled(session.coordinator.get("context"), 20)
        view = await context.get_messages_for_request()

    assert len(view) == 10


def test_the_validation_command_passes(module: Any) -> None:
    command = [sys.executable, "-m", "amplifier_core", "validate", str(module.folder), "--type", "context"]

    run = warm_python.run(command, capture_output=True, text=True)

    assert (run.returncode, "PASSED" in run.stdout) == (0, True), run.stdout + run.stderr


async def test_every_documented_shape_of_a_message_is_kept_as_it_is(code: ModuleType) -> None:
    context = code.MyContextManager(max_tokens=1000)

    for message in EVERY_SHAPE:
        await context.add_message(message)

    assert await context.get_messages() == EVERY_SHAPE


async def test_a_message_without_a_role_is_refused(code: ModuleType) -> None:
    with pytest.raises(ValueError, match="Message must have 'role' field"):
        await code.MyContextManager(max_tokens=1000).add_message({"content": "Hello"})


@pytest.mark.parametrize(
    ("arguments", "is_compacted"),
    [
        ({}, False),
        ({"token_budget": 50}, True),
        ({"provider": Windowed()}, True),
        ({"provider": object()}, False),
        ({"token_budget": 100_000, "provider": Windowed()}, False),
    ],
    ids=["configured", "explicit", "of the provider", "provider without one", "explicit first"],
)
async def test_the_budget_is_explicit_or_the_providers_or_configured(
    code: ModuleType, arguments: dict[str, Any], is_compacted: bool
) -> None:
    context = await _filled(code.MyContextManager(max_tokens=100_000), 40)

    view = await context.get_messages_for_request(**arguments)

    assert (len(view) < 40) is is_compacted


async def test_a_caller_that_changes_the_returned_list_changes_nothing(code: ModuleType) -> None:
    context = await _filled(code.MyContextManager(max_tokens=1000), 2)

    (await context.get_messages()).clear()
    (await context.get_messages_for_request()).clear()

    assert len(await context.get_messages()) == 2


async def test_compaction_is_announced_before_and_after(code: ModuleType) -> None:
    recorder = EventRecorder()
    context = await _filled(code.MyContextManager(max_tokens=100, hooks=recorder), 40)

    await context.get_messages_for_request()

    (before, before_data), (after, after_data) = recorder.get_events()
    assert (before, before_data["message_count"]) == ("context:pre_compact", 40)
    assert (after, after_data["message_count"]) == ("context:post_compact", 10)
    assert after_data["token_count"] < before_data["token_count"]


async def test_a_view_is_compacted_and_the_history_stays_whole(code: ModuleType) -> None:
    context = await _filled(code.ViewingContextManager(max_tokens=100), 40)

    view = await context.get_messages_for_request()

    assert [message["content"] for message in view] == [f"Message {number}" for number in range(30, 40)]
    assert len(await context.get_messages()) == 40


async def test_truncation_keeps_a_tool_result_with_its_call(code: ModuleType) -> None:
    context = code.Truncating(max_tokens=1000)
    await context.set_messages(EVERY_SHAPE)

    context.compact(keep_count=2)

    assert await context.get_messages() == EVERY_SHAPE[2:]


async def test_a_summary_takes_the_place_of_what_is_old(code: ModuleType) -> None:
    async def summarize(messages: list[dict[str, Any]]) -> str:
        return f"{len(messages)} messages"

    context = await _filled(code.Summarizing(max_tokens=1000), 5)

    await context.compact(keep_recent=2, summarize=summarize)

    assert [message["content"] for message in await context.get_messages()] == [
        "Previous conversation summary: 3 messages", "Message 3", "Message 4",
    ]  # fmt: skip


async def test_what_weighs_most_is_kept_in_the_order_of_the_conversation(code: ModuleType) -> None:
    context = code.Weighing(max_tokens=1000)
    await context.set_messages([{"role": "user", "content": "x" * size} for size in (3, 1, 4, 2)])

    context.compact(keep_count=2)

    assert [len(message["content"]) for message in await context.get_messages()] == [3, 4]


async def test_a_context_registers_the_events_it_emits() -> None:
    coordinator = ModuleCoordinator()

    coordinator.register_contributor(
        "observability.events", "my-context", lambda: ["context:pre_compact", "context:post_compact"]
    )

    assert await coordinator.collect_contributions("observability.events") == [
        ["context:pre_compact", "context:post_compact"]
    ]


async def test_the_testing_example_runs(code: ModuleType) -> None:
    context = code.MyContextManager(max_tokens=1000)

    await context.add_message({"role": "user", "content": "Hello"})
    await context.add_message({"role": "assistant", "content": "Hi there!"})

    messages = await context.get_messages_for_request()
    assert len(messages) == 2
    assert messages[0]["role"] == "user"

    raw_messages = await context.get_messages()
    assert len(raw_messages) == 2

    await context.clear()
    assert len(await context.get_messages()) == 0


@pytest.mark.parametrize("later", [50, 9, 8], ids=["all gone", "cut at the result", "whole pair"])
async def test_compaction_preserves_tool_pairs(code: ModuleType, later: int) -> None:
    context = code.MyContextManager(max_tokens=100, compaction_threshold=0.5)

    await context.add_message({"role": "user", "content": "Read file.txt"})
    await context.add_message({"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]})
    await context.add_message({"role": "tool", "tool_call_id": "call_123", "content": "File contents..."})
    await _filled(context, later)

    messages = await context.get_messages_for_request()

    tool_use_ids = set()
    tool_result_ids = set()
    for msg in messages:
        if msg.get("tool_calls"):
            for tc in msg["tool_calls"]:
                tool_use_ids.add(tc.get("id"))
        if msg.get("role") == "tool":
            tool_result_ids.add(msg.get("tool_call_id"))
    assert tool_result_ids.issubset(tool_use_ids), "Orphaned tool results found!"
    assert len(messages) < later + 3
    assert bool(tool_result_ids) is (later < 50)


async def test_saved_messages_resume_a_session(code: ModuleType) -> None:
    context = code.MyContextManager(max_tokens=1000)
    saved_messages = [
        {"role": "user", "content": "Previous conversation"},
        {"role": "assistant", "content": "Previous response"},
    ]

    await context.set_messages(saved_messages)

    messages = await context.get_messages()
    assert len(messages) == 2
    assert messages[0]["content"] == "Previous conversation"


async def test_a_context_that_loaded_its_own_file_keeps_that_history(modules: Any, tmp_path: Path) -> None:
    code = import_module_from_path(modules.write("context", source=PERSISTENT).file.parent)
    path = tmp_path / "messages.json"
    complete, filtered = EVERY_SHAPE, EVERY_SHAPE[1:]

    fresh = code.PersistentContextManager(path)
    await fresh.set_messages(complete)
    resumed = code.PersistentContextManager(path)
    await resumed.set_messages(filtered)

    assert json.loads(path.read_text()) == complete
    assert await resumed.get_messages() == complete


async def test_the_mock_context_shows_its_messages() -> None:
    context = MockContextManager()

    await context.add_message({"role": "user", "content": "Test"})
    messages = await context.get_messages_for_request()

    assert len(context.messages) == 1
    assert messages == context.messages
