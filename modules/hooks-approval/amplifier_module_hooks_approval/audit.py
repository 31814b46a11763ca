"""The audit trail: one line for every decision, no matter who took it."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.utils import json_safe
from amplifier_core.utils.timestamps import utc_timestamp
from amplifier_kit.files import LineFile

logger = logging.getLogger(__name__)

DEFAULT_AUDIT_FILE = "~/.amplifier/audit/approvals.jsonl"

Scrub = Callable[[Any], Any]


def audit_log(
    request: ApprovalRequest,
    response: ApprovalResponse,
    audit_file: Path | str | None = None,
    *,
    session_id: str | None = None,
    tool_call_id: str | None = None,
    source: str = "provider",
    scrub: Scrub | None = None,
) -> bool:
    """Append a decision to the audit file; False, and an error in the log, when that is not possible.

    `scrub` masks secrets in what the tool was asked to do.
    """
    try:
        line = {
            "timestamp": utc_timestamp(),
            "session_id": session_id,
            "tool_call_id": tool_call_id,
            "source": source,
            "request": _described(request, scrub),
            "response": {"approved": response.approved, "reason": response.reason, "remember": response.remember},
        }
        file = LineFile(Path(audit_file or DEFAULT_AUDIT_FILE).expanduser())
        try:
            file.append(json.dumps(json_safe(line), ensure_ascii=False) + "\n")
        finally:
            file.close()
    except Exception:
        logger.exception("hooks-approval: the decision on %s could not be written to the audit file", request.tool_name)
        return False
    return True


def _described(request: ApprovalRequest, scrub: Scrub | None) -> dict[str, Any]:
    action, details = request.action, json_safe(request.details)
    if scrub is not None:
        try:
            action, details = scrub(action), scrub(details)
        except Exception as exc:  # noqa: BLE001 - its text and traceback could show what must not be shown
            message = "hooks-approval: details are left out of the audit file, they could not be scrubbed (%s)"
            logger.warning(message, type(exc).__name__)
            action, details = f"Execute {request.tool_name}", {}
    return {
        "tool_name": request.tool_name,
        "action": action,
        "risk_level": request.risk_level,
        "details": details,
        "timeout": request.timeout,
    }
