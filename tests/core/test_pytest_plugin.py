"""The pytest plugin and the shipped test classes, run by a real pytest in generated module repositories."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import plain_pytest
import pytest

import amplifier_core
from amplifier_core.validation import behavioral, structural
from amplifier_core.validation.base import check_on_session_ready

pytest_plugins = ["pytester"]

TYPES = ("provider", "tool", "hook", "orchestrator", "context")

GOOD = {
    "provider": """
from amplifier_core.models import ProviderInfo
class Acme:
    name = "acme"
    def get_info(self): return ProviderInfo(id="acme", display_name="Acme")
    async def list_models(self): return []
    async def complete(self, request, **kwargs): ...
    def parse_tool_calls(self, response): return []
async def mount(coordinator, config):
    await coordinator.mount("providers", Acme())
""",
    "tool": """
from amplifier_core.models import ToolResult
class Echo:
    name = "echo"
    description = "Says it again."
    async def execute(self, input): return ToolResult(output="again")
async def mount(coordinator, config):
    await coordinator.mount("tools", Echo())
""",
    "hook": """
from amplifier_core.models import HookResult
async def handler(event, data): return HookResult()
async def mount(coordinator, config):
    return coordinator.hooks.register("test:event", handler)
""",
    "orchestrator": """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks):
        await context.add_message({"role": "user", "content": prompt})
        response = await next(iter(providers.values())).complete(prompt)
        return response.content[0].text
async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop())
""",
    "context": """
class Memory:
    def __init__(self): self.messages = []
    async def add_message(self, message):
        if "role" not in message: raise ValueError("no role")
        self.messages.append(message)
    async def get_messages_for_request(self, token_budget=None, provider=None): return list(self.messages)
    async def get_messages(self): return list(self.messages)
    async def set_messages(self, messages): self.messages = list(messages)
    async def clear(self): self.messages = []
    def _should_compact(self, token_count, budget): return token_count > budget
    async def _compact_internal(self): ...
async def mount(coordinator, config):
    await coordinator.mount("context", Memory())
""",
}
WORDS = {"provider": "provider", "tool": "tool", "hook": "hooks", "orchestrator": "loop", "context": "context"}

INHERITED = """
from amplifier_core.validation.behavioral import {0}BehaviorTests
from amplifier_core.validation.structural import {0}StructuralTests

class TestBehavior({0}BehaviorTests): ...
class TestStructure({0}StructuralTests): ...
"""

CONFIGURATION = """
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

Run = Callable[..., tuple[dict[str, int], str]]


def write_repository(root: Path, module_type: str, source: str | None = None, tests: str | None = None) -> Path:
    """Write a module repository as the ecosystem has them, with its own configuration and tests."""
    folder = root / f"amplifier-module-{WORDS[module_type]}-x"
    package = folder / folder.name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(GOOD[module_type] if source is None else source)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_x.py").write_text(INHERITED.format(module_type.capitalize()) if tests is None else tests)
    (folder / "pytest.ini").write_text(CONFIGURATION)
    return folder


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest in a folder, with our plugin and without looking for others; return its outcomes and its output."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "amplifier_core.pytest_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")

    def run(folder: Path, *arguments: str) -> tuple[dict[str, int], str]:
        monkeypatch.chdir(folder)
        if not (folder / "pytest.ini").exists():
            (folder / "pytest.ini").write_text(CONFIGURATION)
        result = pytester.runpytest_inprocess("-rs", *plugins, *arguments)
        counted = result.parseoutcomes().items()
        return {name: count for name, count in counted if name not in ("deselected", "warnings")}, str(result.stdout)

    return run


@pytest.mark.parametrize("module_type", TYPES)
def test_a_good_module_passes_the_shipped_classes_of_its_type(
    tmp_path: Path, run_pytest: Run, module_type: str
) -> None:
    outcomes, output = run_pytest(write_repository(tmp_path, module_type))

    expected = {"provider": 6, "tool": 8, "hook": 8, "orchestrator": 7, "context": 11}
    assert outcomes == {"passed": expected[module_type]}, output


