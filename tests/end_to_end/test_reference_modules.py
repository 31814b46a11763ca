"""The reference modules together: one session over two processes, ended properly or by `kill -9`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import warm_python

SECRET = "sk-ant-" + "a1B2c3D4e5F6g7H8i9J0k1L2"

PROVIDER = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock, Usage

USAGE = Usage(input_tokens=10, output_tokens=5, total_tokens=15)


class ScriptedProvider:
    name = "scripted"

    def get_info(self):
        return ProviderInfo(id="scripted", display_name="Scripted")

    async def list_models(self):
        return []

    def parse_tool_calls(self, response):
        return response.tool_calls or []

    async def complete(self, request, **kwargs):
        last = request.messages[-1]
        if last.role == "user" and "look" in str(last.content):
            number = sum(1 for message in request.messages if message.role == "tool")
            call = ToolCall(id=f"call-{number}", name="lookup", arguments={"what": "key"})
            block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
            return ChatResponse(content=[block], tool_calls=[call], usage=USAGE)
        return ChatResponse(content=[TextBlock(text=f"answered with {len(request.messages)} messages")], usage=USAGE)


async def mount(coordinator, config=None):
    await coordinator.mount("providers", ScriptedProvider(), name="scripted")
"""

TOOL = f"""
from amplifier_core import ToolResult


class LookupTool:
    name = "lookup"
    description = "Looks a key up."
    input_schema = {{"type": "object", "properties": {{"what": {{"type": "string"}}}}}}

    async def execute(self, input):
        return ToolResult(output="the key is {SECRET}")


async def mount(coordinator, config=None):
    await coordinator.mount("tools", LookupTool(), name="lookup")
"""

RUN = """
import asyncio, json, sys

from amplifier_core import AmplifierSession

plans, session_id, turns, *prompts = sys.argv[1:]


async def main(plan):
    session = AmplifierSession(plan, session_id=session_id)
    async with session:
        for turn in range(int(turns)):
            for prompt in prompts:
                print(await session.execute(prompt), flush=True)
        names = await session.coordinator.collect_contributions("observability.events")
        print(json.dumps(sorted({name for group in names for name in group})))


for plan in json.loads(plans):
    asyncio.run(main(plan))
"""

FINISHED_TURN = ("user", "assistant", "tool", "assistant")


class Home:
    """A directory in which one session lives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transcript = root / "transcript.jsonl"
        self.log = root / "logs/s1/events.jsonl"
        self.audit = root / "audit.jsonl"
        self.backups = root / "backups"
        for module_id, code in (("provider-scripted", PROVIDER), ("tool-lookup", TOOL)):
            package = root / module_id / f"amplifier_module_{module_id.replace('-', '_')}"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text(code)
        (root / "run.py").write_text(RUN)
        self.plan: dict[str, Any] = {
            "session": {"orchestrator": "loop-streaming", "context": "context-persistent"},
            "context": {"config": {"transcript_path": str(self.transcript)}},
            "providers": [{"module": "provider-scripted", "source": str(root / "provider-scripted")}],
            "tools": [{"module": "tool-lookup", "source": str(root / "tool-lookup")}],
            "hooks": [
                {"module": "hooks-redaction"},
                {"module": "hooks-logging", "config": {"output_dir": str(root / "logs")}},
                {
                    "module": "hooks-approval",
                    "config": {
                        "auto_approve": True,
                        "tools": {"lookup": {"require_approval": True}},
                        "audit": {"file": str(self.audit)},
                    },
                },
                {"module": "hooks-backup", "config": {"backup_dir": str(self.backups)}},
            ],
        }

    def start(self, *prompts: str, turns: int = 1, plans: Sequence[Any] = ()) -> "subprocess.Popen[str]":
        command = [sys.executable, "run.py", json.dumps(plans or [self.plan]), "s1", str(turns), *prompts]
        return warm_python.Popen(
            command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *prompts: str, plans: Sequence[Any] = ()) -> list[str]:
        process = self.start(*prompts, plans=plans)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return output.splitlines()

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.transcript.read_text().splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_session_goes_on_in_a_new_process_and_leaves_complete_files(home: Home) -> None:
    first = home.run("look it up")
    second = home.run("look again")

    assert first[0] == "answered with 3 messages"
    assert second[0] == "answered with 7 messages"
    messages = home.messages()
    assert [message["role"] for message in messages] == [*FINISHED_TURN, *FINISHED_TURN]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ["call-0", "call-1"]
    assert SECRET in home.transcript.read_text()

    records = [json.loads(line) for line in home.log.read_text().splitlines()]
    assert [record["event"] for record in records].count("session:end") == 2
    assert "tool:post" in {record["event"] for record in records}
    assert SECRET not in home.log.read_text()
    decisions = [json.loads(line) for line in home.audit.read_text().splitlines()]
    assert [decision["response"]["approved"] for decision in decisions] == [True, True]
    final = [path.read_text().splitlines() for path in sorted(home.backups.glob("transcript_final_*"))]
    assert sorted(len(lines) - 1 for lines in final) == [4, 8]


def test_every_event_the_modules_add_is_announced(home: Home) -> None:
    announced = json.loads(home.run("look it up")[-1])

    assert {"orchestrator:steering_injected", "context:persist_error", "backup:written"} <= set(announced)


@pytest.mark.parametrize("lines_before_the_kill", [1, 3, 6, 11])
def test_a_session_killed_in_the_middle_resumes_with_a_transcript_a_provider_accepts(
    home: Home, lines_before_the_kill: int
) -> None:
    process = home.start("look it up", turns=10_000)
    deadline = time.monotonic() + 60
    while not home.transcript.exists() or home.transcript.read_bytes().count(b"\n") < lines_before_the_kill:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    answer = home.run("and now?")[0]

    assert answer.startswith("answered with")
    calls: list[str] = []
    for message in home.messages():
        if message["role"] == "tool":
            assert message["tool_call_id"] == calls.pop(0)
        else:
            assert calls == [], "a tool call has no result"
            calls = [call["id"] for call in message.get("tool_calls", [])]
    for file in (home.log, home.audit):
        lines = file.read_text().splitlines() if file.exists() else []
        broken = [line for line in lines if line and not _is_json(line)]
        assert len(broken) <= 1, "only the line in flight may be torn"


def test_any_loop_runs_with_any_context_and_gives_the_same_answer(home: Home) -> None:
    plans = []
    for loop in ("loop-basic", "loop-streaming", "loop-events"):
        persistent = {"transcript_path": str(home.root / f"{loop}.jsonl")}
        for context, config in (("context-simple", {}), ("context-persistent", persistent)):
            plans.append(
                home.plan | {"session": {"orchestrator": loop, "context": context}, "context": {"config": config}}
            )

    answers = [line for line in home.run("look it up", plans=plans) if line.startswith("answered")]

    assert answers == ["answered with 3 messages"] * 6


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
