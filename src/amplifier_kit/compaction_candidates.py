"""What of a conversation may be cut at all."""

from .conversation_groups import GroupedConversation
from .conversation_units import Decision, Unit
from .shortening import is_long_user_message

_NEVER_REMOVED = frozenset({"user", "system"})


class Candidates:
    """The parts of a conversation by what may happen to them, each list oldest first.

    `removable` are replies and whole tool groups, `users` the user messages, `stubbable` those among them for which a
    stub would do, `stubs` those that are one. `kept` always stay: the first and the last human message, groups with
    one of the `newest_results`, calls whose results are on their way, and what carries a vendor's state.
    """

    def __init__(self, conversation: GroupedConversation, protected_tool_results: int) -> None:
        units = conversation.units
        groups = [unit for unit in units if unit.calls]
        self.users = [unit for unit in units if unit.head.role == "user"]
        self.removable = [unit for unit in units if unit.head.role not in _NEVER_REMOVED]
        humans = [(unit, unit.head) for unit in self.users if unit.head.is_human]
        if beside_results := [(unit, entry) for unit in groups for entry in unit.entries if entry.is_human]:
            humans = sorted(humans + beside_results, key=lambda human: human[0].index)
        first_unit, self.first_human = humans[0] if humans else (None, None)
        last_unit, self.last_human = humans[-1] if humans else (None, None)
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
        self.kept |= {unit for unit in (first_unit, last_unit) if unit is not None}
        self.stubs = [unit for unit in self.users if unit.head.decision is Decision.STUB and unit not in self.kept]
        self.stubbable: list[Unit] = []
        if first_unit is not None and last_unit is not None:
            self.stubbable = [
                unit
                for unit in self.users
                if unit.head.decision is Decision.KEEP
                and first_unit.index < unit.index < last_unit.index
                and is_long_user_message(unit.head.source)
            ]
