"""Making what the model sees shorter, by the means of the context manager itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amplifier_core.boundary import settle
from amplifier_kit.messages.token_estimate import estimate_messages


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


async def compact(context: Any) -> Compaction:
    """Have a context manager compact, as it does when the window is as full as its budget.

    What it leaves out stays out of later requests; the history that it keeps stays whole.
    """
    before = await context.get_messages_for_request()
    tokens = estimate_messages(before)
    if callable(own := getattr(context, "compact", None)):
        await settle(own())
    after = await context.get_messages_for_request(token_budget=max(tokens, 1))
    return Compaction((tokens, estimate_messages(after)), (len(before), len(after)))
