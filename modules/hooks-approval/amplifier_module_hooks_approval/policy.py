"""Which calls need an approval at all."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from amplifier_core.boundary import Boundary, settle
from amplifier_kit.tools.effects import EXECUTE, WRITE

from .commands import BASH
from .config import ApprovalSettings
from .verdict import GuardedCall

logger = logging.getLogger(__name__)

NEEDS_CHECK = "approval.needs_check"
REQUIRED_TOOLS = "require_approval_tools"

_RISKY = frozenset({WRITE, EXECUTE})


def needs_approval(call: GuardedCall, settings: ApprovalSettings, coordinator: Any) -> bool:
    """Say whether a call has to be approved; `says_yes` is the application's own opinion.

    A tool is known by its own name and by what it does, not only by the name it is mounted under.
    """
    names = {call.tool_name, call.identity}
    if _is_listed(names, coordinator):
        return True
    if settings.policy_driven_only:
        return False
    if BASH in names or _demands_it_itself(call.tool):
        return True
    if not names.isdisjoint(settings.requires_approval):
        return any(settings.requires_approval.get(name, False) for name in names)
    if names & settings.high_risk_tools:
        return True
    return call.tool is not None and not _RISKY.isdisjoint(call.effects)


def _is_listed(names: Collection[str], coordinator: Any) -> bool:
    """Say whether the application's own list has the tool."""
    state = getattr(coordinator, "session_state", None)
    required = state.get(REQUIRED_TOOLS) if isinstance(state, (dict, Mapping)) else None
    if required is None:
        return False
    if isinstance(required, str) or not isinstance(required, Collection):
        logger.error("hooks-approval: %s is %r, not a set or list; everything is asked", REQUIRED_TOOLS, required)
        return True
    return any(name in required for name in names)


async def says_yes(needs_check: Callable[[str], Any], call: GuardedCall) -> bool:
    """Say whether the application's own check, the capability `approval.needs_check`, wants a call to be approved."""
    names = {call.tool_name, call.identity}
    message, named = "hooks-approval: %s failed; %s has to be approved: %s", ", ".join(sorted(names))
    with Boundary(logger, message, NEEDS_CHECK, named, level=logging.ERROR):
        for name in sorted(names):
            if await settle(needs_check(name)):
                return True
        return False
    return True


def _demands_it_itself(tool: Any) -> bool:
    if getattr(tool, "require_approval", False):
        return True
    described = getattr(tool, "get_metadata", None)
    if callable(described):
        is_marked = True
        message = "hooks-approval: a tool cannot describe itself; it has to be approved: %s"
        with Boundary(logger, message, level=logging.ERROR):
            is_marked = _is_marked(described())
        if is_marked:
            return True
    return _is_marked(getattr(tool, "metadata", None))


def _is_marked(metadata: Any) -> bool:
    return metadata is not None and isinstance(metadata, Mapping) and bool(metadata.get("requires_approval"))
