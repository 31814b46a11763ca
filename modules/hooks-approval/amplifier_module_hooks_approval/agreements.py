"""The concerns of one session: which of them a rule decides, and which a person has agreed to."""

from collections.abc import Iterable
from typing import Any

from amplifier_kit.concerns import Concern

from .hosts import judge_host
from .ledger import Ledger
from .verdict import Verdict


class Agreements:
    """What a person agreed to in this session, and the rules that decide about a concern without a question."""

    def __init__(self, coordinator: Any, ledger: Ledger) -> None:
        self._coordinator, self._ledger = coordinator, ledger
        self._agreed: set[str] = set()

    def open(self, concerns: Iterable[Concern]) -> tuple[Concern, ...]:
        """Return the concerns that nobody has agreed to yet."""
        return tuple(concern for concern in concerns if not self._covers(concern))

    def agree(self, concerns: Iterable[Concern]) -> None:
        """Note a yes to each of the concerns."""
        self._agreed.update(concern.key for concern in concerns if concern.key is not None)

    def is_wary(self, concerns: Iterable[Concern]) -> bool:
        """Say whether no answer of this session stands for these concerns: it could leak what it read to a host."""
        return self._ledger.is_tainted and any(concern.kind == "host" for concern in concerns)

    def judge(self, concern: Concern, tool_name: str) -> Verdict | None:
        """Return what the rules say about a concern that nobody has agreed to; None leaves it to a person."""
        match concern.kind:
            case "place":
                return self._judge_place(concern, tool_name)
            case "host":
                return self._judge_host(concern, tool_name)
        return None

    def _judge_place(self, concern: Concern, tool_name: str) -> Verdict | None:
        return None

    def _judge_host(self, concern: Concern, tool_name: str) -> Verdict | None:
        return judge_host(concern, self._ledger, self._coordinator)

    def _covers(self, concern: Concern) -> bool:
        if concern.key is None or self.is_wary([concern]):
            return False
        host, _, port = concern.subject.rpartition(":")
        is_secured = concern.kind == "host" and port == "443" and f"host:{host}:80" in self._agreed
        return is_secured or concern.key in self._agreed
