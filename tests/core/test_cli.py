"""The command `amplifier-core`, as a process and as a function."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import warm_python

import amplifier_core
from amplifier_core import validation
from amplifier_core.cli import VALIDATORS, main, print_result
from amplifier_core.validation import ValidationCheck, ValidationResult

COMMANDS = {
    "module": [sys.executable, "-m", "amplifier_core"],
    "script": [str(Path(sysconfig.get_path("scripts")) / "amplifier-core")],
}

TOOL = """
class Echo:
    name = "echo"
    description = "Says it again."
    async def execute(self, input): ...

async def mount(coordinator, config):
    await coordinator.mount("tools", Echo())
"""

HOOK = """
async def mount(coordinator, config):
    return coordinator.hooks.register("tool:pre", note)

async def note(event, data):
    return None
"""


def write_module(folder: Path, source: str) -> Path:
    package = folder / folder.name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    return folder


def run(*arguments: str | Path, command: str = "module", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process; the script, and what needs an environment of its own, in a new interpreter."""
    words = [*COMMANDS[command], *map(str, arguments)]
    options: Any = {
        "capture_output": True,
        "encoding": "utf-8",
        "env": {**os.environ, "PYTHONUTF8": "1", **environment},
    }
    start = warm_python.run if command == "module" and not environment else subprocess.run
    return start(words, **options)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    return write_module(tmp_path / "amplifier-module-tool-x", TOOL)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_good_module_passes_with_every_check_on_a_line(tool: Path, command: str) -> None:
    result = run("validate", tool, command=command)

    assert result.stdout.splitlines() == [
        f"Validating tool module: {tool}",
        "",
        "PASSED: 8/8 checks passed (0 errors, 0 warnings)",
        "",
        f"  ✓ [info]    module_importable: Module loaded from {tool}",
        "  ✓ [info]    mount_exists: mount() function found",
        "  ✓ [info]    mount_signature: mount() is async with correct signature",
        "  ✓ [info]    protocol_compliance: Tool 'echo' implements Tool interface",
        "  ✓ [info]    tool_name: Tool has name: 'echo'",
        "  ✓ [info]    tool_description: Tool has description",
        "  ✓ [info]    tool_input_schema: Tool.input_schema returns dict with 0 properties",
        "  ✓ [info]    tool_execute: Tool.execute() has correct async signature",
    ]
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_module_fails_with_exit_code_1(tmp_path: Path, command: str) -> None:
    folder = write_module(tmp_path / "amplifier-module-tool-x", "")

    result = run("validate", folder, command=command)

    assert result.returncode == 1
    assert "FAILED: 1/2 checks passed (1 errors, 0 warnings)" in result.stdout
    assert "  ✗ [error]   mount_exists: No mount() function found in module" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_usage_error_exits_with_2(command: str) -> None:
    result = run("validate", command=command)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: amplifier-core validate")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["validate", "--type", "resolver", "."],
        ["validate", "--nonsense", "."],
        ["list-types", "surplus"],
        ["list-types", "--surplus"],
    ],
)
def test_wrong_arguments_are_a_usage_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: amplifier-core")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_version_is_the_packages(command: str) -> None:
    result = run("--version", command=command)

    assert (result.returncode, result.stdout) == (0, f"amplifier-core, version {amplifier_core.__version__}\n")


def test_the_types_are_listed_with_a_line_about_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list-types"]) == 0

    heading, blank, *lines = capsys.readouterr().out.splitlines()
    assert (heading, blank) == ("Available module types:", "")
    assert [line.split()[0] for line in lines] == ["provider", "tool", "hook", "orchestrator", "context"]
    assert all(len(line.split()) > 3 for line in lines)


def test_the_validators_go_by_type() -> None:
    assert {
        "provider": validation.ProviderValidator,
        "tool": validation.ToolValidator,
        "hook": validation.HookValidator,
        "orchestrator": validation.OrchestratorValidator,
        "context": validation.ContextValidator,
    } == VALIDATORS


@pytest.mark.parametrize(
    "before",
    [
        ["validate", "{path}", "--type", "hook"],
        ["validate", "--type", "hook", "{path}"],
        ["validate", "hook", "{path}"],
        ["validate", "hook", "--quiet", "{path}"],
        ["validate", "hook", "{path}", "--type", "hook"],
        ["validate", "{path}", "--type=hook", "-e", "anything"],
        ["validate", "{path}", "--type", "hook", "--entry-point", "anything", "-q"],
    ],
)
def test_the_type_can_be_given_in_either_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: list[str]
) -> None:
    folder = write_module(tmp_path / "amplifier-module-tool-x", HOOK)

    assert main([word.format(path=folder) for word in before]) == 0
    assert "PASSED: 4/4 checks passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["validate", "tool", "{path}", "--type", "hook"], "two different types: tool and hook"),
        (["validate", "{path}", "{path}"], "one PATH is expected"),
        (["validate", "tool", "hook", "{path}"], "one PATH is expected"),
        (["validate", "{path}/missing"], "does not exist"),
        (["validate", "tool"], "does not exist"),
        (["validate", ""], "does not exist"),
        (["validate", "a\0b"], "does not exist"),
        (["validate", "x" * 5000], "does not exist"),
    ],
)
def test_a_contradiction_or_a_missing_path_is_a_usage_error(
    tool: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word.format(path=tool) for word in arguments])

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_type_without_a_validator_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_module(tmp_path / "amplifier-module-sources", "__amplifier_module_type__ = 'resolver'\n")

    with pytest.raises(SystemExit) as ended:
        main(["validate", str(folder)])

    assert ended.value.code == 2
    assert "there is no validator for module type 'resolver'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "source", "module_type"),
    [
        ("amplifier-module-hooks-x", HOOK, "hook"),
        ("amplifier-module-tool-x", "__amplifier_module_type__ = 'hook'\n" + HOOK, "hook"),
        ("amplifier-module-loop-x", "raise OSError", "orchestrator"),
    ],
)
def test_without_a_type_the_module_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, source: str, module_type: str
) -> None:
    path = write_module(tmp_path / folder, source)

    main(["validate", str(path)])

    assert capsys.readouterr().out.startswith(f"Validating {module_type} module: {path}\n\n")


