"""What to cut from a conversation that grew too large, level by level, until it is small enough.

Nothing is changed here: an `Escalation` looks at a conversation and collects cuts, the caller applies them. It
takes a few passes over the messages, however many there are to cut.

| level | what is cut |
|---|---|
| 1, 2 | the oldest quarter of the tool results is truncated, then the next one |
| 3 | messages outside the protected zone are removed, long user messages become stubs |
| 4 | the third quarter of the tool results is truncated |
| 5 | as 3, with 0.6 of the zone |
| 6 | all tool results but the protected ones are truncated |
| 7 | as 3, with 0.3 of the zone |
| 8 | stubs are removed; then, only above the budget, what the other levels spare |
"""

from collections.abc import Callable, Iterable
from itertools import chain

from amplifier_kit.messages.stored_messages import estimate_message
from amplifier_kit.types import Message

from .groups import Cut, Entry, Form, GroupedConversation, Unit
from .settings import HIGHEST_LEVEL, CompactionSettings
from .shortening import is_long_user_message, stub_user_message, truncate_result

_SMALLEST_ZONE = 0.3  # of the protected share
_ROOM = 0.2  # of the budget: left free when the target cannot be reached, so that not every request has to cut

_SHORTER: dict[Cut, Callable[[Message, CompactionSettings], Message]] = {
    Cut.TRUNCATE: lambda message, settings: truncate_result(message, settings.truncate_chars),
    Cut.STUB: lambda message, settings: stub_user_message(message),
}


