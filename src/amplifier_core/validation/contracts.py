"""What a module of each type has to offer, as one table, and the checks that hold a module to it.

Nothing here imports or mounts a module: the loader applies the checks to what a session really mounts, the validators
to a private copy on a throw-away coordinator.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from amplifier_core.boundary import Boundary
from amplifier_core.exceptions import describe
from amplifier_core.models import ProviderInfo

# Checks and what can be said about a list of them.


Severity = Literal["error", "warning", "info"]


@dataclass
class ValidationCheck:
    """One thing that was looked at, and the verdict."""

    name: str
    passed: bool
    message: str
    severity: Severity


class CheckSummary:
    """What can be said about a list of checks."""

    checks: list[ValidationCheck]

    @property
    def passed(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[ValidationCheck]:
        return [check for check in self.checks if not check.passed and check.severity == "error"]

    @property
    def warnings(self) -> list[ValidationCheck]:
        return [check for check in self.checks if not check.passed and check.severity == "warning"]

    def add(self, check: ValidationCheck) -> None:
        self.checks.append(check)

    def summary(self) -> str:
        verdict = "PASSED" if self.passed else "FAILED"
        passed = sum(check.passed for check in self.checks)
        counts = f"({len(self.errors)} errors, {len(self.warnings)} warnings)"
        return f"{verdict}: {passed}/{len(self.checks)} checks passed {counts}"


@dataclass
class ValidationResult(CheckSummary):
    """The verdict on one module."""

    module_type: str
    module_path: str
    checks: list[ValidationCheck] = field(default_factory=list)


def passed(name: str, message: str, severity: Severity = "info") -> ValidationCheck:
    return ValidationCheck(name, True, message, severity)


def failed(name: str, message: str, severity: Severity = "error") -> ValidationCheck:
    return ValidationCheck(name, False, message, severity)


logger = logging.getLogger(__name__)

COMPLIANCE = "protocol_compliance"

# Methods of one class share their function, which is looked at once for a type and a name: every session asks again.
_method_verdicts: WeakKeyDictionary[FunctionType, dict[tuple[str, str], ValidationCheck]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Contract:
    """One module type: where it hangs, what it must have, and what is looked at more closely.

    `interface` is the name of its protocol. Types whose modules have a name can be mounted many times, the others
    fill a slot; a hook mounts nothing, it registers handlers.
    """

    module_type: str
    mount_point: str
    interface: str
    attributes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    checks: tuple[Callable[["Contract", Any], ValidationCheck], ...] = ()

    def is_fulfilled_by(self, candidate: object) -> bool:
        """True if everything is there; what is wrong with an attribute is for a check of its own."""
        with Boundary(logger, "a %s cannot be read as a whole: %s", type(candidate).__name__, level=logging.DEBUG):
            return all([hasattr(candidate, name) for name in self.attributes]) and all(
                [callable(getattr(candidate, name, None)) for name in self.methods]
            )
        return all(_has(candidate, name) for name in self.attributes) and all(
            callable(_get(candidate, name)) for name in self.methods
        )

    def closer_look(self, candidate: object) -> list[ValidationCheck]:
        return [check(self, candidate) for check in self.checks]

    def verdict(self, name: str, candidate: object) -> list[ValidationCheck]:
        """Return the checks of something mounted under `name`."""
        has_name = "name" in self.attributes
        if self.is_fulfilled_by(candidate):
            subject = f"{self.interface} '{name}'" if has_name else self.module_type.capitalize()
            return [
                passed(COMPLIANCE, f"{subject} implements {self.interface} interface"),
                *self.closer_look(candidate),
            ]
        subject = f"{self.interface} '{name}'" if has_name else f"Mounted {self.module_type}"
        members = ", ".join((*self.attributes, *self.methods))
        head, comma, last = members.rpartition(", ")
        missing = f"{head}, or {last}" if comma else last
        return [failed(COMPLIANCE, f"{subject} does not implement {self.interface} interface (missing {missing})")]


@dataclass(frozen=True)
class AsyncMethod:
    """A method that has to be async and take certain parameters, and the words for either outcome."""

    method: str
    parameters: tuple[str, ...] | None = None  # None: not looked at
    praise: str = "has correct async signature"
    complaint: str = "should accept ({parameters}), found {n} params"

    def __call__(self, contract: Contract, candidate: object) -> ValidationCheck:
        function = getattr(candidate, self.method)
        underlying = getattr(function, "__func__", None)
        if not isinstance(underlying, FunctionType):
            return self._verdict(contract, function)
        known = _method_verdicts.get(underlying)
        if known is None:
            known = _method_verdicts[underlying] = {}
        key = (contract.module_type, self.method)
        if key not in known:
            known[key] = self._verdict(contract, function)
        return known[key]

    def _verdict(self, contract: Contract, function: Callable[..., Any]) -> ValidationCheck:
        name = f"{contract.module_type}_{self.method.strip('_')}"
        label = f"{contract.interface}.{self.method}()"
        if not _is_async(function):
            return failed(name, f"{label} should be async")
        found = _parameters(function)
        if self.parameters:
            fits = len(found) >= len(self.parameters)
        else:
            fits = self.parameters is None or not _required_positional(found)
        words = {"parameters": ", ".join(self.parameters or ()), "n": len(found)}
        if not fits:
            return failed(name, f"{label} {self.complaint.format(**words)}")
        return passed(name, f"{label} {self.praise.format(**words)}")


def _asked(contract: Contract, what: str) -> Boundary:
    """Return the boundary around a look at a module's object; what is wrong there is the verdict."""
    return Boundary(logger, "%s.%s cannot be read: %s", contract.interface, what, level=logging.DEBUG)


