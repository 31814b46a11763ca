"""A call under guard, and the decision on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from amplifier_core.interfaces import ApprovalResponse
from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.mounting import find_mounted

from .commands import BASH, command_of, is_critical
from .memory import remember_key

Source = Literal["rule", "remembered", "provider", "timeout", "error", "config"]
RiskLevel = Literal["medium", "high", "critical"]

_MAPPINGS = (dict, Mapping)  # a dict is recognized without asking the abstract class


class GuardedCall(NamedTuple):
    """A tool call as `tool:pre` announces it; `identity` is the tool's own name, by whatever name it is mounted."""

    tool_name: str
    tool_input: Mapping[str, Any]
    is_well_formed: bool
    identity: str
    tool: Any = None
    tool_call_id: str | None = None
    session_id: str | None = None

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
            is_well_formed=tool_input is given and (identity != BASH or isinstance(tool_input.get("command"), str)),
            identity=identity,
            tool=tool,
            tool_call_id=_text(data.get("tool_call_id")),
            session_id=_text(data.get("session_id")),
        )

    @property
    def command(self) -> str:
        return command_of(self.tool_input)

    @property
    def action(self) -> str:
        return f"Execute: {self.command}" if self.identity == BASH else f"Execute {self.tool_name}"

    @property
    def risk_level(self) -> RiskLevel:
        if is_critical(self.command):
            return "critical"
        return "high" if self.identity == BASH else "medium"

    @property
    def remember_key(self) -> str | None:
        return remember_key(self.identity, self.tool_input)


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
