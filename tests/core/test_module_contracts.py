"""The contracts of the five module types: every check with its exact message."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amplifier_core.models import ProviderInfo
from amplifier_core.testing import MockContextManager, MockProvider, MockTool, ScriptedOrchestrator
from amplifier_core.validation import ValidationCheck
from amplifier_core.validation.base import CONTRACTS, check_on_session_ready, fulfils, instance_checks, static_checks


def passing(name: str, message: str, severity: Any = "info") -> ValidationCheck:
    return ValidationCheck(name, True, message, severity)


def failing(name: str, message: str, severity: Any = "error") -> ValidationCheck:
    return ValidationCheck(name, False, message, severity)


def changed(base: type, **members: Any) -> Any:
    """Return an instance of a class like `base` with some members replaced."""
    return type(base.__name__, (base,), members)()


class Tool:
    name = "echo"
    description = "Says it again."

    async def execute(self, input: dict[str, Any]) -> None: ...


class Provider:
    name = "acme"

    def get_info(self) -> Any:
        return ProviderInfo(id="acme", display_name="Acme")

    async def list_models(self) -> list[Any]:
        return []

    async def complete(self, request: Any, **kwargs: Any) -> None: ...

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return []


class Orchestrator:
    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any) -> str:
        return ""


class Context:
    async def add_message(self, message: Any) -> None: ...

    async def get_messages_for_request(self, token_budget: Any = None, provider: Any = None) -> None: ...

    async def get_messages(self) -> None: ...

    async def set_messages(self, messages: Any) -> None: ...

    async def clear(self) -> None: ...


class HookHandler:
    async def __call__(self, event: str, data: Any) -> None: ...


INSTANCES: dict[str, Callable[[], Any]] = {
    "provider": Provider,
    "tool": Tool,
    "orchestrator": Orchestrator,
    "context": Context,
}
MOUNTED_AS = {"provider": "acme", "tool": "echo", "orchestrator": "orchestrator", "context": "context"}


def checks_of(module_type: str, candidate: Any) -> list[ValidationCheck]:
    return instance_checks(module_type, {MOUNTED_AS[module_type]: candidate}, None)


def check_named(name: str, checks: list[ValidationCheck]) -> ValidationCheck:
    (check,) = (check for check in checks if check.name == name)
    return check


async def good_mount(coordinator: Any, config: Any) -> None: ...


def sync_mount(coordinator: Any, config: Any) -> None: ...


async def narrow_mount(coordinator: Any) -> None: ...


MOUNT_FOUND = passing("mount_exists", "mount() function found")
GOOD_SIGNATURE = passing("mount_signature", "mount() is async with correct signature")


@pytest.mark.parametrize(
    ("members", "checks"),
    [
        ({}, [failing("mount_exists", "No mount() function found in module")]),
        ({"mount": None}, [failing("mount_exists", "mount is not callable")]),
        ({"mount": "mount", "on_session_ready": 3}, [failing("mount_exists", "mount is not callable")]),
        ({"mount": good_mount}, [MOUNT_FOUND, GOOD_SIGNATURE]),
        ({"mount": AsyncMock()}, [MOUNT_FOUND, GOOD_SIGNATURE]),
        (
            {"mount": sync_mount},
            [MOUNT_FOUND, failing("mount_signature", "mount() should be async (async def mount(...))")],
        ),
        (
            {"mount": narrow_mount},
            [
                MOUNT_FOUND,
                failing("mount_signature", "mount() should have at least 2 parameters (coordinator, config), found 1"),
            ],
        ),
        (
            {"mount": dict},
            [
                MOUNT_FOUND,
                failing("mount_signature", "mount() should have at least 2 parameters (coordinator, config), found 0"),
            ],
        ),
    ],
)
def test_the_functions_of_a_module_are_checked_without_calling_them(
    members: dict[str, Any], checks: list[ValidationCheck]
) -> None:
    assert static_checks(SimpleNamespace(**members)) == checks


def sync_ready(coordinator: Any) -> None: ...


async def good_ready(coordinator: Any) -> None: ...


async def good_ready_with_more(coordinator: Any, /, verbose: bool = False) -> None: ...


async def no_argument() -> None: ...


async def defaulted_argument(coordinator: Any = None) -> None: ...


async def star_arguments(*coordinators: Any) -> None: ...


async def keyword_argument(*, coordinator: Any) -> None: ...


SYNC = "on_session_ready() must be async: found sync function. Use 'async def on_session_ready(coordinator) -> None:'"
NO_COORDINATOR = (
    "on_session_ready() must accept a coordinator argument: async def on_session_ready(coordinator) -> None"
)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (sync_ready, SYNC),
        ("not a function", SYNC),
        (no_argument, NO_COORDINATOR),
        (defaulted_argument, NO_COORDINATOR),
        (star_arguments, NO_COORDINATOR),
        (keyword_argument, NO_COORDINATOR),
    ],
)
def test_a_wrong_on_session_ready_is_one_more_check(callback: Any, message: str) -> None:
    module = SimpleNamespace(mount=good_mount, on_session_ready=callback)
    expected = failing("on_session_ready_async", message)

    assert check_on_session_ready(module) == expected
    assert static_checks(module) == [MOUNT_FOUND, GOOD_SIGNATURE, expected]


@pytest.mark.parametrize(
    "members",
    [{}, {"on_session_ready": None}, {"on_session_ready": good_ready}, {"on_session_ready": good_ready_with_more}],
)
def test_a_right_or_absent_on_session_ready_is_not_mentioned(members: dict[str, Any]) -> None:
    module = SimpleNamespace(mount=good_mount, **members)

    assert check_on_session_ready(module) is None
    assert static_checks(module) == [MOUNT_FOUND, GOOD_SIGNATURE]


@pytest.mark.parametrize(
    ("module_type", "message"),
    [
        ("provider", "Provider 'acme' implements Provider interface"),
        ("tool", "Tool 'echo' implements Tool interface"),
        ("orchestrator", "Orchestrator implements Orchestrator interface"),
        ("context", "Context implements ContextManager interface"),
    ],
)
def test_what_conforms_is_said_to_and_looked_at_more_closely(module_type: str, message: str) -> None:
    checks = checks_of(module_type, INSTANCES[module_type]())

    assert checks[0] == passing("protocol_compliance", message)
    assert len(checks) > 1
    assert all(check.passed and check.severity == "info" for check in checks)


@pytest.mark.parametrize(
    ("module_type", "message"),
    [
        (
            "provider",
            "Provider 'acme' does not implement Provider interface "
            "(missing name, get_info, list_models, complete, or parse_tool_calls)",
        ),
        ("tool", "Tool 'echo' does not implement Tool interface (missing name, description, or execute)"),
        ("orchestrator", "Mounted orchestrator does not implement Orchestrator interface (missing execute)"),
        (
            "context",
            "Mounted context does not implement ContextManager interface "
            "(missing add_message, get_messages_for_request, get_messages, set_messages, or clear)",
        ),
    ],
)
def test_what_does_not_conform_is_not_looked_at_further(module_type: str, message: str) -> None:
    assert checks_of(module_type, object()) == [failing("protocol_compliance", message)]


@pytest.mark.parametrize(
    ("module_type", "member"),
    [
        ("provider", "name"),
        ("provider", "get_info"),
        ("provider", "list_models"),
        ("provider", "complete"),
        ("provider", "parse_tool_calls"),
        ("tool", "name"),
        ("tool", "description"),
        ("tool", "execute"),
        ("orchestrator", "execute"),
        ("context", "add_message"),
        ("context", "get_messages_for_request"),
        ("context", "get_messages"),
        ("context", "set_messages"),
        ("context", "clear"),
    ],
)
def test_every_member_of_an_interface_is_needed(module_type: str, member: str) -> None:
    complete = INSTANCES[module_type]()
    members = [name for name in dir(complete) if not name.startswith("__") and name != member]
    incomplete = SimpleNamespace(**{name: getattr(complete, name) for name in members})

    assert fulfils(module_type, complete)
    assert not fulfils(module_type, incomplete)
    assert not checks_of(module_type, incomplete)[0].passed


@pytest.mark.parametrize(
    ("module_type", "method"),
    [
        ("provider", "get_info"),
        ("provider", "list_models"),
        ("provider", "complete"),
        ("provider", "parse_tool_calls"),
        ("tool", "execute"),
        ("orchestrator", "execute"),
        ("context", "clear"),
    ],
)
def test_a_method_has_to_be_callable(module_type: str, method: str) -> None:
    assert not fulfils(module_type, changed(INSTANCES[module_type], **{method: "text"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("module_type", ["hook", "resolver", "", "agent"])
def test_only_four_types_can_be_recognised_by_their_members(module_type: str) -> None:
    assert not fulfils(module_type, HookHandler())


def test_the_stand_ins_of_the_test_kit_conform() -> None:
    stand_ins = {
        "provider": MockProvider(),
        "tool": MockTool("echo"),
        "orchestrator": ScriptedOrchestrator([]),
        "context": MockContextManager(),
    }

    assert [name for name, one in stand_ins.items() if not all(check.passed for check in checks_of(name, one))] == []


def test_everything_mounted_is_checked_in_order() -> None:
    checks = instance_checks("tool", {"a": Tool(), "b": object(), "c": Tool()}, None)

    assert [check.message for check in checks if check.name == "protocol_compliance"] == [
        "Tool 'a' implements Tool interface",
        "Tool 'b' does not implement Tool interface (missing name, description, or execute)",
        "Tool 'c' implements Tool interface",
    ]


@pytest.mark.parametrize(
    ("module_type", "interface"),
    [("provider", "Provider"), ("tool", "Tool"), ("orchestrator", "Orchestrator"), ("context", "ContextManager")],
)
def test_an_instance_that_is_only_returned_counts(module_type: str, interface: str) -> None:
    checks = instance_checks(module_type, {}, INSTANCES[module_type]())

    assert checks[0] == passing("protocol_compliance", f"mount() returned a valid {interface} instance")
    assert len(checks) > 1


@pytest.mark.parametrize("module_type", ["provider", "tool", "orchestrator", "context"])
def test_a_cleanup_without_anything_mounted_passes_with_a_warning(module_type: str) -> None:
    assert instance_checks(module_type, {}, lambda: None) == [
        passing(
            "protocol_compliance",
            f"mount() returned a cleanup callable (no {module_type} mounted yet - may be conditional)",
            "warning",
        )
    ]


def test_a_provider_may_decline_to_mount() -> None:
    assert instance_checks("provider", {}, None) == [
        passing("protocol_compliance", "provider declined to mount (missing credentials?)", "warning")
    ]


@pytest.mark.parametrize(
    ("module_type", "returned", "message"),
    [
        ("provider", {"name": "acme"}, "No provider was mounted and mount() did not return a Provider instance"),
        ("tool", None, "No tool was mounted and mount() did not return a Tool instance"),
        ("orchestrator", None, "No orchestrator was mounted and mount() did not return an Orchestrator instance"),
        ("context", None, "No context was mounted and mount() did not return a ContextManager instance"),
    ],
)
def test_nothing_mounted_and_nothing_returned_fails(module_type: str, returned: Any, message: str) -> None:
    assert instance_checks(module_type, {}, returned) == [failing("protocol_compliance", message)]


def a_function() -> None: ...


@pytest.mark.parametrize(
    ("registered", "returned", "message"),
    [
        (True, None, "Hooks registered via coordinator.hooks.register()"),
        (True, HookHandler(), "Hooks registered via coordinator.hooks.register()"),
        (False, a_function, "mount() registered hooks via coordinator.hooks"),
        (False, Tool().execute, "mount() registered hooks via coordinator.hooks"),
        (False, functools.partial(a_function), "mount() registered hooks via coordinator.hooks"),
        (False, [].clear, "mount() registered hooks via coordinator.hooks"),
        (False, None, "Hooks registered via coordinator.hooks"),
        (False, {"a": "dict"}, "Hooks registered via coordinator.hooks"),
    ],
)
def test_a_hook_passes_whatever_it_registers_now_or_later(registered: bool, returned: Any, message: str) -> None:
    checks = instance_checks("hook", {}, returned, handlers_registered=registered)

    assert checks == [passing("protocol_compliance", message)]


def sync_call(self: Any, event: str, data: Any) -> None: ...


async def narrow_call(self: Any, event: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "check"),
    [
        (HookHandler(), passing("hook_call", "HookHandler.__call__() has correct async signature (event, data)")),
        (changed(HookHandler, __call__=sync_call), failing("hook_call", "HookHandler.__call__() should be async")),
        (
            changed(HookHandler, __call__=narrow_call),
            failing("hook_call", "HookHandler.__call__() should accept (event, data), found 1 params"),
        ),
    ],
)
def test_a_returned_handler_object_is_looked_at_more_closely(handler: Any, check: ValidationCheck) -> None:
    assert instance_checks("hook", {}, handler) == [
        passing("protocol_compliance", "mount() returned a valid HookHandler instance"),
        check,
    ]


def raising(error: Exception) -> property:
    def read(self: Any) -> Any:
        raise error

    return property(read)


def sync_method(self: Any, *arguments: Any) -> None: ...


async def bare_method(self: Any) -> None: ...


async def coroutine_info(self: Any) -> None: ...


def failing_info(self: Any) -> None:
    raise OSError("no network")


async def four_parameters(self: Any, prompt: str, context: Any, providers: Any, tools: Any) -> None: ...


async def with_coordinator(
    self: Any, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, **kwargs: Any
) -> None: ...


async def needs_an_argument(self: Any, limit: int) -> None: ...


PROVIDER_CHECKS = [
    ({}, passing("provider_name", "Provider has name: 'acme'")),
    ({"name": ""}, failing("provider_name", "Provider.name should be a non-empty string")),
    ({"name": 3}, failing("provider_name", "Provider.name should be a non-empty string")),
    (
        {"name": raising(ValueError("no key"))},
        failing("provider_name", "Error accessing Provider.name: no key"),
    ),
    ({}, passing("provider_get_info", "Provider.get_info() returns ProviderInfo")),
    (
        {"get_info": lambda self: {"id": "acme"}},
        failing("provider_get_info", "Provider.get_info() should return ProviderInfo, got dict"),
    ),
    (
        {"get_info": coroutine_info},
        failing("provider_get_info", "Provider.get_info() should return ProviderInfo, got coroutine"),
    ),
    (
        {"get_info": failing_info},
        failing("provider_get_info", "Error calling Provider.get_info(): no network", "warning"),
    ),
    ({}, passing("provider_list_models", "Provider.list_models() is async")),
    ({"list_models": sync_method}, failing("provider_list_models", "Provider.list_models() should be async")),
    ({"list_models": AsyncMock()}, passing("provider_list_models", "Provider.list_models() is async")),
    ({}, passing("provider_complete", "Provider.complete() has correct async signature")),
    ({"complete": AsyncMock()}, passing("provider_complete", "Provider.complete() has correct async signature")),
    ({"complete": sync_method}, failing("provider_complete", "Provider.complete() should be async")),
    ({"complete": bare_method}, failing("provider_complete", "Provider.complete() should accept request parameter")),
    ({}, passing("provider_parse_tool_calls", "Provider.parse_tool_calls() exists and is callable")),
]

TOOL_CHECKS = [
    ({}, passing("tool_name", "Tool has name: 'echo'")),
    ({"name": None}, failing("tool_name", "Tool.name should be a non-empty string")),
    ({"name": raising(RuntimeError("later"))}, failing("tool_name", "Error accessing Tool.name: later")),
    ({}, passing("tool_description", "Tool has description")),
    (
        {"description": ""},
        failing("tool_description", "Tool.description should be a non-empty string", "warning"),
    ),
    (
        {"description": 3},
        failing("tool_description", "Tool.description should be a non-empty string", "warning"),
    ),
    (
        {"description": raising(RuntimeError("later"))},
        failing("tool_description", "Error accessing Tool.description: later", "warning"),
    ),
    ({}, passing("tool_input_schema", "Tool.input_schema returns dict with 0 properties")),
    (
        {"input_schema": {"type": "object", "properties": {}}},
        passing("tool_input_schema", "Tool.input_schema returns dict with 2 properties"),
    ),
    (
        {"get_schema": lambda self: {"type": "object"}},
        passing("tool_input_schema", "Tool.input_schema returns dict with 1 properties"),
    ),
    (
        {"input_schema": {}, "get_schema": lambda self: {"type": "object"}},
        passing("tool_input_schema", "Tool.input_schema returns dict with 0 properties"),
    ),
    (
        {"input_schema": "{}"},
        failing("tool_input_schema", "Tool.input_schema should return a dict, got str", "warning"),
    ),
    (
        {"get_schema": coroutine_info},
        failing("tool_input_schema", "Tool.input_schema should return a dict, got coroutine", "warning"),
    ),
    (
        {"input_schema": raising(OSError("gone"))},
        failing("tool_input_schema", "Error reading Tool.input_schema: gone", "warning"),
    ),
    ({}, passing("tool_execute", "Tool.execute() has correct async signature")),
    ({"execute": sync_method}, failing("tool_execute", "Tool.execute() should be async")),
    ({"execute": bare_method}, failing("tool_execute", "Tool.execute() should accept input parameter")),
]

ORCHESTRATOR_CHECKS = [
    ({}, passing("orchestrator_execute", "Orchestrator.execute() has correct async signature with 5 parameters")),
    (
        {"execute": with_coordinator},
        passing("orchestrator_execute", "Orchestrator.execute() has correct async signature with 6 parameters"),
    ),
    ({"execute": sync_method}, failing("orchestrator_execute", "Orchestrator.execute() should be async")),
    (
        {"execute": four_parameters},
        failing(
            "orchestrator_execute",
            "Orchestrator.execute() should accept (prompt, context, providers, tools, hooks), found 4 params",
        ),
    ),
]

CONTEXT_CHECKS = [
    *(
        ({}, passing(f"context_{method}", f"ContextManager.{method}() has correct async signature"))
        for method in CONTRACTS["context"].methods
    ),
    *(
        ({method: sync_method}, failing(f"context_{method}", f"ContextManager.{method}() should be async"))
        for method in CONTRACTS["context"].methods
    ),
    (
        {"add_message": bare_method},
        failing("context_add_message", "ContextManager.add_message() should accept (message), found 0 params"),
    ),
    (
        {"set_messages": bare_method},
        failing("context_set_messages", "ContextManager.set_messages() should accept (messages), found 0 params"),
    ),
    *(
        (
            {method: needs_an_argument},
            failing(f"context_{method}", f"ContextManager.{method}() should accept (), found 1 params"),
        )
        for method in ("get_messages_for_request", "get_messages", "clear")
    ),
]


@pytest.mark.parametrize(
    ("module_type", "members", "check"),
    [
        *(("provider", members, check) for members, check in PROVIDER_CHECKS),
        *(("tool", members, check) for members, check in TOOL_CHECKS),
        *(("orchestrator", members, check) for members, check in ORCHESTRATOR_CHECKS),
        *(("context", members, check) for members, check in CONTEXT_CHECKS),
    ],
)
def test_each_member_of_a_conforming_object_has_a_check_of_its_own(
    module_type: str, members: dict[str, Any], check: ValidationCheck
) -> None:
    candidate = changed(INSTANCES[module_type], **members)  # type: ignore[arg-type]

    assert check_named(check.name, checks_of(module_type, candidate)) == check