def _name(contract: Contract, candidate: Any) -> ValidationCheck:
    check = f"{contract.module_type}_name"
    with _asked(contract, "name") as boundary:
        name = candidate.name
    if boundary.error is not None:
        return failed(check, f"Error accessing {contract.interface}.name: {describe(boundary.error)}")
    if not isinstance(name, str) or not name:
        return failed(check, f"{contract.interface}.name should be a non-empty string")
    return passed(check, f"{contract.interface} has name: '{name}'")


def _provider_get_info(contract: Contract, provider: Any) -> ValidationCheck:
    check = "provider_get_info"
    with _asked(contract, "get_info()") as boundary:
        info = provider.get_info()
    if boundary.error is not None:
        return failed(check, f"Error calling Provider.get_info(): {describe(boundary.error)}", "warning")
    if not isinstance(info, ProviderInfo):
        return failed(check, f"Provider.get_info() should return ProviderInfo, got {_type_of(info)}")
    return passed(check, "Provider.get_info() returns ProviderInfo")


def _provider_parse_tool_calls(contract: Contract, provider: Any) -> ValidationCheck:
    return passed("provider_parse_tool_calls", "Provider.parse_tool_calls() exists and is callable")


def _tool_description(contract: Contract, tool: Any) -> ValidationCheck:
    check = "tool_description"
    with _asked(contract, "description") as boundary:
        description = tool.description
    if boundary.error is not None:
        return failed(check, f"Error accessing Tool.description: {describe(boundary.error)}", "warning")
    if not isinstance(description, str) or not description:
        return failed(check, "Tool.description should be a non-empty string", "warning")
    return passed(check, "Tool has description")


def _tool_input_schema(contract: Contract, tool: Any) -> ValidationCheck:
    check = "tool_input_schema"
    with _asked(contract, "input_schema") as boundary:
        schema = getattr(tool, "input_schema", None)
        if schema is None:
            schema = getattr(tool, "get_schema", dict)()
    if boundary.error is not None:
        return failed(check, f"Error reading Tool.input_schema: {describe(boundary.error)}", "warning")
    if not isinstance(schema, dict):
        return failed(check, f"Tool.input_schema should return a dict, got {_type_of(schema)}", "warning")
    return passed(check, f"Tool.input_schema returns dict with {len(schema)} properties")


