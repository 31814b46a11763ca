"""Validating a module apart from everything else: import, mount, look, clean up, leave no trace."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from validated_modules import SOURCES, TOOL, write_module

from amplifier_core import packages, validation
from amplifier_core.testing import wait_for
from amplifier_core.validation import (
    ContextValidator,
    HookValidator,
    OrchestratorValidator,
    ProviderValidator,
    ToolValidator,
    ValidationCheck,
    ValidationResult,
)
from amplifier_core.validation.base import import_module_from_path

VALIDATORS = {
    "provider": ProviderValidator,
    "tool": ToolValidator,
    "hook": HookValidator,
    "orchestrator": OrchestratorValidator,
    "context": ContextValidator,
}


@pytest.fixture(autouse=True)
def _imports_undone() -> Iterator[None]:
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    sys.modules.update(modules)


def passing(name: str, message: str) -> ValidationCheck:
    return ValidationCheck(name, True, message, "info")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "amplifier-module-tool-x"


def messages(result: ValidationResult) -> list[str]:
    return [f"{check.name}: {check.message}" for check in result.checks]


def test_the_package_exports_the_validators_and_their_results() -> None:
    assert set(validation.__all__) == {
        "ValidationCheck",
        "ValidationResult",
        "MountPlanValidationResult",
        "MountPlanValidator",
        "ProviderValidator",
        "ToolValidator",
        "HookValidator",
        "OrchestratorValidator",
        "ContextValidator",
    }
    assert import_module_from_path is packages.import_module_from_path


@pytest.mark.parametrize("module_type", list(VALIDATORS))
async def test_a_good_module_of_each_type_passes_its_validator(tmp_path: Path, module_type: str) -> None:
    folder = write_module(tmp_path / "amplifier-module-x", SOURCES[module_type])

    result = await VALIDATORS[module_type]().validate(folder)

    assert result.passed, messages(result)
    assert (result.module_type, result.module_path) == (module_type, str(folder))
    assert [check.name for check in result.checks][:4] == [
        "module_importable",
        "mount_exists",
        "mount_signature",
        "protocol_compliance",
    ]


async def test_a_summary_counts_what_passed(folder: Path) -> None:
    result = await ToolValidator().validate(write_module(folder, TOOL.replace('"Says it again."', '""')))

    assert result.summary() == "PASSED: 7/8 checks passed (0 errors, 1 warnings)"


def test_a_result_can_be_built_by_hand() -> None:
    result = ValidationResult("tool", "/somewhere")
    check = ValidationCheck("mine", False, "no", "error")
    result.add(check)

    assert (result.passed, result.errors, ValidationResult("tool", "x").checks) == (False, [check], [])


async def test_folder_package_and_file_are_all_accepted(folder: Path) -> None:
    write_module(folder, TOOL)
    package = folder / "amplifier_module_tool_x"

    for path in (folder, str(folder), package, str(package), package / "__init__.py"):
        result = await ToolValidator().validate(path, entry_point="ignored")
        assert result.passed, messages(result)
        assert result.checks[0] == passing("module_importable", f"Module loaded from {path}")


async def test_the_current_directory_can_be_validated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_module(folder, TOOL) / "amplifier_module_tool_x")

    for path in (".", "..", "../amplifier_module_tool_x"):
        result = await ToolValidator().validate(path)
        assert result.passed, messages(result)


async def test_the_package_is_found_through_the_entry_point(tmp_path: Path) -> None:
    folder = write_module(tmp_path / "checkout", TOOL, package="my_tool")
    (folder / "pyproject.toml").write_text('[project.entry-points."amplifier.modules"]\nmy-tool = "my_tool:mount"\n')

    assert (await ToolValidator().validate(folder)).passed


async def test_a_dotted_name_is_imported_when_there_is_no_such_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path / "site", "", package="holder", tool=TOOL)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    result = await ToolValidator().validate("holder.tool")

    assert result.passed, messages(result)
    assert result.checks[0] == passing("module_importable", "Module 'holder.tool' imported successfully")
    assert "holder" not in sys.modules


@pytest.mark.parametrize(
    "name", ["not_there_at_all", "not_there.at_all", "no/such/folder", "./nothing", "a\0b", "x" * 5000]
)
async def test_what_is_neither_a_path_nor_a_name_fails_to_import(name: str) -> None:
    result = await ToolValidator().validate(name)

    assert [check.name for check in result.errors] == ["module_importable"]
    assert len(result.checks) == 1


async def test_a_missing_name_is_said_to_be_missing() -> None:
    result = await ToolValidator().validate("not_there_at_all")

    assert messages(result) == ["module_importable: Failed to import module: No module named 'not_there_at_all'"]


async def test_a_folder_without_a_package_fails(tmp_path: Path) -> None:
    assert messages(await ToolValidator().validate(tmp_path)) == [
        f"module_importable: No __init__.py found in {tmp_path}"
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import not_there_at_all", "Failed to import module: No module named 'not_there_at_all'"),
        ("raise RuntimeError('broken')", "Error loading module: broken"),
        ("import sys; sys.exit(3)", "Error loading module: SystemExit(3)"),
        ("raise ValueError", "Error loading module: ValueError()"),
        ("class Odd(Exception):\n    def __str__(self): raise Exception\nraise Odd", "Error loading module: Odd"),
        ("def recurse(): recurse()\nrecurse()", "Error loading module: maximum recursion depth exceeded"),
    ],
)
async def test_a_module_that_cannot_be_imported_is_a_failed_check(folder: Path, source: str, message: str) -> None:
    result = await ToolValidator().validate(write_module(folder, source))

    assert messages(result) == [f"module_importable: {message}"]


async def test_a_syntax_error_is_a_failed_check(folder: Path) -> None:
    (message,) = messages(await ToolValidator().validate(write_module(folder, "def (")))

    assert message.startswith("module_importable: Error loading module: ")


@pytest.mark.parametrize(
    ("name", "content"), [("notes.txt", b"plain"), ("binary.py", b"\x00\xff\x00"), ("a.b.py", b"")]
)
async def test_a_file_that_is_no_module_is_a_failed_check(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    result = await ToolValidator().validate(tmp_path / name)

    assert [check.name for check in result.checks] == ["module_importable"]
    assert not result.passed


async def test_without_mount_nothing_is_mounted(folder: Path) -> None:
    assert messages(await ToolValidator().validate(write_module(folder, "")))[1:] == [
        "mount_exists: No mount() function found in module"
    ]


async def test_a_wrong_signature_does_not_end_the_validation(folder: Path) -> None:
    source = TOOL.replace("async def mount(coordinator, config)", "async def mount(coordinator)")

    result = await ToolValidator().validate(write_module(folder, source))

    assert [check.name for check in result.errors] == ["mount_signature", "protocol_compliance"]


async def test_a_wrong_on_session_ready_fails_the_module(folder: Path) -> None:
    result = await ToolValidator().validate(write_module(folder, TOOL + "\ndef on_session_ready(coordinator): ...\n"))

    assert [check.name for check in result.errors] == ["on_session_ready_async"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("raise RuntimeError('no key')", "no key"),
        ("import sys; sys.exit('bye')", "SystemExit('bye')"),
        ("import asyncio; raise asyncio.CancelledError", "CancelledError()"),
        ("class Own(BaseException): pass\n    raise Own('own')", "Own('own')"),
        ("coordinator.mount_points.clear()", "KeyError('tools')"),
        ("coordinator.mount_points = None", "'NoneType' object is not subscriptable"),
    ],
)
async def test_whatever_mount_raises_is_a_failed_check(folder: Path, body: str, text: str) -> None:
    source = f"async def mount(coordinator, config):\n    {body}\n"

    result = await ToolValidator().validate(write_module(folder, source))

    assert messages(result)[-1] == f"protocol_compliance: Error during protocol compliance check: {text}"
    assert not result.passed


async def test_an_interface_that_exits_is_a_failed_check(folder: Path) -> None:
    source = TOOL.replace('name = "echo"', "@property\n    def name(self): import sys; sys.exit(0)").replace(
        "Echo())", 'Echo(), name="echo")'
    )

    result = await ToolValidator().validate(write_module(folder, source))

    assert messages(result)[-1] == "protocol_compliance: Error during protocol compliance check: SystemExit(0)"


async def test_an_interrupt_from_the_keyboard_goes_through(folder: Path) -> None:
    source = "async def mount(coordinator, config):\n    raise KeyboardInterrupt\n"
    before = list(sys.path)

    coroutine = ToolValidator().validate(write_module(folder, source))
    with pytest.raises(KeyboardInterrupt):
        await coroutine

    assert (sys.path, "amplifier_module_tool_x" in sys.modules) == (before, False)


async def test_cancelling_the_validation_cancels_it_and_cleans_up(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = f"""
import asyncio, pathlib
async def mount(coordinator, config):
    coordinator.register_cleanup(lambda: pathlib.Path({str(log)!r}).write_text("cleaned"))
    pathlib.Path({str(log)!r}).write_text("mounting")
    await asyncio.sleep(3600)