@pytest.mark.parametrize("module_type", TYPES)
def test_without_a_test_file_the_shipped_tests_of_the_right_type_run(
    tmp_path: Path, run_pytest: Run, module_type: str
) -> None:
    folder = write_repository(tmp_path, module_type)

    outcomes, output = run_pytest(folder, "--pyargs", "amplifier_core.validation.behavioral", "-c", "pytest.ini")

    total = {"provider": 5, "tool": 7, "hook": 7, "orchestrator": 6, "context": 10}
    assert outcomes == {"passed": total[module_type], "skipped": sum(total.values()) - total[module_type]}, output
    assert f"Test for different module type (detected: {module_type})" in output


def test_elsewhere_the_shipped_tests_are_skipped(tmp_path: Path, run_pytest: Run) -> None:
    outcomes, output = run_pytest(tmp_path, "--pyargs", "amplifier_core.validation.behavioral", "-c", "pytest.ini")

    assert outcomes == {"skipped": 35}, output
    assert "Not running in Amplifier module context" in output


def test_elsewhere_the_structural_tests_are_skipped_too(tmp_path: Path, run_pytest: Run) -> None:
    (tmp_path / "test_x.py").write_text(INHERITED.format("Tool"))

    outcomes, output = run_pytest(tmp_path)

    assert outcomes == {"skipped": 8}, output
    assert "No module path detected" in output


ADDED_MESSAGES = "async def get_messages(self): return list(self.messages)"


@pytest.mark.parametrize(
    ("module_type", "right", "wrong", "test"),
    [
        (
            "provider",
            "get_info(self): return Prov",
            "get_info(self): return str or Prov",
            "test_get_info_returns_valid",
        ),
        ("provider", 'display_name="Acme"', 'display_name=""', "test_get_info_returns_valid_provider_info"),
        ("provider", "list_models(self): return []", "list_models(self): ...", "test_list_models_returns_list"),
        ("provider", 'name = "acme"', 'name = ""', "test_provider_has_name_attribute"),
        ("provider", "response): return []", "response): return None", "test_parse_tool_calls_returns_list"),
        ("tool", 'name = "echo"', 'name = ""', "test_tool_has_name"),
        ("tool", '"Says it again."', '""', "test_tool_has_description"),
        ("tool", "def execute", "def run", "test_tool_has_execute_method"),
        ("tool", 'ToolResult(output="again")', '"again"', "test_execute_returns_tool_result"),
        ("tool", 'ToolResult(output="again")', '"again"', "test_tool_result_has_required_fields"),
        ("tool", 'output="again"', 'output=input["_tool_call_id"]', "test_invalid_input_returns_error_result"),
        ("tool", 'ToolResult(output="again")', "input and None or 3", "test_invalid_input_returns_error_result"),
        ("tool", "async def execute", "def execute", "test_structural_validation"),
        ("hook", "return coordinator.hooks", "return lambda: 1 / 0 or coordinator", "test_cleanup_does_not_raise"),
        ("hook", "return coordinator.hooks", "coordinator.mount_points = {}[0]", "test_mount_succeeds"),
        ("orchestrator", "def execute", "def run", "test_orchestrator_has_execute_method"),
        ("orchestrator", "response.content[0].text", '""', "test_execute_returns_string"),
        ("orchestrator", "response.content[0].text", "{'Hello': 'x'}[prompt]", "test_execute_with_empty_prompt"),
        ("orchestrator", "response.content[0].text", "3", "test_execute_with_empty_prompt"),
        ("orchestrator", "response = await", "return 'x' or await", "test_orchestrator_uses_provider"),
        ("orchestrator", "await context.add_message(", "print(", "test_orchestrator_updates_context"),
        ("context", "def clear", "def forget", "test_context_has_required_methods"),
        ("context", "self.messages.append(message)", "...", "test_message_round_trip"),
        ("context", ADDED_MESSAGES, ADDED_MESSAGES + "[:2]", "test_multiple_messages"),
        ("context", "clear(self): self.messages = []", "clear(self): ...", "test_clear_removes_messages"),
        ("context", "provider=None): return list", "provider=None): return str", "test_get_messages_for_request"),
        ("context", "return token_count > budget", "return 1", "test_internal_should_compact_returns_bool"),
        ("context", "_compact_internal(self): ...", "_compact_internal(self): 1 / 0", "test_internal_compact"),
        ("context", 'ValueError("no role")', 'KeyError("role")', "test_add_invalid_message_does_not_crash"),
        ("context", ADDED_MESSAGES, ADDED_MESSAGES + " or None", "test_get_messages_never_returns_none"),
    ],
)
def test_each_shipped_test_can_fail(
    tmp_path: Path, run_pytest: Run, module_type: str, right: str, wrong: str, test: str
) -> None:
    assert right in GOOD[module_type]
    source = GOOD[module_type].replace(right, wrong).replace("Echo())", "Echo(), name='x')")
    folder = write_repository(tmp_path, module_type, source.replace("Acme())", "Acme(), name='x')"))

    outcomes, output = run_pytest(folder, "-k", test, "--tb=line")

    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) > 0, output


