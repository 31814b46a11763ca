"""Why a call failed, told so that a model or an operator can act on it."""

from collections.abc import Mapping
from typing import Any

from amplifier_core.utils import json_safe
from amplifier_kit.tools.input import ToolFailure

from .redaction import Redactor

CONNECTION_CLOSED = -32000
REQUEST_TIMEOUT = -32001
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_REVISION = -32022
URL_ELICITATION_REQUIRED = -32042
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

REFUSED_STATUSES = (401, 403)

_LONGEST_DATA = 2000
_CODES: Mapping[int, str] = {
    INVALID_PARAMS: "invalid_input",
    METHOD_NOT_FOUND: "not_found",
    URL_ELICITATION_REQUIRED: "unsupported",
    MISSING_CLIENT_CAPABILITY: "unsupported",
}
_SESSION_GONE = 404


def first_leaf(error: BaseException) -> BaseException:
    """Return the first single exception of a group, however deep."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def described(error: BaseException) -> str:
    """Return what an exception says; one that says nothing is named."""
    return " ".join(str(error).split())[:_LONGEST_DATA] or type(error).__name__


def refused(tool_name: str, status: int) -> ToolFailure:
    return ToolFailure(f"{tool_name}: the server refused access (HTTP {status})", "auth_failed", status_code=status)


def lost(tool_name: str, reason: str, *, retryable: bool) -> ToolFailure:
    text = f"{tool_name}: the connection to the server was lost ({reason}); the call may have had its effect"
    return ToolFailure(text, "connection_lost", retryable=retryable)


def timed_out(tool_name: str, timeout_s: float, *, retryable: bool) -> ToolFailure:
    return ToolFailure(f"{tool_name} timed out after {timeout_s:g} seconds", "timeout", retryable=retryable)


def broken_protocol(tool_name: str, error: BaseException) -> ToolFailure:
    text = f"{tool_name}: the server's answer is not what the protocol allows: {described(error)}"
    return ToolFailure(text, "protocol_error")


def means_lost(code: int, status: int | None) -> bool:
    """True if a protocol error stands for a connection, or a session over HTTP, that is no more."""
    return code == CONNECTION_CLOSED or (status == _SESSION_GONE and code != METHOD_NOT_FOUND)


def from_code(tool_name: str, code: int, message: str, data: Any) -> ToolFailure:
    """Return the failure for an error the server answered with."""
    details: dict[str, Any] = {"mcp_code": code}
    kind = _CODES.get(code, "mcp_error")
    if kind == "mcp_error" and data is not None:
        details["mcp_data"] = _bounded(json_safe(data))
    return ToolFailure(f"{tool_name}: {message[:_LONGEST_DATA]} (MCP error {code})", kind, **details)


def redacted(failure: ToolFailure, redactor: Redactor, **facts: Any) -> ToolFailure:
    """Return a failure without secrets and with more facts."""
    return ToolFailure(redactor.text(failure.message), failure.code, **redactor.data({**failure.details, **facts}))


def _bounded(data: Any) -> Any:
    text = str(data)
    return data if len(text) <= _LONGEST_DATA else text[:_LONGEST_DATA]
