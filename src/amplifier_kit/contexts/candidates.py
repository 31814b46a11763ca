"""What of a conversation may be cut at all."""

from .groups import GroupedConversation
from .shortening import is_long_user_message
from .units import Cut

_NEVER_REMOVED = frozenset({"user", "system"})


class Candidates:
    """The parts of a conversation by what may happen to them, each list oldest first.

    `removable` are replies and whole tool groups, `users` the user messages, `stubbable` those among them for which a
    stub would do, `stubs` those that are one. `kept` always stay: what a developer said before the first human
    message, that one and the last, groups with one of the `newest_results` or a person's words, calls whose results are
    on their way, and what carries a vendor's state.
    """

    def __init__(self, conversation: GroupedConversation, protected_tool_results: int) -> None:
        units = conversation.units
        groups = [unit for unit in units if unit.calls]
        self.users = [unit for unit in units if unit.head.role == "user"]
        self.removable = [unit for unit in units if unit.head.role not in _NEVER_REMOVED]
        humans = [(unit, unit.head) for unit in self.users if unit.head.is_human]
        beside_results = [(unit, entry) for unit in groups for entry in unit.entries if entry.is_human]
        if beside_results:
            humans = sorted(humans + beside_results, key=lambda human: human[0].index)
        self.first_human = humans[0][1] if humans else None
        self.last_human = humans[-1][1] if humans else None
        self.results = [
            (unit, entry)
            for unit in groups
            for entry in unit.entries
            if entry.is_result and entry is not self.last_human
        ]
        newest = self.results[-protected_tool_results:] if protected_tool_results > 0 else []
        self.newest_results = {entry for _, entry in newest}
        self.kept = {unit for unit in units if unit.is_pinned} | {unit for unit, _ in newest}
        self.kept |= {unit for unit in units[-1:] if unit.is_open}
        self.kept |= {unit for unit, _ in (*humans[:1], *beside_results, *humans[-1:])}
        beginning = units[: humans[0][0].index] if humans else units
        self.kept |= {unit for unit in beginning if unit.head.role == "developer"}
        self.stubs = [unit for unit in self.users if unit.head.cut is Cut.STUB and unit not in self.kept]
        first, last = (humans[0][0].index, humans[-1][0].index) if humans else (0, 0)
        self.stubbable = [
            unit
            for unit in self.users
            if unit.head.cut is Cut.NONE and first < unit.index < last and is_long_user_message(unit.head.source)
        ]