"""
    task = asyncio.create_task(ToolValidator().validate(write_module(folder, source)))
    await wait_for(log.exists, timeout=10)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert log.read_text() == "cleaned"
    assert "amplifier_module_tool_x" not in sys.modules


async def test_a_configuration_that_cannot_be_copied_is_a_failed_check(folder: Path) -> None:
    config: dict[str, Any] = {}
    for _ in range(100_000):
        config = {"deeper": config}

    result = await ToolValidator().validate(write_module(folder, TOOL), config=config)

    assert [check.name for check in result.errors] == ["protocol_compliance"]


async def test_the_module_gets_a_copy_of_the_configuration(folder: Path) -> None:
    source = TOOL + "\n    config['list'].append(config['self'] is config)\n"
    config: dict[str, Any] = {"list": []}
    config["self"] = config

    result = await ToolValidator().validate(write_module(folder, source), config=config)

    assert result.passed, messages(result)
    assert config["list"] == []


@pytest.mark.parametrize("config", [None, {}])
async def test_without_a_configuration_the_module_gets_an_empty_one(folder: Path, config: Any) -> None:
    source = TOOL + "\n    assert config == {}\n"

    assert (await ToolValidator().validate(write_module(folder, source), config=config)).passed


CLEANING = """
import pathlib
LOG = pathlib.Path({log!r})
def note(text):
    with LOG.open("a") as log:
        log.write(text + " ")