def test_a_structural_failure_lists_every_error(tmp_path: Path, run_pytest: Run) -> None:
    source = "def mount(coordinator): ...\ndef on_session_ready(): ...\n"

    outcomes, output = run_pytest(write_repository(tmp_path, "tool", source), "-k", "structural")

    assert outcomes == {"failed": 1}
    assert "Structural validation failed:" in output
    assert "  mount_signature: mount() should have at least 2 parameters (coordinator, config), found 1" in output
    assert "  on_session_ready_async: on_session_ready() must be async: found sync function." in output


def test_a_hook_whose_cleanup_cannot_be_repeated_fails(tmp_path: Path, run_pytest: Run) -> None:
    source = """
async def mount(coordinator, config):
    handlers = [coordinator.hooks.register("test:event", print)]
    def cleanup(): handlers.pop()()
    return cleanup
"""
    outcomes, output = run_pytest(write_repository(tmp_path, "hook", source), "-k", "test_cleanup_does_not_raise")

    assert outcomes == {"passed": 1, "errors": 1}, output


@pytest.mark.parametrize(
    ("module_type", "fixture", "complaint"),
    [
        ("provider", "provider_module", "No provider was mounted"),
        ("tool", "tool_module", "No tool was mounted"),
        ("orchestrator", "orchestrator_module", "No orchestrator was mounted"),
        ("context", "context_module", "No context manager was mounted"),
    ],
)
def test_a_module_that_mounts_nothing_fails_its_fixture(
    tmp_path: Path, run_pytest: Run, module_type: str, fixture: str, complaint: str
) -> None:
    tests = f"import pytest\n@pytest.mark.asyncio\nasync def test_it({fixture}): ...\n"
    folder = write_repository(tmp_path, module_type, "async def mount(coordinator, config): ...\n", tests)

    outcomes, output = run_pytest(folder)

    assert outcomes == {"errors": 1}
    assert complaint in output


def test_a_module_without_mount_fails_its_fixture(tmp_path: Path, run_pytest: Run) -> None:
    tests = "import pytest\n@pytest.mark.asyncio\nasync def test_it(hook_cleanup): ...\n"

    outcomes, output = run_pytest(write_repository(tmp_path, "hook", "", tests))

    assert outcomes == {"errors": 1}
    assert "AttributeError: Module has no mount() function" in output


def test_a_missing_module_fails_its_fixture(tmp_path: Path, run_pytest: Run) -> None:
    tests = "import pytest\n@pytest.mark.asyncio\nasync def test_it(hook_cleanup): ...\n"
    folder = write_repository(tmp_path, "hook", "", tests)

    for path in ("missing", "tests"):
        outcomes, output = run_pytest(folder, "--module-path", path)
        assert outcomes == {"errors": 1}
        assert "FileNotFoundError" in output