def test_an_unknown_declared_type_fails_the_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_module(tmp_path / "amplifier-module-tool-x", "__amplifier_module_type__ = 'agent'\n" + TOOL)

    assert main(["validate", str(folder)]) == 1
    assert "module_type: Module 'tool-x' has unknown type 'agent'." in capsys.readouterr().out


def test_a_package_directory_is_accepted_and_so_is_the_current_one(
    tool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tool)

    assert main(["validate", str(tool / "amplifier_module_tool_x")]) == 0
    assert main(["validate", "."]) == 0
    assert main(["validate", "amplifier_module_tool_x"]) == 0
    assert "Validating tool module: amplifier_module_tool_x" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_prints_the_summary_only(tool: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main(["validate", str(tool), option]) == 0
    assert capsys.readouterr().out == "PASSED: 8/8 checks passed (0 errors, 0 warnings)\n"


def test_what_a_module_prints_is_not_part_of_the_output(tmp_path: Path) -> None:
    folder = write_module(
        tmp_path / "amplifier-module-tool-x", "print('at import')\n" + TOOL + "    print('in mount')\n"
    )

    result = run("validate", folder, "-q")

    assert result.stdout == "PASSED: 8/8 checks passed (0 errors, 0 warnings)\n"
    assert result.stderr == "at import\nin mount\n"


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "def (",
        "import not_there_at_all",
        "async def mount(coordinator, config): raise SystemExit(0)",
        "async def mount(coordinator, config): raise BaseException('odd')",
        "async def mount(coordinator, config): raise __import__('asyncio').CancelledError",
        "def mount(coordinator, config): return 3",
    ],
)
def test_no_module_can_end_the_command_other_than_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    folder = write_module(tmp_path / "amplifier-module-tool-x", source)

    assert main(["validate", str(folder)]) == 1

    printed = capsys.readouterr()
    assert "FAILED: " in printed.out
    assert "Traceback" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("asyncio.get_running_loop().create_task(leave())", "SystemExit(0)"),
        ("asyncio.current_task().cancel()", "CancelledError()"),
    ],
)
def test_a_task_that_ends_the_event_loop_fails_the_module(tmp_path: Path, body: str, ending: str) -> None:
    source = f"""
import asyncio
async def leave(): raise SystemExit(0)
async def mount(coordinator, config):
    {body}
    await asyncio.sleep(60)
"""
    result = run("validate", write_module(tmp_path / "amplifier-module-tool-x", source))

    assert result.returncode == 1
    assert f"  ✗ [error]   module_survives: The module ended the validation: {ending}" in result.stdout


@pytest.mark.parametrize(("name", "content"), [("notes.txt", b"plain"), ("binary.py", b"\x00\xff")])
def test_a_file_that_is_no_module_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)

    assert main(["validate", str(tmp_path / name)]) == 1
    assert "✗ [error]   module_importable: " in capsys.readouterr().out


def test_a_folder_without_a_package_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 1
    assert f"module_importable: No __init__.py found in {tmp_path}" in capsys.readouterr().out


def test_a_terminal_that_knows_ascii_only_is_served_too(tool: Path) -> None:
    result = run("validate", tool, PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert result.returncode == 0
    assert "  \\u2713 [info]    mount_exists: mount() function found" in result.stdout


def test_a_result_is_printed_without_colours_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    result = ValidationResult("tool", "x", [ValidationCheck("a", True, "fine", "warning")])

    print_result(result)

    assert capsys.readouterr().out == "PASSED: 1/1 checks passed (0 errors, 0 warnings)\n\n  ✓ [warning] a: fine\n"


@pytest.mark.parametrize(("no_color", "mark"), [("", "\x1b[31m✗\x1b[0m"), ("1", "✗")])
def test_a_terminal_gets_colours_unless_it_wants_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_color: str, mark: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_result(ValidationResult("tool", "x", [ValidationCheck("a", False, "wrong", "error")]))

    assert f"  {mark} [error]   a: wrong" in capsys.readouterr().out


def test_the_command_does_not_load_what_only_tests_need() -> None:
    code = "import sys, amplifier_core.cli; print(sorted({'pytest', 'unittest.mock'} & set(sys.modules)))"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"


@pytest.mark.parametrize("module_type", ["provider", "orchestrator", "context", "hook"])
@pytest.mark.parametrize("ending", ["", "    return lambda: None\n"], ids=["returns nothing", "returns a cleanup"])
def test_a_tool_does_not_pass_for_another_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module_type: str, ending: str
) -> None:
    tool = write_module(tmp_path / "amplifier-module-tool-x", TOOL + ending)

    assert main(["validate", module_type, str(tool)]) == 1

    assert "protocol_compliance: No " in capsys.readouterr().out