async def mount(coordinator, config):
    coordinator.register_cleanup(lambda: note("registered-first"))
    async def second():
        note("registered-second")
    coordinator.register_cleanup(second)
    {cleanup}
    {end}
"""


@pytest.mark.parametrize(
    ("cleanup", "end", "expected"),
    [
        ("def cleanup(): note('returned')", "return cleanup", "returned registered-second registered-first "),
        ("async def cleanup(): note('returned')", "return cleanup", "returned registered-second registered-first "),
        (
            "def cleanup(): note('returned'); raise OSError",
            "return cleanup",
            "returned registered-second registered-first ",
        ),
        (
            "def cleanup(): note('returned'); raise SystemExit",
            "return cleanup",
            "returned registered-second registered-first ",
        ),
        ("", "raise RuntimeError", "registered-second registered-first "),
        ("", "return {}", "registered-second registered-first "),
        ("coordinator.register_cleanup(exit)", "return None", "registered-second registered-first "),
    ],
)
async def test_the_returned_cleanup_runs_first_then_the_registered_ones(
    folder: Path, tmp_path: Path, cleanup: str, end: str, expected: str
) -> None:
    source = CLEANING.format(log=str(tmp_path / "log"), cleanup=cleanup, end=end)

    await ToolValidator().validate(write_module(folder, source))

    assert (tmp_path / "log").read_text() == expected


async def test_cleanups_do_not_change_the_verdict(folder: Path) -> None:
    source = TOOL + "\n    def cleanup(): raise OSError('late')\n    return cleanup\n"

    assert (await ToolValidator().validate(write_module(folder, source))).passed


async def test_what_the_module_mounts_is_not_taken_for_a_cleanup(folder: Path) -> None:
    source = TOOL.replace(
        "class Echo:", "class Echo:\n    called = 0\n    def __call__(self): open(__file__ + '.called', 'w')"
    )
    source = source.replace(
        'await coordinator.mount("tools", Echo())',
        'echo = Echo()\n    await coordinator.mount("tools", echo)\n    return echo',
    )

    assert (await ToolValidator().validate(write_module(folder, source))).passed
    assert not (folder / "amplifier_module_tool_x" / "__init__.py.called").exists()


async def test_the_module_runs_from_a_private_copy(folder: Path) -> None:
    source = TOOL.replace("async def mount", "from . import state\nasync def mount") + "\n    state.mounts.append(1)\n"
    write_module(folder, source, state="mounts = []")
    original = import_module_from_path(folder / "amplifier_module_tool_x")

    for _ in range(2):
        assert (await ToolValidator().validate(folder)).passed

    assert original.state.mounts == []
    assert sys.modules["amplifier_module_tool_x"] is original


async def test_nothing_of_the_module_stays_in_the_process(folder: Path, tmp_path: Path) -> None:
    await ToolValidator().validate(write_module(tmp_path / "amplifier-module-warm-up", TOOL))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "vendored_far_away.py").write_text("")
    source = f"""
