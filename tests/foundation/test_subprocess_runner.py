"""Sessions in a process of their own, as applications run them."""

import os
from pathlib import Path

import pytest

from amplifier_foundation.subprocess_runner import SubprocessSessionError, run_session_in_subprocess

LOOP = """
import os
__amplifier_module_type__ = "orchestrator"

class Loop:
    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def execute(self, prompt, context, providers, tools, hooks, **more):
        if prompt == "budget":
            return repr(self.coordinator.config["session"]["injection_budget_per_turn"])
        if prompt == "fail":
            raise ValueError("no such luck")
        ask = self.coordinator.get_capability
        mentioned = ask("mention_resolver").resolve("@team:notes.md")
        place = ask("session.working_dir")
        session = self.coordinator.session_id
        return f"{session} {self.coordinator.parent_id} {prompt} {place} {mentioned.name} {os.getpid()}"

async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", Loop(coordinator))
"""


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    package = tmp_path / "loop-told/amplifier_module_loop_told"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LOOP)
    (tmp_path / "notes.md").write_text("")
    return package.parent


PLAN = {
    "session": {"orchestrator": {"module": "loop-told"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock"}],
}


async def test_a_session_answers_from_a_process_of_its_own(tmp_path: Path, loop: Path) -> None:
    answer = await run_session_in_subprocess(
        config=PLAN,
        prompt="hello",
        parent_id="p1",
        project_path=str(tmp_path),
        session_id="s1",
        module_paths={"loop-told": str(loop)},
        bundle_package_paths=[],
        sys_paths=[str(loop)],
        mention_mappings={"team": str(tmp_path)},
    )

    *told, process = answer.split()
    assert told == ["s1", "p1", "hello", str(tmp_path), "notes.md"]
    assert int(process) != os.getpid()


async def test_a_session_that_fails_says_why(tmp_path: Path, loop: Path) -> None:
    with pytest.raises(SubprocessSessionError, match="no such luck"):
        await run_session_in_subprocess(PLAN, "fail", None, tmp_path, module_paths={"loop-told": loop})


async def test_a_plan_arrives_as_it_is_and_no_file_of_the_project_takes_a_packages_place(
    tmp_path: Path, loop: Path
) -> None:
    session = PLAN["session"] | {"injection_budget_per_turn": None}  # type: ignore[operator] # a mapping of the plan
    for name in ("amplifier_foundation", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('of the project')\n")

    answer = await run_session_in_subprocess(
        PLAN | {"session": session}, "budget", None, tmp_path, module_paths={"loop-told": loop}
    )

    assert answer == "None"