_ONE_PARAMETER = "should accept {parameters} parameter"

CONTRACTS: Mapping[str, Contract] = {
    contract.module_type: contract
    for contract in (
        Contract(
            "provider",
            "providers",
            "Provider",
            attributes=("name",),
            methods=("get_info", "list_models", "complete", "parse_tool_calls"),
            checks=(
                _name,
                _provider_get_info,
                AsyncMethod("list_models", praise="is async"),
                AsyncMethod("complete", ("request",), complaint=_ONE_PARAMETER),
                _provider_parse_tool_calls,
            ),
        ),
        Contract(
            "tool",
            "tools",
            "Tool",
            attributes=("name", "description"),
            methods=("execute",),
            checks=(
                _name,
                _tool_description,
                _tool_input_schema,
                AsyncMethod("execute", ("input",), complaint=_ONE_PARAMETER),
            ),
        ),
        Contract(
            "hook",
            "hooks",
            "HookHandler",
            methods=("__call__",),
            checks=(AsyncMethod("__call__", ("event", "data"), "has correct async signature ({parameters})"),),
        ),
        Contract(
            "orchestrator",
            "orchestrator",
            "Orchestrator",
            methods=("execute",),
            checks=(
                AsyncMethod(
                    "execute",
                    ("prompt", "context", "providers", "tools", "hooks"),
                    "has correct async signature with {n} parameters",
                ),
            ),
        ),
        Contract(
            "context",
            "context",
            "ContextManager",
            methods=("add_message", "get_messages_for_request", "get_messages", "set_messages", "clear"),
            checks=(
                AsyncMethod("add_message", ("message",)),
                AsyncMethod("get_messages_for_request", ()),
                AsyncMethod("get_messages", ()),
                AsyncMethod("set_messages", ("messages",)),
                AsyncMethod("clear", ()),
            ),
        ),
    )
}


def fulfils(module_type: str, candidate: object) -> bool:
    """True if `candidate` could be mounted as an orchestrator, provider, tool or context.

    Duck typing only; False for every other type.
    """
    contract = CONTRACTS.get(module_type)
    return contract is not None and module_type != "hook" and contract.is_fulfilled_by(candidate)


def static_checks(module: object) -> list[ValidationCheck]:
    """Return the checks of a module's functions; without a `mount` there is only that one to make."""
    if not _has(module, "mount"):
        return [failed("mount_exists", "No mount() function found in module")]
    mount = _get(module, "mount")
    if not callable(mount):
        return [failed("mount_exists", "mount is not callable")]
    checks = [passed("mount_exists", "mount() function found"), _mount_signature(mount)]
    wrong_callback = check_on_session_ready(module)
    return checks if wrong_callback is None else [*checks, wrong_callback]


def check_on_session_ready(module: object) -> ValidationCheck | None:
    """Return what is wrong with a module's `on_session_ready`, None when it is right or absent."""
    callback = _get(module, "on_session_ready")
    if callback is None:
        return None
    name = "on_session_ready_async"
    if not _is_async(callback):
        return failed(
            name,
            "on_session_ready() must be async: found sync function. "
            "Use 'async def on_session_ready(coordinator) -> None:'",
        )
    if not _required_positional(_parameters(callback)):
        return failed(
            name,
            "on_session_ready() must accept a coordinator argument: async def on_session_ready(coordinator) -> None",
        )
    return None


