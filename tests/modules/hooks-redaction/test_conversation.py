"""With a real loop and the session log: the conversation is verbatim, the log is masked."""

import json
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_logging import mount as mount_logging
from amplifier_module_hooks_redaction import mount as mount_redaction
from amplifier_module_loop_basic import BasicOrchestrator

from amplifier_core.message_models import ChatResponse, TextBlock, ToolCall
from amplifier_core.testing import MockContextManager, MockCoordinator, MockProvider, MockTool

KEY, MAIL, PHONE = "sk-abcdefghijklmnop", "jane@example.com", "+1 (415) 555-2671"


class Conversation:
    """One turn in which the model calls a tool, with hooks-redaction and hooks-logging mounted."""

    def __init__(self, folder: Path) -> None:
        call = ToolCall(id="call_1", name="echo", arguments={"text": f"send {KEY}"})
        asking = ChatResponse(content=[TextBlock(text="Let me see.")], tool_calls=[call])
        self.coordinator = MockCoordinator()
        self.context = MockContextManager()
        self.provider = MockProvider([asking, f"I reached {MAIL}."])
        self.tool = MockTool("echo", f"the key is {KEY}, call {PHONE}")
        self.log = folder / "events.jsonl"

    async def run(self, **log_config: Any) -> str:
        await mount_logging(self.coordinator, {"session_log_template": str(self.log), **log_config})
        await mount_redaction(self.coordinator, {})  # mounted later, and still before the log by its priority
        return await BasicOrchestrator({}).execute(
            f"write to {MAIL}",
            self.context,
            {"mock": self.provider},
            {"echo": self.tool},
            self.coordinator.hooks,
            coordinator=self.coordinator,
        )

    def records(self, event: str) -> list[dict[str, Any]]:
        return [record for record in map(json.loads, self.log.read_bytes().splitlines()) if record["event"] == event]


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    return Conversation(tmp_path)


async def test_a_prompt_reaches_the_provider_verbatim_while_the_log_line_shows_the_mask(
    conversation: Conversation,
) -> None:
    answer = await conversation.run()

    sent = str(conversation.provider.requests[0].messages)
    assert MAIL in sent
    assert answer == f"I reached {MAIL}."
    assert conversation.records("prompt:submit")[0]["data"]["prompt"] == "write to [REDACTED:PII]"


async def test_a_tool_gets_and_gives_the_original_and_the_log_line_holds_no_key(conversation: Conversation) -> None:
    await conversation.run()

    assert conversation.tool.last_input == {"text": f"send {KEY}"}
    assert f"the key is {KEY}, call {PHONE}" in str(conversation.provider.requests[1].messages)
    (before,), (after,) = conversation.records("tool:pre"), conversation.records("tool:post")
    assert before["data"]["tool_input"] == {"text": "send [REDACTED:SECRET]"}
    assert after["data"]["result"]["output"] == "the key is [REDACTED:SECRET], call [REDACTED:PII]"


@pytest.mark.parametrize("log_config", [{}, {"level": "DEBUG"}], ids=["usual", "with messages"])
async def test_nothing_sensitive_is_anywhere_in_the_log(conversation: Conversation, log_config: dict[str, Any]) -> None:
    await conversation.run(**log_config)

    log = conversation.log.read_text()
    assert not [value for value in (KEY, MAIL, PHONE) if value in log]
    assert "REDACTED" in log


async def test_request_messages_in_the_log_are_masked_too(conversation: Conversation) -> None:
    await conversation.run(level="DEBUG")

    first, second = conversation.records("provider:request")
    assert first["data"]["messages"][-1]["content"] == "write to [REDACTED:PII]"
    assert "[REDACTED:SECRET]" in str(second["data"]["messages"])
    assert first["redaction"]["skipped"] == ["messages"]
