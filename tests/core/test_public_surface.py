"""The names that modules and applications import, and the paths they import them from."""

import importlib
import importlib.metadata
import inspect
import logging
import pkgutil
import subprocess
import sys
from unittest.mock import AsyncMock, MagicMock, create_autospec

import pytest

import amplifier_core
from amplifier_core import AmplifierSession, ModuleCoordinator

TEST_KIT = [
    "MockCoordinator",
    "MockTool",
    "MockContextManager",
    "EventRecorder",
    "ScriptedOrchestrator",
    "create_test_coordinator",
    "wait_for",
    "TestCoordinator",
    "MockProvider",
]

TOP_LEVEL = [
    "AmplifierSession",
    "ModuleCoordinator",
    "ModuleLoader",
    "ModuleValidationError",
    "HookRegistry",
    "CancellationToken",
    "CancellationState",
    "capabilities",
    "ToolResult",
    "HookResult",
    "ContextInjection",
    "ConfigField",
    "ModelInfo",
    "ModuleInfo",
    "Pricing",
    "ProviderInfo",
    "SessionStatus",
    "ApprovalRequest",
    "ApprovalResponse",
    "ApprovalProvider",
    "Orchestrator",
    "Provider",
    "Tool",
    "ContextManager",
    "HookHandler",
    "ChatRequest",
    "ChatResponse",
    "Message",
    "TextBlock",
    "ThinkingBlock",
    "RedactedThinkingBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "ImageBlock",
    "ReasoningBlock",
    "ToolSpec",
    "ToolCall",
    "Usage",
    "Degradation",
    "ResponseFormat",
    "ResponseFormatText",
    "ResponseFormatJson",
    "ResponseFormatJsonSchema",
    "LLMError",
    "RateLimitError",
    "AuthenticationError",
    "ContextLengthError",
    "ContentFilterError",
    "InvalidRequestError",
    "ProviderUnavailableError",
    "LLMTimeoutError",
    "AccessDeniedError",
    "NetworkError",
    "QuotaExceededError",
    "NotFoundError",
    "StreamError",
    "AbortError",
    "InvalidToolCallError",
    "ConfigurationError",
    "ContentBlock",
    "ContentBlockType",
    "TextContent",
    "ThinkingContent",
    "ToolCallContent",
    "ToolResultContent",
    "RetryConfig",
    "retry_with_backoff",
    "classify_error_message",
    *TEST_KIT,
]
SUBMODULES = {
    "session": ["AmplifierSession"],
    "coordinator": ["ModuleCoordinator"],
    "hooks": ["HookRegistry", "HookResult", "ContextInjection"],
    "cancellation": ["CancellationToken", "CancellationState"],
    "loader": [
        "ModuleLoader",
        "ModuleValidationError",
        "TYPE_TO_MOUNT_POINT",
        "MODULE_FAILURE_REASONS",
        "module_failure_reason",
    ],
    "module_sources": [
        "ModuleNotFoundError",
        "ModuleLoadError",
        "ModuleSource",
        "ModuleSourceResolver",
        "FileSystemModuleSource",
    ],
    "models": ["ToolResult", "HookResult", "ContextInjection", "ModelInfo", "ProviderInfo", "SessionStatus"],
    "message_models": ["ChatRequest", "ChatResponse", "Message", "TextBlock", "ToolCall", "Usage", "ContentBlockUnion"],
    "content_models": ["ContentBlock", "ContentBlockType", "TextContent"],
    "interfaces": ["Orchestrator", "Provider", "Tool", "ContextManager", "HookHandler", "ApprovalProvider"],
    "events": ["ALL_EVENTS", "SESSION_START"],
    "capabilities": ["ALL_WELL_KNOWN_CAPABILITIES", "TOOLS"],
    "llm_errors": ["LLMError", "RateLimitError"],
    "utils": ["truncate_values", "redact_secrets", "SENSITIVE_KEYS", "RetryConfig", "json_safe"],
    "utils.retry": ["RetryConfig", "retry_with_backoff", "classify_error_message", "compute_delay"],
    "utils.truncate": ["truncate_values", "redact_secrets", "SENSITIVE_KEYS"],
    "correlation": ["REQUEST_ID_FIELD", "new_request_id", "current_request_id", "resolve_request_id"],
    "approval": ["ApprovalSystem", "ApprovalTimeoutError"],
    "display": ["DisplaySystem"],
    "testing": TEST_KIT,
    "validation": ["MountPlanValidator", "ProviderValidator", "ValidationResult"],
    "validation.base": ["import_module_from_path", "check_on_session_ready"],
    "validation.provider": ["ProviderValidator"],
    "validation.tool": ["ToolValidator"],
    "validation.hook": ["HookValidator"],
    "validation.orchestrator": ["OrchestratorValidator"],
    "validation.context": ["ContextValidator"],
    "validation.mount_plan": ["MountPlanValidator"],
    "validation.structural": ["ToolStructuralTests", "check_on_session_ready"],
    "validation.behavioral": ["ToolBehaviorTests"],
    "cli": ["main"],
    "pytest_plugin": [],
}

