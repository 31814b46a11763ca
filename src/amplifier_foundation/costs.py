"""What a session cost, its delegated sessions included."""

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from amplifier_core.boundary import Boundary

logger = logging.getLogger(__name__)

COST_CHANNEL = "session.cost"


def sum_cost_usd(contributions: Iterable[Any]) -> Decimal | None:
    """Add up the `cost_usd` of all contributions that name one; `None`, which is not zero, when none does."""
    costs = [cost for contribution in contributions if (cost := _cost_of(contribution)) is not None]
    return sum(costs, Decimal(0)) if costs else None


async def bridge_child_cost(child_coordinator: Any, parent_coordinator: Any, child_session_id: str) -> None:
    """Let the parent session account for what its child has cost so far. Never raises."""
    # A bill that cannot be written must not undo the work.
    with Boundary(logger, "The cost of session %s is not counted: %s", child_session_id):
        total = sum_cost_usd(await child_coordinator.collect_contributions(COST_CHANNEL))
        if total is not None:
            contribution = {"cost_usd": total}
            parent_coordinator.register_contributor(COST_CHANNEL, f"delegate:{child_session_id}", lambda: contribution)


def _cost_of(contribution: Any) -> Decimal | None:
    if not isinstance(contribution, Mapping) or (cost := contribution.get("cost_usd")) is None:
        return None
    try:
        return cost if isinstance(cost, Decimal) else Decimal(str(cost))
    except InvalidOperation:
        return None
