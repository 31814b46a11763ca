"""Making what the model sees shorter, by the means of the context manager itself, for as long as the session lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core.boundary import settle
from amplifier_kit.messages.stored_messages import estimate_messages

DOCUMENT = "compaction"


@dataclass(frozen=True)
class Compaction:
    """How many tokens and messages the model was shown before, and is shown after; estimated."""

    tokens: tuple[int, int]
    messages: tuple[int, int]

    def __str__(self) -> str:
        (before, after), (many, few) = self.tokens, self.messages
        if after >= before:
            return f"nothing can be left out: {before:,} tokens in {many} messages"
        saved = f"{before - after:,} tokens saved ({(before - after) * 100 // before} %)"
        return f"{saved}: {before:,} → {after:,}, {many} → {few} messages; the session keeps all of them"

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens_before": self.tokens[0],
            "tokens_after": self.tokens[1],
            "messages_before": self.messages[0],
            "messages_after": self.messages[1],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Compaction:
        return cls((value["tokens_before"], value["tokens_after"]), (value["messages_before"], value["messages_after"]))


@dataclass(frozen=True)
class KeptCompaction:
    """A compaction that holds on: after which message of the transcript it was made, and to how many tokens."""

    message_id: str
    token_budget: int

    def to_json(self) -> dict[str, Any]:
        return {"message_id": self.message_id, "token_budget": self.token_budget}

    @classmethod
    def find(cls, document: Any) -> KeptCompaction | None:
        match document:
            case {"message_id": str(message_id), "token_budget": int(budget)}:
                return cls(message_id, budget)
        return None


async def compact(context: Any) -> Compaction:
    """Have a context manager compact, as it does when the window is as full as its budget.

    What it leaves out stays out of later requests; the history that it keeps stays whole.
    """
    before = await context.get_messages_for_request()
    tokens = estimate_messages(before)
    after = await compact_to(context, max(tokens, 1))
    return Compaction((tokens, estimate_messages(after)), (len(before), len(after)))


async def compact_to(context: Any, token_budget: int) -> Any:
    """Have a context manager compact to a budget; returns what the model is shown then."""
    if callable(own := getattr(context, "compact", None)):
        await settle(own())
    return await context.get_messages_for_request(token_budget=token_budget)
