"""What the configuration says, and what becomes of one that does not fit."""

import logging
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool, mount

from amplifier_core.testing import MockCoordinator


async def test_everything_has_a_default() -> None:
    coordinator = MockCoordinator()

    await mount(coordinator)

    settings = coordinator.get("tools", "bash").settings
    assert (settings.timeout_s, settings.max_timeout_s, settings.max_output_bytes) == (30, None, 100_000)
    assert (settings.max_concurrent, settings.require_approval) == (None, True)
    assert settings.validator.profile == "strict"
    assert settings.kill_background_on_cleanup is False


def test_approval_is_told_what_it_needs() -> None:
    tool = BashTool({"require_approval": "no", "denied_commands": ["git push"], "allowed_commands": ["ls *"]})

    assert tool.get_metadata() == {
        "requires_approval": False,
        "approval_hints": {"risk_level": "high", "dangerous_patterns": ["git push"], "safe_patterns": ["ls *"]},
    }


@pytest.mark.parametrize("profile", ["lax", "STRICT", 3])
async def test_an_unknown_profile_is_an_error(profile: Any) -> None:
    with pytest.raises(ValueError, match=f"Unknown profile '{profile}'. Valid profiles: strict, standard, permissive"):
        await mount(MockCoordinator(), {"safety_profile": profile})


WRONG = {
    "timeout": ("soon", "timeout_s", 30),
    "max_timeout": (-1, "max_timeout_s", 30),
    "max_output_bytes": (0, "max_output_bytes", 100_000),
    "max_concurrent": ("many", "max_concurrent", 1),
    "require_approval": ("perhaps", "require_approval", True),
    "denied_commands": ({"rm"}, "denied_commands", ["*"]),
    "env": (["A=1"], "env", {}),
    "safety_overrides": ("all", None, None),
}


@pytest.mark.parametrize(("key", "case"), WRONG.items(), ids=WRONG)
def test_a_value_that_does_not_fit_is_replaced_and_reported_once(
    key: str, case: Any, caplog: pytest.LogCaptureFixture
) -> None:
    value, attribute, default = case

    settings = BashTool({key: value}).settings

    if attribute is not None:
        assert getattr(settings, attribute) == default
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert key in record.getMessage()


def test_empty_and_unexpanded_texts_are_unset(caplog: pytest.LogCaptureFixture) -> None:
    settings = BashTool({"safety_profile": "", "timeout": "${LIMIT}", "working_dir": ""}).settings

    assert (settings.validator.profile, settings.timeout_s, settings.working_dir) == ("strict", 30, None)
    assert len(caplog.records) == 1


def test_an_unknown_key_is_reported_with_the_nearest_one(caplog: pytest.LogCaptureFixture) -> None:
    BashTool({"time_out": 3, "id": "x", "module": "tool-bash"})

    assert "'time_out'" in caplog.text
    assert "'timeout'" in caplog.text
    assert len(caplog.records) == 1


async def test_the_configuration_is_not_changed() -> None:
    config = {"env": {"A": "1"}, "safety_overrides": {"allow": ["x"]}, "denied_commands": ["y"]}
    before = repr(config)

    await mount(MockCoordinator(), config)

    assert repr(config) == before