@pytest.mark.parametrize(
    ("module_type", "cleanup", "called"),
    [
        ("tool", "return lambda: note('sync')", "sync"),
        ("tool", "async def cleanup(): note('async')\n    return cleanup", "async"),
        ("tool", "coordinator.register_cleanup(lambda: note('registered'))", ""),
        ("tool", "return {'not': 'callable'}", ""),
        ("hook", "return lambda: note('hook')", "hook"),
    ],
)
def test_the_fixtures_run_the_returned_cleanup_and_only_that(
    tmp_path: Path, run_pytest: Run, module_type: str, cleanup: str, called: str
) -> None:
    log = tmp_path / "log"
    source = f"""
from amplifier_core.testing import MockTool
def note(text): open({str(log)!r}, "a").close(); __import__("pathlib").Path({str(log)!r}).write_text(text)
async def mount(coordinator, config):
    assert config == {{}}
    await coordinator.mount("tools", MockTool())
    {cleanup}
"""
    fixture = "tool_module" if module_type == "tool" else "hook_cleanup"
    tests = f"import pytest\n@pytest.mark.asyncio\nasync def test_it({fixture}): ...\n"

    assert run_pytest(write_repository(tmp_path, module_type, source, tests))[0] == {"passed": 1}
    assert (log.read_text() if log.exists() else "") == called


def test_the_hook_fixture_yields_the_cleanup_or_none(tmp_path: Path, run_pytest: Run) -> None:
    tests = "import pytest\n@pytest.mark.asyncio\nasync def test_it(hook_cleanup): assert {}\n"

    callable_one = write_repository(tmp_path / "a", "hook", tests=tests.format("callable(hook_cleanup)"))
    nothing = "async def mount(coordinator, config): return {'a': 'dict'}\n"
    none = write_repository(tmp_path / "b", "hook", nothing, tests.format("hook_cleanup is None"))

    assert run_pytest(callable_one)[0] == run_pytest(none)[0] == {"passed": 1}


def test_each_test_gets_a_freshly_executed_module_on_its_own_coordinator(tmp_path: Path, run_pytest: Run) -> None:
    source = """
from amplifier_core.testing import MockTool
mounts = []
async def mount(coordinator, config):
    mounts.append(1)
    await coordinator.mount("tools", MockTool(output=len(mounts)))
"""
    tests = """
import sys
import pytest

@pytest.mark.asyncio
@pytest.mark.parametrize("round", [1, 2])
async def test_it(tool_module, coordinator, round):
    assert tool_module.output == 1
    assert list(coordinator.get("tools").values()) == [tool_module]
    assert sys.modules["amplifier_module_tool_x"].mounts == [1]

def test_afterwards():
    assert "amplifier_module_tool_x" not in sys.modules
"""
    assert run_pytest(write_repository(tmp_path, "tool", source, tests))[0] == {"passed": 3}


def test_the_classes_a_test_imports_are_those_of_the_mounted_module(tmp_path: Path, run_pytest: Run) -> None:
    folder = write_repository(
        tmp_path,
        "tool",
        "from .echo import Echo\nasync def mount(coordinator, config):\n    await coordinator.mount('tools', Echo())\n",
        """
import pytest
from amplifier_module_tool_x.echo import Echo

@pytest.mark.asyncio
async def test_it(tool_module, monkeypatch):
    monkeypatch.setattr(Echo, "description", "patched")
    assert (isinstance(tool_module, Echo), tool_module.description) == (True, "patched")
""",
    )
    (folder / "amplifier_module_tool_x" / "echo.py").write_text(GOOD["tool"].partition("async def mount")[0])

    assert run_pytest(folder, "-c", "pytest.ini", "-o", "pythonpath=.")[0] == {"passed": 1}


