"""The configuration: what is accepted, what is refused, what is warned about."""

from typing import Any

import pytest
from amplifier_module_hooks_logging import mount

from amplifier_core.testing import MockCoordinator


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("priority", "soon", "an integer"),
        ("auto_discover", "perhaps", "true or false"),
        ("strip_raw", 7, "true or false"),
        ("additional_events", "tool:x", "a list of strings"),
        ("exclude_events", [1], "a list of strings"),
        ("enabled_events", "tool:*", "a list of strings"),
        ("session_log_template", 7, "a string"),
        ("output_dir", ["x"], "a string"),
        ("level", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("max_bytes", -1, "an integer ≥ 0"),
        ("backup_count", 0, "an integer ≥ 1"),
    ],
)
async def test_a_value_that_does_not_fit_is_refused_with_module_key_value_and_range(
    key: str, value: Any, allowed: str
) -> None:
    coordinator = MockCoordinator()

    with pytest.raises(ValueError, match="hooks-logging") as refusal:
        await mount(coordinator, {key: value})

    assert all(part in str(refusal.value) for part in (repr(key), repr(value), allowed))
    assert not any(coordinator.hooks.list_handlers().values())


async def test_numbers_and_truth_values_may_be_given_as_text(logs: Any) -> None:
    await logs.mount(priority="5", strip_raw="true", max_bytes="1000", auto_discover="False")

    await logs.emit("llm:request", raw=1, provider="p")

    assert "raw" not in logs.records()[0]["data"]


async def test_none_means_the_default(logs: Any) -> None:
    await logs.mount(exclude_events=None, level=None, priority=None)

    await logs.emit("plan:start")

    assert logs.events() == ["plan:start"]


async def test_keys_of_older_plans_are_accepted_in_silence(logs: Any, caplog: pytest.LogCaptureFixture) -> None:
    await logs.mount(mode="session-only", output="file", file="x.log")

    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize(("key", "value"), [("mode", "global"), ("exclude_event", [])])
async def test_another_mode_and_an_unknown_key_are_warned_about(
    logs: Any, key: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await logs.mount(**{key: value})

    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (key in warning.message, "hooks-logging" in warning.message) == (True, True)