NOT_TOP_LEVEL = [
    "ALL_EVENTS",
    "SESSION_START",
    "ContentBlockUnion",
    "ApprovalSystem",
    "DisplaySystem",
    "ApprovalTimeoutError",
    "FileSystemModuleSource",
    "ProviderValidator",
    "MountPlanValidator",
    "redact_secrets",
    "truncate_values",
    "json_safe",
    "compute_delay",
]

NOT_PROVIDED = [
    "_engine",
    "_grpc_gen",
    "loader_grpc",
    "ProviderError",
]


def interpret(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_a_public_name_is_at_top_level(name: str) -> None:
    assert getattr(amplifier_core, name) is not None
    assert name in dir(amplifier_core)


def test_the_list_of_public_names_is_complete_and_has_no_doubles() -> None:
    assert sorted(set(amplifier_core.__all__) - {"__version__"}) == sorted(TOP_LEVEL)
    assert len(set(amplifier_core.__all__)) == len(amplifier_core.__all__)


def test_a_star_import_brings_every_public_name() -> None:
    namespace: dict[str, object] = {}

    exec("from amplifier_core import *", namespace)

    assert set(TOP_LEVEL) <= set(namespace)


@pytest.mark.parametrize("path", SUBMODULES)
def test_a_submodule_offers_its_names(path: str) -> None:
    module = importlib.import_module(f"amplifier_core.{path}")

    assert [name for name in SUBMODULES[path] if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", SUBMODULES)
def test_a_name_is_the_same_object_whichever_way_it_is_imported(path: str) -> None:
    module = importlib.import_module(f"amplifier_core.{path}")

    for name in SUBMODULES[path]:
        if name in TOP_LEVEL:
            assert getattr(module, name) is getattr(amplifier_core, name)


def test_submodules_can_be_imported_as_names_of_the_package() -> None:
    names = "approval, capabilities, display, events, hooks, llm_errors, loader, models, module_sources, testing, utils"
    code = f"from amplifier_core import {names}; print(all(map(str, [{names}])))"

    assert interpret(code) == "True"


def test_submodules_are_attributes_of_the_package() -> None:
    names = [path for path in SUBMODULES if "." not in path and path != "pytest_plugin"]  # pytest imports that
    code = f"import amplifier_core; print([name for name in {names} if not hasattr(amplifier_core, name)])"

    assert interpret(code) == "[]"
    assert set(names) <= set(dir(amplifier_core))


@pytest.mark.parametrize("name", NOT_TOP_LEVEL)
def test_a_name_of_a_submodule_is_not_at_top_level(name: str) -> None:
    assert not hasattr(amplifier_core, name)


@pytest.mark.parametrize("name", NOT_PROVIDED)
def test_what_only_a_native_engine_has_is_not_there(name: str) -> None:
    assert not hasattr(amplifier_core, name)
    assert name not in amplifier_core.__all__
    with pytest.raises(ImportError):
        importlib.import_module(f"amplifier_core.{name}")


def test_an_application_that_asks_for_the_native_engine_is_told_no() -> None:
    assert getattr(amplifier_core, "rust_available", False) is False
    assert getattr(amplifier_core, "RUST_AVAILABLE", False) is False


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'amplifier_core' has no attribute 'Nonsense'"):
        amplifier_core.Nonsense  # noqa: B018 - reading it is the test
    with pytest.raises(ImportError, match="Nonsense"):
        exec("from amplifier_core import Nonsense")


def test_the_version_is_the_one_of_the_distribution() -> None:
    assert amplifier_core.__version__ == importlib.metadata.version("amplifier")
    assert importlib.metadata.version("amplifier-core").startswith("2.0.2+amplifier.")


def test_the_test_kit_is_imported_when_it_is_first_used() -> None:
    code = """if True:
        import sys, amplifier_core
        print("amplifier_core.testing" in sys.modules, "unittest.mock" in sys.modules, end=" ")
        print("MockTool" in dir(amplifier_core), end=" ")
        from amplifier_core import MockTool
        print("amplifier_core.testing" in sys.modules, MockTool().name)
    """

    assert interpret(code) == "False False True True mock_tool"


def test_every_logger_of_the_kernel_can_be_silenced_at_once() -> None:
    loggers = {}
    for info in pkgutil.walk_packages(amplifier_core.__path__, "amplifier_core."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            loggers |= {
                f"{info.name}.{name}": value.name
                for name, value in vars(module).items()
                if isinstance(value, logging.Logger)
            }

    assert {"amplifier_core.session", "amplifier_core.loader", "amplifier_core.hooks"} <= set(loggers.values())
    assert [place for place, name in loggers.items() if not name.startswith("amplifier_core.")] == []


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (AmplifierSession, ["initialize", "execute", "cleanup"]),
        (ModuleCoordinator, ["mount", "unmount", "cleanup", "collect_contributions", "process_hook_result"]),
        (ModuleCoordinator, ["request_cancel"]),
        (amplifier_core.ModuleLoader, ["load", "discover", "initialize"]),
        (amplifier_core.HookRegistry, ["emit_and_collect"]),
        (amplifier_core.CancellationToken, ["trigger_callbacks"]),
    ],
)
def test_coroutines_of_the_public_classes_are_coroutine_functions(kind: type, names: list[str]) -> None:
    assert [name for name in names if not inspect.iscoroutinefunction(getattr(kind, name))] == []


@pytest.mark.parametrize(
    ("kind", "signature"),
    [
        (
            AmplifierSession,
            "config loader=None session_id=None parent_id=None approval_system=None display_system=None "
            "is_resumed=False",
        ),
        (ModuleCoordinator, "session=None approval_system=None display_system=None"),
        (amplifier_core.ModuleLoader, "coordinator=None search_paths=None"),
        (
            amplifier_core.ModuleLoader.load,
            "self module_id config=None source_hint=None coordinator=None *profile_source=None",
        ),
    ],
)
def test_parameters_have_their_documented_names_order_and_defaults(kind: object, signature: str) -> None:
    parameters = inspect.signature(kind).parameters.values()  # type: ignore[arg-type]

    shown = [
        ("*" if one.kind is one.KEYWORD_ONLY else "")
        + (one.name if one.default is one.empty else f"{one.name}={one.default!r}")
        for one in parameters
    ]
    assert " ".join(shown) == signature


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (AmplifierSession, "session_id parent_id config coordinator loader status is_resumed initialized"),
        (
            ModuleCoordinator,
            "session session_id parent_id config mount_points hooks cancellation loader approval_system display_system "
            "channels session_state injection_budget_per_turn injection_size_limit",
        ),
        (amplifier_core.ModuleLoader, "coordinator"),
        (amplifier_core.CancellationToken, "state is_cancelled is_graceful is_immediate running_tools"),
    ],
)
def test_a_mock_made_after_a_public_class_has_its_attributes(kind: type, names: str) -> None:
    mocks = [MagicMock(spec=kind), MagicMock(spec_set=kind), create_autospec(kind, instance=True)]

    assert [name for name in names.split() for mock in mocks if not hasattr(mock, name)] == []


async def test_a_mock_made_after_the_coordinator_can_be_set_up_as_modules_do_it() -> None:
    coordinator = create_autospec(ModuleCoordinator, instance=True)
    coordinator.cancellation.is_cancelled = False
    coordinator.hooks.emit = AsyncMock()
    coordinator.config = {"tool": {"limit": 3}}
    coordinator.get_capability.return_value = "/work"

    await coordinator.mount("tools", object(), name="x")
    await coordinator.hooks.emit("tool:pre", {})

    coordinator.mount.assert_awaited_once()
    assert coordinator.get_capability("session.working_dir") == "/work"