PRINTING = """
def test_it(module_path, module_type, is_module_context):
    raise RuntimeError(f"<{module_path and module_path.name}|{module_type}|{is_module_context}>")
"""


def seen(output: str) -> str:
    match = re.search(r"RuntimeError: <(.*)>", output)
    assert match is not None, output
    return match[1]


@pytest.mark.parametrize(
    ("folder_name", "package", "expected"),
    [
        ("amplifier-module-provider-x", "amplifier_module_provider_x", "amplifier_module_provider_x|provider|True"),
        ("amplifier-module-tool-a-b", "amplifier_module_tool_a_b", "amplifier_module_tool_a_b|tool|True"),
        ("amplifier-module-hooks-x", "amplifier_module_hooks_x", "amplifier_module_hooks_x|hook|True"),
        ("amplifier-module-hook-x", "amplifier_module_hook_x", "amplifier_module_hook_x|hook|True"),
        ("amplifier-module-loop-x", "amplifier_module_loop_x", "amplifier_module_loop_x|orchestrator|True"),
        ("amplifier-module-context-x", "amplifier_module_context_x", "amplifier_module_context_x|context|True"),
        ("amplifier-module-tool-x", "amplifier_other", "amplifier_other|tool|True"),
        ("amplifier-module-agent-x", "amplifier_module_agent_x", "amplifier_module_agent_x|None|True"),
        ("tool-x", "amplifier_module_tool_x", "amplifier_module_tool_x|tool|True"),
        ("tool-x", "unrelated", "None|None|False"),
        ("amplifier-module-tool-x", "unrelated", "None|tool|False"),
    ],
)
def test_the_module_under_test_is_found_by_its_name(
    tmp_path: Path, run_pytest: Run, folder_name: str, package: str, expected: str
) -> None:
    folder = tmp_path / folder_name
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    (folder / "test_x.py").write_text(PRINTING)

    assert seen(run_pytest(folder)[1]) == expected


def test_each_repository_in_one_run_is_a_module_of_its_own(tmp_path: Path, run_pytest: Run) -> None:
    for module_type in ("tool", "provider"):
        write_repository(tmp_path, module_type, tests=PRINTING)
    tests = [f"amplifier-module-{word}-x/tests/test_x.py" for word in ("tool", "provider")]

    _, output = run_pytest(tmp_path, "--import-mode=importlib", *tests)

    assert re.findall(r"RuntimeError: <(.*)>", output)[:2] == [
        "amplifier_module_tool_x|tool|True",
        "amplifier_module_provider_x|provider|True",
    ]


def test_a_module_is_found_through_the_test_argument(tmp_path: Path, run_pytest: Run) -> None:
    folder = tmp_path / "tool-x"
    (folder / "amplifier_module_tool_x").mkdir(parents=True)
    (folder / "amplifier_module_tool_x" / "__init__.py").touch()
    (folder / "test_x.py").write_text(PRINTING)
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)

    assert seen(run_pytest(tmp_path, "tool-x/test_x.py::test_it")[1]) == "amplifier_module_tool_x|tool|True"


@pytest.mark.parametrize("path", ["amplifier-module-tool-x", "amplifier-module-tool-x/amplifier_module_tool_x"])
def test_the_option_names_the_module_from_anywhere(tmp_path: Path, run_pytest: Run, path: str) -> None:
    write_repository(tmp_path, "tool")
    (tmp_path / "test_x.py").write_text(PRINTING)

    assert seen(run_pytest(tmp_path, "test_x.py", "--module-path", path)[1]) == "amplifier_module_tool_x|tool|True"


def test_with_the_option_the_shipped_tests_run_from_anywhere(tmp_path: Path, run_pytest: Run) -> None:
    folder = write_repository(tmp_path, "tool")

    shipped = "amplifier_core.validation.behavioral"
    outcomes, output = run_pytest(tmp_path, "--pyargs", shipped, "--module-path", str(folder), "-c", "pytest.ini")

    assert outcomes == {"passed": 7, "skipped": 28}, output


