"""What a module is held to while it is loaded, what a refusal says, and what it leaves behind: nothing."""

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator, ModuleValidationError
from amplifier_core.loader import module_failure_reason

FAILED_VALIDATION = re.compile(r"Module '([^']+)' failed validation: ([^.]+)\. Errors: (.+)")
NO_PACKAGE = re.compile(r"Module '([^']+)' has no valid Python package at (.+)")


BROKEN = {
    "a missing dependency": (
        {"head": "import no_such_package_anywhere"},
        "validation_failed",
        "No module named 'no_such_package_anywhere'",
        "install 'no_such_package_anywhere'",
    ),
    "a syntax error": ({"head": "def broken(:"}, "validation_failed", "invalid syntax", "correct line"),
    "an error at import": ({"head": "raise OSError('no disk')"}, "validation_failed", "no disk", "correct line"),
    "an exit at import": ({"head": "raise SystemExit('bye')"}, "validation_failed", "bye", "correct line"),
    "an exit with a number": ({"head": "raise SystemExit(3)"}, "validation_failed", "SystemExit(3)", "correct line"),
    "an error without text": ({"head": "raise ValueError"}, "validation_failed", "ValueError()", "correct line"),
    "no mount": ({"source": "x = 1"}, "invalid_entry_point", "No mount() function found", "async def mount"),
    "a mount that is no function": ({"tail": "mount = 7"}, "invalid_entry_point", "not callable", "async def mount"),
    "a sync mount": (
        {"source": "def mount(coordinator, config): ..."},
        "invalid_entry_point",
        "mount() should be async",
        "async def mount",
    ),
    "a mount without config": (
        {"source": "async def mount(coordinator): ..."},
        "invalid_entry_point",
        "at least 2 parameters",
        "async def mount",
    ),
    "a sync callback": (
        {"tail": "def on_session_ready(coordinator): ..."},
        "invalid_entry_point",
        "on_session_ready() must be async",
        "async def on_session_ready",
    ),
    "the wrong protocol": (
        {"definition": "class Thing:\n    name = NAME"},
        "validation_failed",
        "does not implement Tool interface",
        "docs/contracts/tool.md",
    ),
    "a sync execute": (
        {"definition": "class Thing:\n    name = description = NAME\n    def execute(self, input): ..."},
        "validation_failed",
        "Tool.execute() should be async",
        "docs/contracts/tool.md",
    ),
    "nothing mounted": ({"mount": "pass"}, "validation_failed", "No tool was mounted", "docs/contracts/tool.md"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_module_is_refused_with_its_name_its_file_and_a_fix(modules: Any, fault: str) -> None:
    broken, reason, complaint, fix = BROKEN[fault]
    module = modules.write("tool", **broken)

    error = await modules.refusal_of(modules.loader(), module.module_id)

    assert isinstance(error, ModuleValidationError)
    assert not isinstance(error, ValueError)
    assert error.reason_code == module_failure_reason(error) == reason
    matched = FAILED_VALIDATION.search(f"Cannot initialize without orchestrator: {error}")
    assert matched is not None
    assert matched[1] == module.module_id
    assert re.fullmatch(r"FAILED: \d/\d checks passed \(1 errors, 0 warnings\)", matched[2])
    assert complaint in matched[3]
    message, _, advice = str(error).partition("\n  fix: ")
    assert fix in advice
    assert str(module.folder) in advice or str(module.folder) in message


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
async def test_what_a_module_mounts_has_to_fulfil_the_contract_of_its_type(modules: Any, kind: str) -> None:
    module = modules.write(kind, definition="class Thing:\n    name = NAME")

    error = await modules.refusal_of(modules.loader(), module.module_id)

    assert isinstance(error, ModuleValidationError)
    assert "does not implement" in str(error)
    assert f"docs/contracts/{kind}.md" in str(error)


async def test_a_declared_type_beats_the_one_the_id_suggests(modules: Any) -> None:
    module = modules.write(
        "tool",
        head='__amplifier_module_type__ = "hook"',
        mount='coordinator.hooks.register("tool:pre", thing)',
    )

    await modules.mounted_by(modules.loader(), module)

    assert module.times_mounted == 1


@pytest.mark.parametrize("declared", ["'gadget'", "7", "['tool']"])
async def test_an_unknown_declared_type_is_refused(modules: Any, declared: str) -> None:
    module = modules.write("tool", head=f"__amplifier_module_type__ = {declared}")

    error = await modules.refusal_of(modules.loader(), module.module_id)

    text = (
        f"Module '{module.module_id}' has unknown type '{declared.strip(chr(39))}'. "
        "Valid types: ['orchestrator', 'provider', 'tool', 'hook', 'context', 'resolver']"
    )
    assert isinstance(error, ModuleValidationError)
    assert str(error).startswith(text)
    assert error.reason_code == "invalid_module_metadata"
    assert str(module.file) in str(error)


async def test_a_type_without_a_validator_is_loaded_with_a_warning(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("resolver", head='__amplifier_module_type__ = "resolver"')

    coordinator = await modules.mounted_by(modules.loader(), module)

    assert coordinator.get("module-source-resolver") is not None
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [module.module_id in record.getMessage() for record in warnings] == [True]


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_folder_without_a_package_is_refused(modules: Any, tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "empty"
    if is_there:
        folder.mkdir()
    modules.resolver.folders["tool-x"] = folder

    error = await modules.refusal_of(modules.loader(), "tool-x")

    assert isinstance(error, ModuleValidationError)
    assert error.reason_code == ("invalid_package_layout" if is_there else "missing_source")
    matched = NO_PACKAGE.search(f"Cannot initialize without context manager: {error}")
    assert matched is not None
    assert matched.groups() == ("tool-x", str(folder))
    assert "fix:" in str(error)
    assert str(folder) not in sys.path


@pytest.mark.parametrize("mount", ["return None", "return lambda: None"])
async def test_a_provider_may_decline(modules: Any, mount: str) -> None:
    module = modules.write("provider", mount=mount)

    coordinator = await modules.mounted_by(modules.loader(), module)

    assert coordinator.get("providers") == {}


async def test_only_what_the_module_mounted_itself_is_held_against_it(modules: Any) -> None:
    module = modules.write("tool")
    coordinator = ModuleCoordinator()
    await coordinator.mount("tools", object(), name="somebody-elses")

    mount = await modules.loader().load(module.module_id)
    await mount(coordinator)

    assert list(coordinator.get("tools")) == ["somebody-elses", module.name]


async def test_a_coordinator_of_another_make_will_do(modules: Any) -> None:
    module = modules.write("tool")
    calls: list[Any] = []

    class Simple:
        async def mount(self, *arguments: Any, **keywords: Any) -> None:
            calls.append(arguments)

    mount = await modules.loader().load(module.module_id)
    await mount(Simple())

    assert len(calls) == 1


# What a failure leaves behind


BAD_MOUNTS = {
    "raises half-way": "raise OSError('half-way')",
    "is interrupted": "raise KeyboardInterrupt",
    "breaks its contract": "await coordinator.mount('tools', 7, name='wrong')",
}


@pytest.mark.parametrize("fault", BAD_MOUNTS)
async def test_a_module_that_fails_to_mount_leaves_nothing_on_the_coordinator(modules: Any, fault: str) -> None:
    module = modules.write(
        "tool",
        mount=f"""
            await coordinator.mount("tools", thing)
            await coordinator.mount("context", thing)
            coordinator.hooks.register("tool:pre", print)
            coordinator.register_capability("theirs", thing)
            coordinator.register_contributor("theirs", NAME, print)
            coordinator.register_cleanup(lambda: config["runs"].append("cleanup"))
            {BAD_MOUNTS[fault]}
        """,
    )
    loader, coordinator = modules.loader(), ModuleCoordinator()
    before, path = coordinator.to_dict(), list(sys.path)
    runs: list[str] = []
    mount = await loader.load(module.module_id, {"runs": runs})
    assert sys.path == [str(module.folder), *path]

    with pytest.raises((OSError, KeyboardInterrupt, ModuleValidationError)):
        await mount(coordinator)

    assert coordinator.to_dict() == before
    assert not coordinator.hooks.has_handlers("tool:pre")
    assert coordinator.channels == {}
    assert runs == ["cleanup"]
    assert sys.path == path
    assert loader._added_paths == []


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_refused_module_leaves_no_path_behind(modules: Any, fault: str) -> None:
    module = modules.write("tool", **BROKEN[fault][0])
    path = list(sys.path)
    loader = modules.loader()

    await modules.refusal_of(loader, module.module_id)

    assert sys.path == path
    assert loader._added_paths == []


async def test_a_package_that_could_not_be_imported_is_tried_anew_when_it_is_repaired(modules: Any) -> None:
    module = modules.write("tool", head="import no_such_package_anywhere")
    loader = modules.loader()
    await modules.refusal_of(loader, module.module_id)

    module.file.write_text(module.file.read_text().replace("import no_such_package_anywhere", ""))
    await modules.mounted_by(loader, module)

    assert module.times_mounted == 1


async def test_a_second_instance_that_fails_leaves_the_first_one_its_path(modules: Any) -> None:
    module = modules.write("tool", mount='await coordinator.mount("tools", thing)\nif config: raise LookupError')
    loader = modules.loader()
    await modules.mounted_by(loader, module)
    mount = await loader.load(module.module_id, {"fail": True})

    with pytest.raises(LookupError):
        await mount(ModuleCoordinator())

    assert str(module.folder) in sys.path
    loader.cleanup()
    assert str(module.folder) not in sys.path