import json, sys
sys.path.insert(0, {str(tmp_path / "elsewhere")!r})
import vendored_far_away, vendored_nearby
sys.modules["json"] = "replaced"
from . import part
{TOOL}
    from . import late
    sys.path.append("added-by-mount")
"""
    write_module(folder, source, part="", late="")
    (folder / "vendored_nearby.py").write_text("")
    path, modules = list(sys.path), dict(sys.modules)

    result = await ToolValidator().validate(folder)

    assert result.passed, messages(result)
    assert sys.path == path
    assert dict(sys.modules) == modules


async def test_installed_packages_that_a_module_imports_stay_imported(folder: Path) -> None:
    sys.modules.pop("colorsys", None)

    await ToolValidator().validate(write_module(folder, "import colorsys\n" + TOOL))

    assert "colorsys" in sys.modules


async def test_validations_at_the_same_time_do_not_meet(folder: Path) -> None:
    source = TOOL.replace("async def mount", "import asyncio, sys\nstate = []\nasync def mount") + (
        "\n    state.append(1)\n"
        "    await asyncio.sleep(0)\n"
        "    assert (len(state), sys.modules[__name__].state is state) == (1, True)\n"
    )
    write_module(folder, source)
    modules = dict(sys.modules)

    results = await asyncio.gather(*(ToolValidator().validate(folder) for _ in range(5)))

    assert [messages(result) for result in results if not result.passed] == []
    assert sys.modules.keys() == modules.keys()


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("def note(event, data): ...", "hook_handler: Handler 'note' should be async"),
        ("async def note(event): ...", "hook_handler: Handler 'note' should accept (event, data), found 1 params"),
        ("async def note(*given): ...", None),
        ("async def note(event, data): ...", None),
    ],
)
async def test_a_hooks_handlers_are_async_and_take_event_and_data(
    tmp_path: Path, handler: str, says: str | None
) -> None:
    mount = (
        "async def mount(coordinator, config=None):\n    coordinator.hooks.register('tool:pre', note, name='note')\n"
    )
    folder = write_module(tmp_path / "amplifier-module-hooks-x", f"{handler}\n{mount}")

    result = await HookValidator().validate(folder)

    assert result.passed == (says is None), messages(result)
    assert says is None or says in messages(result)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("amplifier_module_elsewhere:mount", "is not in the package amplifier_module_hooks_x"),
        ("amplifier_module_hooks_x:moumt", "names no function of amplifier_module_hooks_x"),
        ("amplifier_module_hooks_x:mount", None),
    ],
)
async def test_an_entry_point_leads_to_the_module(tmp_path: Path, target: str, says: str | None) -> None:
    folder = write_module(tmp_path / "amplifier-module-hooks-x", "async def mount(coordinator, config=None): ...\n")
    lines = f'[project]\nname = "x"\n[project.entry-points."amplifier.modules"]\nhooks-x = "{target}"\n'
    (folder / "pyproject.toml").write_text(lines)

    result = await HookValidator().validate(folder)

    assert result.passed == (says is None), messages(result)
    assert says is None or any(says in message for message in messages(result))


async def test_a_project_without_an_entry_point_is_named(tmp_path: Path) -> None:
    folder = write_module(tmp_path / "amplifier-module-hooks-x", "async def mount(coordinator, config=None): ...\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n')

    result = await HookValidator().validate(folder)

    assert result.passed
    assert any("names no entry point in the group amplifier.modules" in message for message in messages(result))


async def test_a_package_that_is_not_named_as_its_id_is_named(tmp_path: Path) -> None:
    folder = write_module(tmp_path / "amplifier-module-hooks-x", "async def mount(coordinator, config=None): ...\n")
    (folder / "amplifier_module_hooks_x").rename(folder / "amplifier_module_other")

    result = await HookValidator().validate(folder)

    wanted = "package_name: The package amplifier_module_other is not named as its id: amplifier_module_hooks_x"
    assert result.passed
    assert wanted in messages(result)