class Escalation:
    """One search for a smaller conversation.

    `prompt_tokens` are those of a system prompt that is not part of the conversation. `floor` is what the levels below
    the last one can always get down to. When that is more than the share of the budget that is aimed at, the number is
    not chased: the whole budget becomes the `target`, and cutting stops a little below it.

    After `run`, `cuts` says what to cut, `total` what is left and `level` how far it went. A total above the
    budget means that the rest cannot be cut.
    """

    def __init__(
        self, conversation: GroupedConversation, settings: CompactionSettings, *, prompt_tokens: int, budget: int
    ) -> None:
        self.conversation = conversation
        self.revision = conversation.revision
        self.budget = budget
        self.total = prompt_tokens + conversation.tokens
        self.cuts: dict[Entry, Cut] = {}
        self.level = 0
        self._settings = settings
        self._candidates = Candidates(conversation, settings.protected_tool_results)
        self._removed: set[Unit] = set()
        self._message_count = len(conversation.messages)
        self._count = 0
        self.target = self._limit = int(budget * settings.target_usage)
        self.floor = self._floor()
        self.is_target_reachable = self.floor <= self.target
        if not self.is_target_reachable:
            self.target, self._limit = budget, self._limit_without_target()

    def run(self) -> None:
        """Collect cuts until the target is reached or nothing is left to cut."""
        levels: tuple[Callable[[], None], ...] = (
            lambda: self._truncate_band(0, 0.25),
            lambda: self._truncate_band(0.25, 0.5),
            lambda: self._remove_outside(1),
            lambda: self._truncate_band(0.5, 0.75),
            lambda: self._remove_outside(0.6),
            lambda: self._truncate_band(0, 1),
            lambda: self._remove_outside(_SMALLEST_ZONE),
            self._take_last_resort,
        )
        for number, take in enumerate(levels, 1):
            if self.total <= self._limit:
                return
            count = self._count
            take()
            if self._count > count:
                self.level = number
        if self.total > self.budget:
            self.level = HIGHEST_LEVEL

    def _truncate_band(self, start: float, end: float) -> None:
        results = self._present_results()
        band = results[int(len(results) * start) : int(len(results) * end)]
        newest = self._candidates.newest_results
        self._shorten((entry for entry in band if entry not in newest), Cut.TRUNCATE)

    def _remove_outside(self, zone: float) -> None:
        protected = self._protected(zone)
        self._remove(unit for unit in self._candidates.removable if unit not in protected)
        self._shorten((unit.head for unit in self._candidates.stubbable if unit not in protected), Cut.STUB)

    def _take_last_resort(self) -> None:
        candidates = self._candidates
        protected = self._protected(_SMALLEST_ZONE)
        stubs = (unit for unit in candidates.stubbable if self.cuts.get(unit.head) is Cut.STUB)
        self._remove(unit for unit in chain(candidates.stubs, stubs) if unit not in protected)
        if self.total <= self.budget:
            return
        first = candidates.first_human
        if first is not None and first is not candidates.last_human and not first.is_result:
            self._shorten([first], Cut.STUB)
        protected = self._protected(_SMALLEST_ZONE)
        self._limit = self._nearly_full()
        self._remove(unit for unit in candidates.users if unit not in protected)
        self._limit = self.budget
        self._shorten(self._present_results(), Cut.TRUNCATE)  # the newest comes last

    def _floor(self) -> int:
        candidates, protected = self._candidates, self._protected(_SMALLEST_ZONE)
        floor = self.total - sum(unit.tokens for unit in candidates.removable if unit not in protected)
        if floor <= self.target:
            return floor  # what shortening would save need not be known
        stubbed = (self._saving(unit.head, Cut.STUB) for unit in candidates.stubbable if unit not in protected)
        truncated = (
            self._saving(entry, Cut.TRUNCATE)
            for unit, entry in candidates.results
            if unit in protected and entry not in candidates.newest_results
        )
        return floor - sum(stubbed) - sum(truncated)

    def _limit_without_target(self) -> int:
        """Where to stop below the budget: with some room, but at least half of what could be cut stays."""
        protected = self._protected(_SMALLEST_ZONE)
        stubs = sum(unit.tokens for unit in self._candidates.stubs if unit not in protected)
        stubs += sum(self._form(unit.head, Cut.STUB)[1] for unit in self._candidates.stubbable if unit not in protected)
        return min(self.budget, max(self._nearly_full(), (self.floor - stubs + self.budget) // 2))

    def _nearly_full(self) -> int:
        return int(self.budget * (1 - _ROOM))

    def _present_results(self) -> list[Entry]:
        return [entry for unit, entry in self._candidates.results if unit not in self._removed]

    def _protected(self, zone: float) -> set[Unit]:
        """The units that stay: those with the newest messages, and what always does."""
        boundary = int(self._message_count * (1 - self._settings.protected_recent * zone))
        protected = set(self._candidates.kept)
        position = self._message_count
        for unit in reversed(self.conversation.units):
            if position <= boundary:
                break
            if unit not in self._removed:
                protected.add(unit)
                position -= len(unit.entries)
        return protected

    def _shorten(self, entries: Iterable[Entry], cut: Cut) -> None:
        for entry in entries:
            if self.total <= self._limit:
                return
            saving = self._saving(entry, cut)
            if saving and entry not in self.cuts:
                self.cuts[entry] = cut
                self.total -= saving
                self._count += 1

    def _remove(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if self.total <= self._limit:
                return
            if unit not in self._removed:
                self._removed.add(unit)
                self._message_count -= len(unit.entries)
                self.total -= sum(self._tokens(entry) for entry in unit.entries)
                self.cuts[unit.head] = Cut.REMOVE
                self._count += 1

    def _tokens(self, entry: Entry) -> int:
        cut = self.cuts.get(entry)
        return entry.tokens if cut is None else self._form(entry, cut)[1]

    def _saving(self, entry: Entry, cut: Cut) -> int:
        """The tokens that a shorter form would save; none if it is not shorter, or is shown already."""
        if entry.cut is not Cut.NONE:
            return 0
        return max(0, entry.tokens - self._form(entry, cut)[1])

    def _form(self, entry: Entry, cut: Cut) -> Form:
        if entry.short is None:
            entry.short = {}
        form = entry.short.get(cut)
        if form is None:
            shorter = _SHORTER[cut](entry.source, self._settings)
            form = entry.short[cut] = (shorter, estimate_message(shorter, self._settings.image_token_estimate))
        return form


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
