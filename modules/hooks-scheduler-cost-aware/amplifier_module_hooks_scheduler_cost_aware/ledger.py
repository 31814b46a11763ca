"""What a session has spent, to the last decimal."""

from decimal import Decimal, InvalidOperation
from typing import Any

ZERO = Decimal(0)


def exact(value: Any) -> Decimal | None:
    """Return a cost as a finite decimal that is not negative, None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and cost >= 0 else None


class Ledger:
    """Adds up costs; a tool call is charged once, however often it is announced."""

    def __init__(self) -> None:
        self.total = ZERO
        self._charged: set[str] = set()

    def has_charged(self, tool_call_id: Any) -> bool:
        return isinstance(tool_call_id, str) and tool_call_id in self._charged

    def charge(self, tool_call_id: Any, cost: Decimal) -> None:
        """Add the cost of a call that has not been charged before; a call without an id is charged every time."""
        if self.has_charged(tool_call_id):
            return
        if tool_call_id and isinstance(tool_call_id, str):
            self._charged.add(tool_call_id)
        self.total += cost

    def add(self, cost: Decimal) -> None:
        self.total += cost

    def reset(self) -> None:
        self.total = ZERO
        self._charged.clear()