def instance_checks(
    module_type: str,
    mounted: Mapping[str, Any],
    returned: Any,
    *,
    handlers_registered: bool = False,
    may_decline: bool = True,
) -> list[ValidationCheck]:
    """Return the checks of what a module's `mount` installed and returned.

    `module_type` is one of `CONTRACTS`; `mounted` is what is new at its mount point, by name, a slot by its own name.
    For a hook it is not looked at: `handlers_registered` says whether the registry got handlers. A module that
    installed nothing of the type passes only if it `may_decline`.
    """
    contract = CONTRACTS[module_type]
    if module_type == "hook":
        return _hook_checks(contract, returned, handlers_registered, may_decline)
    if mounted:
        return [check for name, candidate in mounted.items() for check in contract.verdict(name, candidate)]
    if contract.is_fulfilled_by(returned):
        valid = passed(COMPLIANCE, f"mount() returned a valid {contract.interface} instance")
        return [valid, *contract.closer_look(returned)]
    if callable(returned) and may_decline:
        message = f"mount() returned a cleanup callable (no {module_type} mounted yet - may be conditional)"
        return [passed(COMPLIANCE, message, "warning")]
    if module_type == "provider" and may_decline and (returned is None or isinstance(returned, str)):
        return [passed(COMPLIANCE, "provider declined to mount (missing credentials?)", "warning")]
    article = "an" if contract.interface[0] in "AEIOU" else "a"
    message = f"No {module_type} was mounted and mount() did not return {article} {contract.interface} instance"
    return [failed(COMPLIANCE, message)]


def _hook_checks(
    contract: Contract, returned: Any, handlers_registered: bool, may_decline: bool
) -> list[ValidationCheck]:
    """A hook may also register its handlers later, in `on_session_ready`, so none at all is fine."""
    if handlers_registered:
        return [passed(COMPLIANCE, "Hooks registered via coordinator.hooks.register()")]
    if not may_decline:
        return [failed(COMPLIANCE, "No handler was registered via coordinator.hooks.register()")]
    if not callable(returned):
        return [passed(COMPLIANCE, "Hooks registered via coordinator.hooks")]
    if inspect.isroutine(returned) or isinstance(returned, functools.partial):
        return [passed(COMPLIANCE, "mount() registered hooks via coordinator.hooks")]
    return [passed(COMPLIANCE, "mount() returned a valid HookHandler instance"), *contract.closer_look(returned)]


def handler_checks(handlers: Mapping[str, Callable[..., Any]]) -> list[ValidationCheck]:
    """Return what is wrong with the handlers that a hook registered, by name: each is `async (event, data)`."""
    wrong = []
    for name, handler in handlers.items():
        found = _parameters(handler)
        takes_any = any(one.kind is one.VAR_POSITIONAL for one in found)
        if not (_is_async(handler) or _is_async(getattr(handler, "__call__", None))):  # noqa: B004 - an object's method
            wrong.append(failed("hook_handler", f"Handler '{name}' should be async"))
        elif not takes_any and len(found) < 2:
            wrong.append(
                failed("hook_handler", f"Handler '{name}' should accept (event, data), found {len(found)} params")
            )
    return wrong


def _mount_signature(mount: Callable[..., Any]) -> ValidationCheck:
    name, count = "mount_signature", len(_parameters(mount))
    if count < 2:
        return failed(name, f"mount() should have at least 2 parameters (coordinator, config), found {count}")
    if not _is_async(mount):
        return failed(name, "mount() should be async (async def mount(...))")
    return passed(name, "mount() is async with correct signature")


def _has(candidate: object, name: str) -> bool:
    """True if an attribute is there, even if reading it fails."""
    with Boundary(logger, "%r of a %s cannot be read: %s", name, type(candidate).__name__, level=logging.DEBUG):
        return hasattr(candidate, name)
    return True  # what is wrong with it is for a check of its own


def _get(candidate: object, name: str) -> Any:
    """Return an attribute, None when there is none that can be read."""
    with Boundary(logger, "%r of a %s cannot be read: %s", name, type(candidate).__name__, level=logging.DEBUG):
        return getattr(candidate, name, None)
    return None


def _is_async(function: object) -> bool:
    return asyncio.iscoroutinefunction(function)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters a caller can give, none for the few callables that have no signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _required_positional(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in parameters if one.kind in positional and one.default is one.empty]


def _type_of(value: object) -> str:
    if inspect.iscoroutine(value):
        value.close()  # it will never be awaited
    return type(value).__name__
