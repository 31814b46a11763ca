"""A call under guard, and the decision on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from amplifier_core.interfaces import ApprovalResponse
from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.asked_call import Scope
from amplifier_kit.concerns import Concern
from amplifier_kit.mounting import find_mounted
from amplifier_kit.tools.effects import effects_of

from .commands import BASH, command_of, is_critical
from .scopes import scope_of

Source = Literal["rule", "remembered", "provider", "timeout", "error", "config"]
RiskLevel = Literal["medium", "high", "critical"]

_MAPPINGS = (dict, Mapping)  # a dict is recognized without asking the abstract class


class GuardedCall(NamedTuple):
    """A tool call as `tool:pre` announces it; `identity` is the tool's own name, by whatever name it is mounted.

    `effects` is what this call of the tool can do. `concerns` is what it touches and is asked about by name;
    `of_concern` stands for one that comes up while a tool runs. A call that is not `is_risky` would need no approval
    without them.
    """

    tool_name: str
    tool_input: Mapping[str, Any]
    is_well_formed: bool
    identity: str
    effects: frozenset[str]
    tool: Any = None
    tool_call_id: str | None = None
    session_id: str | None = None
    concerns: tuple[Concern, ...] = ()
    is_concern: bool = False
    is_risky: bool = True

    @classmethod
    def of_concern(cls, concern: Concern, tool_name: str) -> Self:
        shown = {concern.kind: concern.subject, **({"detail": concern.detail} if concern.detail else {})}
        effects = effects_of(None, tool_name)
        return cls(tool_name, shown, True, tool_name, effects, concerns=(concern,), is_concern=True)

    @classmethod
    def read(cls, data: Any, coordinator: Any = None) -> Self:
        """Raises `ValueError` for an event that does not say which tool is called."""
        tool_name = data.get("tool_name") if isinstance(data, _MAPPINGS) else None
        if not tool_name or not isinstance(tool_name, str):
            raise ValueError("the event does not name a tool")
        given = data.get("tool_input")
        tool_input: Mapping[str, Any] = given if isinstance(given, _MAPPINGS) else {}
        tool = data.get("tool_obj") or _find_tool(tool_name, coordinator)
        identity = _text(getattr(tool, "name", None)) or tool_name
        return cls(
            tool_name,
            tool_input,
            tool_input is given and (identity != BASH or isinstance(tool_input.get("command"), str)),
            identity,
            effects_of(tool, identity, tool_input),
            tool,
            _text(data.get("tool_call_id")),
            _text(data.get("session_id")),
        )

    @property
    def command(self) -> str:
        return command_of(self.tool_input)

    @property
    def action(self) -> str:
        if self.is_concern:
            concern = self.concerns[0]
            return f"{self.tool_name}: {'reach' if concern.kind == 'host' else 'change'} {concern.subject}"
        return f"Execute: {self.command}" if self.identity == BASH else f"Execute {self.tool_name}"

    @property
    def risk_level(self) -> RiskLevel:
        if is_critical(self.command):
            return "critical"
        return "high" if self.identity == BASH else "medium"

    @property
    def defaults(self) -> dict[str, Any]:
        """What the tool takes for fields that are not given; a text is shown and counted even so."""
        schema = getattr(self.tool, "input_schema", None)
        properties = schema.get("properties") if isinstance(schema, _MAPPINGS) else None
        if not isinstance(properties, _MAPPINGS):
            return {}
        described = {name: field for name, field in properties.items() if isinstance(field, _MAPPINGS)}
        defaults = {name: field["default"] for name, field in described.items() if "default" in field}
        return {name: value for name, value in defaults.items() if isinstance(value, bool | int | float | None)}

    @property
    def scope(self) -> Scope | None:
        """The later calls for which an "always" stands."""
        return scope_of(self.identity, self.tool_input, self.effects, self.defaults)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a call, why, and who took it."""

    approved: bool
    reason: str
    source: Source
    remember: bool = False

    @classmethod
    def of(cls, response: Any) -> Self:
        """Return a provider's answer as a verdict; raises `TypeError` unless it is an `ApprovalResponse`."""
        if not isinstance(response, ApprovalResponse) or not isinstance(response.approved, bool):
            raise TypeError(f"the answer is a {type(response).__name__} without a clear yes or no")
        reason = sanitize_text(response.reason) if isinstance(response.reason, str) else ""
        default = "User approved" if response.approved else "User denied approval"
        return cls(response.approved, reason or default, "provider", response.remember is True)

    @classmethod
    def failed(cls, error: BaseException) -> Self:
        """Return the denial that an error amounts to."""
        return cls(False, f"Approval system error: {_described(error)}", "error")

    @property
    def response(self) -> ApprovalResponse:
        return ApprovalResponse(approved=self.approved, reason=self.reason, remember=self.remember)


def _described(error: BaseException) -> str:
    try:
        text = sanitize_text(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot even be printed is still a denial
        text = ""
    return text or type(error).__name__


def _find_tool(tool_name: str, coordinator: Any) -> Any:
    tools = find_mounted(coordinator, "tools")
    return tools.get(tool_name) if isinstance(tools, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
