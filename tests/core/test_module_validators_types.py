"""The type that a module is validated as, and which module may pass as one of it without mounting anything."""

import sys
from pathlib import Path

import pytest
from validated_modules import SOURCES, TOOL, write_module

from amplifier_core.validation import HookValidator, ProviderValidator, ToolValidator
from amplifier_core.validation.base import validate_module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "amplifier-module-tool-x"


@pytest.mark.parametrize(
    ("folder_name", "declared", "module_type"),
    [
        ("amplifier-module-hooks-x", "", "hook"),
        ("amplifier-module-loop-x", "", "orchestrator"),
        ("amplifier-module-loop-x", "__amplifier_module_type__ = 'tool'", "tool"),
        ("something", "__amplifier_module_type__ = 'provider'", "provider"),
        ("amplifier-module-context-x", "raise OSError", "context"),
    ],
)
async def test_a_module_is_what_it_declares_else_what_its_id_suggests(
    tmp_path: Path, folder_name: str, declared: str, module_type: str
) -> None:
    folder = write_module(tmp_path / folder_name, declared, package="amplifier_module_any")

    assert (await validate_module(folder)).module_type == module_type


async def test_a_given_type_wins(folder: Path) -> None:
    result = await validate_module(write_module(folder, SOURCES["hook"]), "hook")

    assert (result.module_type, result.passed) == ("hook", True)


async def test_an_unknown_declared_type_fails_the_module(folder: Path) -> None:
    result = await validate_module(write_module(folder, "__amplifier_module_type__ = 'agent'\n" + TOOL))

    assert [check.name for check in result.checks] == ["module_importable", "module_type"]
    assert result.errors[0].message.startswith("Module 'tool-x' has unknown type 'agent'. Valid types: [")


@pytest.mark.parametrize(("source", "module_type"), [("__amplifier_module_type__ = 'resolver'", None), (TOOL, "agent")])
async def test_a_type_without_a_validator_is_refused(folder: Path, source: str, module_type: str | None) -> None:
    write_module(folder, source)

    with pytest.raises(ValueError, match=r"there is no validator for module type '(resolver|agent)'"):
        await validate_module(folder, module_type)

    assert "amplifier_module_tool_x" not in sys.modules


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("provider-x", "return None"),
        ("provider-x", "await coordinator.mount('tools', Echo())"),
        ("acme", "return None"),
        ("acme", "return 'ACME_KEY is not set'"),
        ("tool-x", "return None"),
    ],
)
async def test_a_provider_may_decline(tmp_path: Path, name: str, body: str) -> None:
    source = f"{TOOL.partition('async def mount')[0]}\nasync def mount(coordinator, config): {body}\n"

    result = await ProviderValidator().validate(write_module(tmp_path / f"amplifier-module-{name}", source))

    assert result.passed
    assert result.checks[-1].message == "provider declined to mount (missing credentials?)"


async def test_a_module_that_registers_handlers_and_does_not_go_by_provider_is_none(tmp_path: Path) -> None:
    source = "async def mount(coordinator, config): coordinator.hooks.register('tool:pre', print)\n"

    result = await ProviderValidator().validate(write_module(tmp_path / "amplifier-module-tool-x", source))

    assert [check.message for check in result.errors] == [
        "No provider was mounted and mount() did not return a Provider instance"
    ]


@pytest.mark.parametrize("name", ["acme", "tool-provider-x", "hooks-x"])
@pytest.mark.parametrize("module_type", ["provider", "tool", "orchestrator", "context"])
async def test_a_module_of_any_name_may_mount_later(tmp_path: Path, name: str, module_type: str) -> None:
    source = "async def mount(coordinator, config): return lambda: None\n"

    result = await validate_module(write_module(tmp_path / f"amplifier-module-{name}", source), module_type)

    assert result.passed
    assert result.checks[-1].message == (
        f"mount() returned a cleanup callable (no {module_type} mounted yet - may be conditional)"
    )


@pytest.mark.parametrize("name", ["acme", "tool-x", "hooks-x"])
async def test_a_module_of_any_name_may_register_its_handlers_later(tmp_path: Path, name: str) -> None:
    source = "async def mount(coordinator, config): ...\n"

    result = await HookValidator().validate(write_module(tmp_path / f"amplifier-module-{name}", source))

    assert result.passed
    assert result.checks[-1].message == "Hooks registered via coordinator.hooks"


async def test_a_tool_that_registers_a_handler_may_mount_later(tmp_path: Path) -> None:
    source = "async def mount(coordinator, config): return coordinator.hooks.register('tool:pre', print)\n"

    result = await ToolValidator().validate(write_module(tmp_path / "amplifier-module-tool-x", source))

    assert result.passed
    assert result.checks[-1].severity == "warning"


async def test_a_module_whose_name_tells_no_type_may_return_its_handler(tmp_path: Path) -> None:
    source = (
        "class Handler:\n    async def __call__(self, event, data): ...\n"
        "async def mount(coordinator, config): return Handler()\n"
    )

    result = await HookValidator().validate(write_module(tmp_path / "amplifier-module-acme", source))

    assert [check.message for check in result.checks[-2:]] == [
        "mount() returned a valid HookHandler instance",
        "HookHandler.__call__() has correct async signature (event, data)",
    ]


@pytest.mark.parametrize("module_type", ["provider", "hook", "orchestrator", "context"])
async def test_a_tool_that_announces_itself_is_still_not_a_module_of_another_type(
    folder: Path, module_type: str
) -> None:
    announcing = TOOL + "    logging.getLogger(__name__).info('mounted')\n"

    result = await validate_module(write_module(folder, f"import logging\n{announcing}"), module_type)

    assert [check.name for check in result.errors] == ["protocol_compliance"]
