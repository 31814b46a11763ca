"""Who is told of what is being retired, and when."""

from typing import Any

import pytest
from amplifier_module_hooks_deprecation import mount, on_session_ready

from amplifier_core.testing import EventRecorder, MockCoordinator

OLD = {"bundle_name": "hooks-old", "replacement": "hooks-new", "sunset_date": "2020-01-01", "require_evidence": True}


class Display:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str, str]] = []

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        self.shown.append((message, level, source))


@pytest.mark.parametrize(
    ("plan", "is_told"),
    [
        ({"hooks": [{"module": "hooks-old"}]}, True),
        ({"hooks": [{"module": "x", "source": "git+https://host/org/hooks-old"}]}, True),
        ({"hooks": [{"module": "hooks-other"}]}, False),
    ],
)
@pytest.mark.parametrize("config", [OLD, {"deprecations": [OLD]}], ids=["flat", "listed"])
async def test_a_person_is_told_once_of_what_the_session_uses(
    plan: dict[str, Any], is_told: bool, config: dict[str, Any]
) -> None:
    coordinator = MockCoordinator()
    coordinator.config, coordinator.display_system = plan, Display()
    recorder = EventRecorder()
    coordinator.hooks.register("deprecation:warning", recorder.record, name="recorder")
    await mount(coordinator, config)
    await on_session_ready(coordinator)

    answers = [await coordinator.hooks.emit("session:start", {}) for _ in range(2)]

    text = "hooks-old is being retired. It ended on 2020-01-01. Use hooks-new instead."
    assert coordinator.display_system.shown == ([(text, "warning", "hooks-deprecation")] if is_told else [])
    assert len(recorder.events) == int(is_told)
    assert {answer.action for answer in answers} == {"continue"}