def test_the_marker_is_known(tmp_path: Path, run_pytest: Run) -> None:
    (tmp_path / "test_x.py").write_text("import pytest\n@pytest.mark.module_validation\ndef test_it(): ...\n")

    assert run_pytest(tmp_path, "--strict-markers")[0] == {"passed": 1}


def test_an_orchestrator_test_gets_everything_a_turn_needs(tmp_path: Path, run_pytest: Run) -> None:
    (tmp_path / "test_x.py").write_text("""
from amplifier_core.testing import EventRecorder, MockContextManager, MockCoordinator, MockProvider

def test_it(mock_deps, coordinator):
    context, providers, tools, hooks = mock_deps
    assert isinstance(context, MockContextManager) and isinstance(hooks, EventRecorder)
    assert list(providers) == ["default"] and isinstance(providers["default"], MockProvider)
    assert [(key, tool.name, tool.output) for key, tool in tools.items()] == [("test_tool", "test_tool", "test result")]
    assert type(coordinator) is MockCoordinator
""")

    assert run_pytest(tmp_path)[0] == {"passed": 1}


def test_an_ordinary_pytest_process_has_the_plugin(tmp_path: Path) -> None:
    folder = write_repository(tmp_path, "tool")

    result = subprocess.run(
        [sys.executable, "-m", "pytest", *plain_pytest.options(tmp_path / "temporary")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "8 passed" in result.stdout, result.stdout + result.stderr


WITHOUT_PYTEST_ASYNCIO = """
import sys
import pytest

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pytest_asyncio":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Missing())
sys.exit(pytest.main(["-p", "no:asyncio", *sys.argv[1:]]))
"""


def test_pytest_goes_on_working_where_pytest_asyncio_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_it(coordinator, module_path): assert module_path is None\n")

    command = [sys.executable, "-c", WITHOUT_PYTEST_ASYNCIO, *plain_pytest.options(tmp_path / "temporary")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("module_type", TYPES)
def test_there_is_a_class_of_either_kind_and_a_file_for_each_type(module_type: str) -> None:
    package = Path(amplifier_core.__file__).parent / "validation"
    for kind, suffix in ((behavioral, "Behavior"), (structural, "Structural")):
        assert f"{module_type.capitalize()}{suffix}Tests" in kind.__all__
    assert (package / "behavioral" / f"test_{module_type}.py").is_file()
    assert (package / "structural" / f"test_{module_type}.py").is_file()


def test_the_structural_package_offers_the_callback_check() -> None:
    assert structural.check_on_session_ready is check_on_session_ready


IMPORT_ALL = """
import importlib, sys
for name in ("", ".loader", ".coordinator", ".session", ".cli", ".validation", ".validation.base"):
    importlib.import_module("amplifier_core" + name)
    print(name, sorted({"pytest", "pytest_asyncio", "unittest.mock"} & set(sys.modules)))
"""


def test_the_kernel_itself_never_loads_what_only_tests_need() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)

    assert [line for line in result.stdout.splitlines() if not line.endswith("[]")] == []
    assert len(result.stdout.splitlines()) == 7


def test_a_context_may_add_messages_of_its_own(tmp_path: Path, run_pytest: Run) -> None:
    source = GOOD["context"].replace("self.messages.append(message)", "self.messages += [{'content': 'note'}, message]")

    outcomes, output = run_pytest(write_repository(tmp_path, "context", source))

    assert outcomes == {"passed": 11}, output


def test_the_package_of_the_module_comes_before_a_helper_package(tmp_path: Path, run_pytest: Run) -> None:
    folder = write_repository(tmp_path, "tool")
    helper = folder / "amplifier_helpers"
    helper.mkdir()
    (helper / "__init__.py").write_text("")

    outcomes, output = run_pytest(folder)

    assert outcomes == {"passed": 8}, output
