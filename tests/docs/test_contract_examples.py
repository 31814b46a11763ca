"""The example module of each contract page keeps its contract, and the five make a session together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.cli import VALIDATORS

MODULES = {
    "orchestrator": "loop-plain",
    "context": "context-window",
    "provider": "provider-parrot",
    "tool": "tool-units",
    "hook": "hooks-guard",
}

CONVERT = 'units {"value": 10, "unit": "km", "to": "mi"}'
CONVERTED = '{"value": 6.21, "unit": "mi"}'

Open = Callable[[str], Any]


@pytest.fixture
def written(page: Open, folder: Path) -> Path:
    """A folder with the modules of all five pages in it."""
    for module_type in MODULES:
        page(f"docs/contracts/{module_type}.md").write_files(folder)
    return folder


def _plan(folder: Path, **configs: dict[str, Any]) -> dict[str, Any]:
    def entry(module_type: str) -> dict[str, Any]:
        module_id = MODULES[module_type]
        return {"module": module_id, "source": str(folder / module_id), "config": configs.get(module_type, {})}

    return {
        "session": {"orchestrator": entry("orchestrator"), "context": entry("context")},
        "providers": [entry("provider")],
        "tools": [entry("tool")],
        "hooks": [entry("hook")],
    }


def test_there_is_a_page_for_every_type_that_has_a_contract(page: Open) -> None:
    pages = {path.stem for path in page("docs/contracts/tool.md").path.parent.glob("*.md")}

    assert pages == MODULES.keys() == VALIDATORS.keys()


@pytest.mark.parametrize("module_type", MODULES)
def test_a_page_has_one_module_with_an_entry_point_and_tests(page: Open, module_type: str) -> None:
    files = [block.file for block in page(f"docs/contracts/{module_type}.md").blocks if block.file]

    module_id = MODULES[module_type]
    package = "amplifier_module_" + module_id.replace("-", "_")
    assert files[:2] == [f"{module_id}/{package}/__init__.py", f"{module_id}/pyproject.toml"]
    assert [Path(file).parent.as_posix() for file in files[2:]] == [f"{module_id}/tests"]


@pytest.mark.parametrize("module_type", MODULES)
async def test_the_module_of_a_page_passes_every_check_of_its_validator(written: Path, module_type: str) -> None:
    result = await VALIDATORS[module_type]().validate(written / MODULES[module_type])

    assert [check for check in result.checks if not check.passed] == []
    assert result.warnings == []


async def test_the_five_modules_run_a_turn_with_a_tool_together(written: Path) -> None:
    async with AmplifierSession(_plan(written)) as session:
        answer = await session.execute(CONVERT)
        again = await session.execute("Hello")
        messages = await session.coordinator.get("context").get_messages()

    assert session.status.load_failures == []
    assert (answer, again) == (CONVERTED, "Hello")
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [message["role"] for message in messages] == roles


async def test_each_of_the_five_is_configured_by_the_plan(written: Path) -> None:
    plan = _plan(written, tool={"decimals": 0}, orchestrator={"max_rounds": 0})

    async with AmplifierSession(plan) as session:
        await session.execute(CONVERT)
        (result,) = [m for m in await session.coordinator.get("context").get_messages() if m["role"] == "tool"]

    assert result["content"] == '{"value": 6.0, "unit": "mi"}'


async def test_the_guard_keeps_the_loop_from_running_a_tool(written: Path) -> None:
    async with AmplifierSession(_plan(written, hook={"deny": ["units"]})) as session:
        assert await session.execute(CONVERT) == "Denied: units is switched off"


class Approver:
    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.prompts: list[str] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109 - the kernel's protocol
        self.prompts.append(prompt)
        return self.decision


@pytest.mark.parametrize(
    ("decision", "answer"),
    [("Allow", CONVERTED), ("Deny", "Denied: User denied: Run units with {'value': 10, 'unit': 'km', 'to': 'mi'}?")],
)
async def test_the_guard_has_the_user_asked_and_the_loop_obeys(written: Path, decision: str, answer: str) -> None:
    approver = Approver(decision)

    async with AmplifierSession(_plan(written, hook={"ask": ["units"]}), approval_system=approver) as session:
        assert await session.execute(CONVERT) == answer

    assert approver.prompts == ["Run units with {'value': 10, 'unit': 'km', 'to': 'mi'}?"]


async def test_the_window_shows_the_provider_what_fits_and_keeps_the_rest(written: Path) -> None:
    async with AmplifierSession(_plan(written)) as session:
        context = session.coordinator.get("context")
        for number in range(100):
            await context.add_message({"role": "user", "content": f"Message {number} " * 20})
        view = await context.get_messages_for_request(provider=session.coordinator.get("providers", "parrot"))

    assert view == (await context.get_messages())[-len(view) :]
    assert 0 < len(view) < 100
