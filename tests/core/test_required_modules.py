"""What a plan calls `required` is there when the session starts, or it does not start."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.validation import MountPlanValidator


def plan(**entry: Any) -> dict[str, Any]:
    return {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "hooks": [entry],
    }


@pytest.fixture
def broken_module(tmp_path: Path) -> str:
    package = tmp_path / "amplifier_module_hooks_broken"
    package.mkdir()
    (package / "__init__.py").write_text("async def mount(coordinator, config):\n    raise KeyError('key')\n")
    return str(tmp_path)


async def test_a_misspelt_required_module_keeps_the_session_from_starting() -> None:
    session = AmplifierSession(plan(module="hooks-aproval", required=True))

    with pytest.raises(RuntimeError, match=r"^Cannot initialize without required module 'hooks-aproval': "):
        await session.initialize()


async def test_a_required_module_that_does_not_mount_keeps_the_session_from_starting(broken_module: str) -> None:
    session = AmplifierSession(plan(module="hooks-broken", source=broken_module, required=True))

    with pytest.raises(RuntimeError, match=r"required module 'hooks-broken': 'key'$"):
        await session.initialize()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"default_action": "maybe"}, "config key 'default_action' is 'maybe'"),
        ({"rulez": []}, "unknown config keys: rulez"),
        ({"rules": [{"pattern": "git push*", "action": "auto_denny"}]}, "config key 'rules[0]'"),
    ],
)
async def test_a_wrong_configuration_of_a_required_guard_is_an_error(config: dict[str, Any], problem: str) -> None:
    session = AmplifierSession(plan(module="hooks-approval", config=config, required=True))

    with pytest.raises(RuntimeError, match=r"Cannot initialize without required module 'hooks-approval'") as error:
        await session.initialize()

    assert problem in str(error.value)


async def test_without_required_a_guard_falls_back_to_what_is_safe() -> None:
    session = AmplifierSession(plan(module="hooks-approval", config={"default_action": "maybe"}, required=False))

    await session.initialize()

    assert session.status.load_failures == []
    await session.cleanup()


async def test_a_required_entry_without_a_module_is_not_skipped() -> None:
    with pytest.raises(RuntimeError, match=r"hooks\[0\] names no module"):
        await AmplifierSession(plan(required=True)).initialize()


def test_the_validator_knows_the_key() -> None:
    assert MountPlanValidator().validate(plan(module="hooks-approval", required=True)).errors == []
    wrong = MountPlanValidator().validate(plan(module="hooks-approval", required="yes"))
    assert any("required" in problem.message for problem in [*wrong.errors, *wrong.warnings])


TOOLS: list[tuple[str, dict[str, Any], str]] = [
    ("tool-bash", {"sandbox": "perhaps"}, "config key 'sandbox' is 'perhaps'"),
    ("tool-bash", {"denied_commands": 7}, "config key 'denied_commands' is 7"),
    ("tool-bash", {"denied_comands": ["rm"]}, "unknown config key 'denied_comands'"),
    ("tool-bash", {"safety_overrides": {"blok": ["rm"]}}, "unknown config key 'blok'"),
    ("tool-bash", {"denied_commands": "${NOT_EXPANDED}"}, "config key 'denied_commands' is ${NOT_EXPANDED}"),
    ("tool-web", {"blocked_domains": 7}, "config key 'blocked_domains' is 7"),
    ("tool-web", {"block_private_networks": "perhaps"}, "config key 'block_private_networks' is 'perhaps'"),
    ("tool-web", {"api_key": "clé"}, "config key 'api_key'"),
    ("tool-web", {"allowed_write_paths": ["${NOT_EXPANDED}"]}, "config key 'allowed_write_paths'"),
    ("tool-filesystem", {"denied_write_paths": {}}, "config key 'denied_write_paths' is {}"),
    ("tool-mcp", {"servers": ["a"]}, "servers"),
    ("tool-mcp", {"servers": {"a": {"command": 7}}}, "servers.a.command"),
    ("tool-mcp", {"servers": {"a": {"command": "a", "sandbox": "perhaps"}}}, "config key 'sandbox' is 'perhaps'"),
    ("tool-mcp", {"config_file": "missing.json"}, "config_file"),
]


@pytest.mark.parametrize(("module", "config", "problem"), TOOLS)
async def test_a_wrong_configuration_of_a_required_tool_is_an_error(
    module: str, config: dict[str, Any], problem: str
) -> None:
    entry = {"module": module, "config": config, "required": True}
    session = AmplifierSession({**plan(), "hooks": [], "tools": [entry]})

    with pytest.raises(RuntimeError, match=f"Cannot initialize without required module '{module}'") as error:
        await session.initialize()

    assert problem in str(error.value)
    assert "clé" not in str(error.value)


@pytest.mark.parametrize(("module", "config", "problem"), TOOLS)
async def test_without_required_a_tool_makes_do(module: str, config: dict[str, Any], problem: str) -> None:
    session = AmplifierSession({**plan(), "hooks": [], "tools": [{"module": module, "config": config}]})

    await session.initialize()

    assert session.status.load_failures == []
    await session.cleanup()


async def test_a_required_redaction_with_a_rule_that_does_not_exist_is_an_error() -> None:
    entry = {"module": "hooks-redaction", "config": {"rules": ["secrets", "pii-basik"]}, "required": True}

    with pytest.raises(RuntimeError, match="pii-basik"):
        await AmplifierSession(plan(**entry)).initialize()
