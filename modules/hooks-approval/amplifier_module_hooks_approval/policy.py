"""Which calls need an approval at all."""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from amplifier_core.boundary import settle
from amplifier_kit.mounting import find_capability, find_mounted

from .commands import BASH
from .config import ApprovalSettings

logger = logging.getLogger(__name__)

NEEDS_CHECK = "approval.needs_check"
REQUIRED_TOOLS = "require_approval_tools"


async def needs_approval(tool_name: str, tool: Any, settings: ApprovalSettings, coordinator: Any) -> bool:
    """Say whether a call of the tool has to be approved; `tool` is the tool itself if the event brought it along."""
    if await _is_demanded_by_policy(tool_name, coordinator):
        return True
    if settings.policy_driven_only:
        return False
    if tool_name == BASH or _demands_it_itself(tool or _find_tool(tool_name, coordinator)):
        return True
    return settings.requires_approval.get(tool_name, tool_name in settings.high_risk_tools)


async def _is_demanded_by_policy(tool_name: str, coordinator: Any) -> bool:
    state = getattr(coordinator, "session_state", None)
    required = state.get(REQUIRED_TOOLS) if isinstance(state, Mapping) else None
    if required is not None:
        if isinstance(required, str) or not isinstance(required, Collection):
            logger.error("hooks-approval: %s is %r, not a set or list; everything is asked", REQUIRED_TOOLS, required)
            return True
        if tool_name in required:
            return True
    needs_check = find_capability(coordinator, NEEDS_CHECK)
    if needs_check is None:
        return False
    try:
        return bool(await settle(needs_check(tool_name)))
    except Exception:
        logger.exception("hooks-approval: %s failed; %s has to be approved", NEEDS_CHECK, tool_name)
        return True


def _find_tool(tool_name: str, coordinator: Any) -> Any:
    tools = find_mounted(coordinator, "tools")
    return tools.get(tool_name) if isinstance(tools, Mapping) else None


def _demands_it_itself(tool: Any) -> bool:
    metadata = getattr(tool, "metadata", None)
    return bool(
        getattr(tool, "require_approval", False)
        or (isinstance(metadata, Mapping) and metadata.get("requires_approval"))
    )
