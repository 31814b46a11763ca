"""Real sessions with real modules: the plan from the documentation, every loop, and a turn that uses tools."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleLoader, ToolResult

MODULES = Path(__file__).parents[3] / "modules"
LOOPS = ["loop-basic", "loop-streaming", "loop-events"]
PROMPTS = ["Hello", "read README.md", "already done", "read it, then read it again", "<system-reminder>read", ""]


class FileTool:
    """Reads files below a directory, as plain text or as a failure."""

    name = "read_file"
    description = "Read a file."
    input_schema = {"type": "object", "properties": {"file_path": {"type": "string"}}}  # noqa: RUF012 - as tools have it

    def __init__(self, root: Path) -> None:
        self._root = root

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        path = self._root / input["file_path"]
        if not path.is_file():
            message = f"Path not found: {input['file_path']}"
            return ToolResult(success=False, output=message, error={"message": message, "code": "not_found"})
        return ToolResult(output={"file_path": str(path), "content": path.read_text(encoding="utf-8")})


class ShellTool:
    """Runs a command."""

    name = "bash"
    description = "Run a command."

    def __init__(self, root: Path) -> None:
        self._root = root

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        process = await asyncio.create_subprocess_shell(
            input["command"], cwd=self._root, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        output = {"stdout": out.decode(), "stderr": err.decode(), "returncode": process.returncode}
        return ToolResult(success=process.returncode == 0, output=output)


def plan(loop: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    def module(module_id: str, **extra: Any) -> dict[str, Any]:
        return {"module": module_id, "source": str(MODULES / module_id), **extra}

    session = {"orchestrator": module(loop), "context": module("context-simple")}
    return {"session": session, "providers": [module("provider-mock", config=config or {})]}


async def test_the_minimal_plan_of_the_documentation_runs() -> None:
    mount_plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock"}],
    }
    loader = ModuleLoader()
    session = AmplifierSession(mount_plan, loader=loader)

    await session.initialize()
    response = await session.execute("Hello, world!")
    await session.cleanup()

    assert response == "This is a canned answer of the mock provider."


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("prompt", PROMPTS)
async def test_default_configuration_ends_any_turn_with_tools_within_two_model_calls(
    loop: str, prompt: str, tmp_path: Path
) -> None:
    async with AmplifierSession(plan(loop)) as session:
        for tool in (FileTool(tmp_path), ShellTool(tmp_path)):
            await session.coordinator.mount("tools", tool, name=tool.name)

        text = await session.execute(prompt)

        assert text
        assert session.coordinator.get("providers", "mock").call_count <= 2


@pytest.mark.parametrize("loop", LOOPS)
async def test_agent_mode_really_uses_the_mounted_tools(loop: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("buy milk\n", encoding="utf-8")
    called: list[str] = []

    async def keep(event: str, data: dict[str, Any]) -> None:
        called.append(data["tool_name"])

    async with AmplifierSession(plan(loop, {"mode": "agent"})) as session:
        session.coordinator.hooks.register("tool:pre", keep)
        for tool in (FileTool(tmp_path), ShellTool(tmp_path)):
            await session.coordinator.mount("tools", tool, name=tool.name)

        text = await session.execute("read notes.md then run `wc -l notes.md`; read gone.md")

        assert called == ["read_file", "bash", "read_file"]
        assert all(part in text for part in ("buy milk", "1 notes.md", "read_file failed:\nPath not found: gone.md"))
        assert session.coordinator.get("providers", "mock").call_count == 4


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_scripted_conversation_runs_end_to_end(loop: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("forty-two", encoding="utf-8")
    script = [
        {"thinking": "hm", "tool_calls": [{"name": "read_file", "arguments": {"file_path": "a.txt"}}]},
        {"when": {"tool": "read_file"}, "text": "It says {{last_tool_result}}", "assert": {"tools_include": ["bash"]}},
        {"text": "You said: {{last_user}}"},
    ]
    async with AmplifierSession(plan(loop, {"script": script, "on_exhausted": "error"})) as session:
        for tool in (FileTool(tmp_path), ShellTool(tmp_path)):
            await session.coordinator.mount("tools", tool, name=tool.name)

        first, second = await session.execute("What is in a.txt?"), await session.execute("Thanks")

    assert json.loads(first.removeprefix("It says "))["content"] == "forty-two"
    assert second == "You said: Thanks"


async def test_an_error_ends_the_turn_as_its_class_and_the_session_goes_on() -> None:
    config = {"script": [{"error": {"type": "context_length", "message": "too long"}}, "better"]}
    async with AmplifierSession(plan("loop-basic", config)) as session:
        with pytest.raises(Exception, match="too long") as caught:
            await session.execute("Hello")

        assert type(caught.value).__name__ == "ContextLengthError"
        assert await session.execute("Again") == "better"


async def test_two_instances_have_names_of_their_own() -> None:
    mount_plan = plan("loop-basic", {"responses": ["one"], "priority": 2})
    mount_plan["providers"].append(
        {**mount_plan["providers"][0], "instance_id": "mock-2", "config": {"responses": ["two"], "priority": 1}}
    )
    async with AmplifierSession(mount_plan) as session:
        assert session.coordinator.get_mounted("providers") == ["mock", "mock-2"]
        assert await session.execute("Hello") == "two"


async def test_the_five_lines_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (MODULES / "provider-mock/README.md").read_text(encoding="utf-8")
    block = readme.partition("```python\n")[2].partition("```")[0]
    lines = [f"    {line}" for line in block.splitlines()]
    source = "async def example():\n" + "\n".join(lines)
    namespace: dict[str, Any] = {}
    exec(compile(source, "README.md", "exec"), namespace)

    await namespace["example"]()

    assert capsys.readouterr().out == "The tool said: hi\n"
