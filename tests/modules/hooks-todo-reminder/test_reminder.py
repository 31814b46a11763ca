"""What the model is reminded of, and when nothing is said."""

from typing import Any

import pytest
from amplifier_module_hooks_todo_reminder import mount

from amplifier_core.testing import MockCoordinator, MockTool

TODOS = [
    {"content": "Read", "activeForm": "Reading", "status": "completed"},
    {"content": "Write", "activeForm": "Writing", "status": "in_progress"},
    {"content": "Test", "activeForm": "Testing", "status": "pending"},
]
LIST = "✓ Read\n→ Writing\n☐ Test"


class Session:
    def __init__(self, *todos: dict[str, Any]) -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.todo_state = list(todos)

    async def begin(self, *tools: str, **config: Any) -> "Session":
        for name in tools:
            await self.coordinator.mount("tools", MockTool(name), name=name)
        await mount(self.coordinator, config)
        return self

    async def use(self, *tools: str) -> None:
        for name in tools:
            await self.coordinator.hooks.emit("tool:post", {"tool_name": name})

    async def said(self) -> str | None:
        answer = await self.coordinator.hooks.emit("provider:request", {})
        return answer.context_injection if answer.action == "inject_context" else None


async def test_the_list_is_shown_once_and_not_stored() -> None:
    session = await Session(*TODOS).begin("todo")

    answer = await session.coordinator.hooks.emit("provider:request", {})

    assert answer.context_injection == (f'<system-reminder source="hooks-todo-reminder">\n{LIST}\n</system-reminder>')
    assert (answer.context_injection_role, answer.ephemeral) == ("user", True)
    assert (answer.append_to_last_tool_result, answer.suppress_output) == (True, True)


@pytest.mark.parametrize(("tools", "todos"), [((), TODOS), (("todo",), [])], ids=["no tool", "no list"])
async def test_nothing_is_said_where_there_is_nothing_to_say(tools: tuple[str, ...], todos: list[Any]) -> None:
    session = await Session(*todos).begin(*tools)

    await session.use("bash", "bash", "bash")

    assert await session.said() is None


async def test_a_forgotten_list_is_nudged_once_in_ten_calls() -> None:
    session = await Session(*TODOS).begin("todo")
    said = []
    for _ in range(15):
        await session.use("bash")
        said.append(await session.said() or "")

    nudged = [number for number, text in enumerate(said, start=1) if "not used for a while" in text]
    assert nudged == [3, 13]
    assert all(LIST in text for text in said)


async def test_a_list_that_was_just_used_or_is_done_is_not_nudged() -> None:
    used = await Session(*TODOS).begin("todo")
    await used.use("bash", "bash", "todo")
    done = await Session({**TODOS[0]}).begin("todo")
    await done.use("bash", "bash", "bash")

    assert await used.said() == f'<system-reminder source="hooks-todo-reminder">\n{LIST}\n</system-reminder>'
    assert await done.said() == '<system-reminder source="hooks-todo-reminder">\n✓ Read\n</system-reminder>'


async def test_many_calls_without_a_list_are_nudged() -> None:
    session = await Session().begin("todo")

    await session.use(*["bash"] * 5)
    early = await session.said()
    await session.use("bash")

    assert early is None
    assert "there is no todo list" in (await session.said() or "")
