"""Rules for receipts: what is stored of tool calls is what the world has seen of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence

from cluster_evidence import INTENT, OUTCOME, Evidence, Json, StoredSession

Breaches = Iterator[str]

_LEFT = {None: "not_begun", "safe": "safe", "check": "checked", "never": "unknown"}
"""What a repair says of a call without an outcome, by how its intent said that it can be repeated."""


def receipts(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Every call has at most one intent and one outcome behind it, and both tell what the world has seen."""
    runs, known = frozenset(evidence.runs), set[tuple[str, str]]()
    for index, (_, message) in enumerate(session.messages):
        for call in message.get("tool_calls") or ():
            turn, call_id = str(message["correlation_id"]), call["id"]
            known.add((turn, call_id))
            later = (each for _, each in session.messages[index + 1 :])
            result = next((each for each in later if each.get("tool_call_id") == call_id), {})
            intents = [each for each in session.of(INTENT, turn) if each[1]["data"]["tool_call_id"] == call_id]
            outcomes = [each for each in session.of(OUTCOME, turn) if each[1]["data"]["tool_call_id"] == call_id]
            for breach in _receipt(call, result, intents, outcomes, runs, counted):
                yield f"turn {message['turn']}, call {call_id}: {breach}"
    for seq, event in (*session.of(INTENT), *session.of(OUTCOME)):
        if (event["correlation_id"], event["data"]["tool_call_id"]) not in known:
            yield f"event {seq} is a receipt for a call that no message asks for"


def _receipt(
    call: Json,
    result: Json,
    intents: Sequence[tuple[int, Json]],
    outcomes: Sequence[tuple[int, Json]],
    runs: frozenset[str],
    counted: Counter[str],
) -> Breaches:
    state = (result.get("metadata") or {}).get("repaired")
    token = call["arguments"].get("token")
    counted["tool calls"] += 1
    counted[f"calls {state}" if state else "calls with a result"] += 1
    if len(intents) > 1 or len(outcomes) > 1:
        yield f"{len(intents)} intents and {len(outcomes)} outcomes"
    if outcomes and (not intents or intents[0][0] >= outcomes[0][0]):
        yield "the outcome does not follow an intent"
    if intents and intents[0][1]["data"]["input_hash"] != _input_hash(call["arguments"]):
        yield "the intent is that of another input"
    is_told = any(event["data"]["content"] == result.get("content") for _, event in outcomes)
    if "cancelled" in str(result.get("content")) and not is_told:  # in a turn of a daemon that was told to stop
        yield from ["it had succeeded, and was cancelled" for _, event in outcomes if event["data"]["success"]]
        return
    retry = intents[0][1]["data"]["retry"] if intents else None
    expected = {None, "done"} if outcomes else {_LEFT[retry]}
    if state not in expected:
        yield f"its result says {state}, its receipts say {sorted(map(str, expected))}"
    if outcomes and result.get("content") != outcomes[0][1]["data"]["content"]:
        yield f"its result is not what its receipt says: {result.get('content')!r:.80}"
    if token is not None:
        yield from _run(token, intents, outcomes, runs)


def _run(
    token: str, intents: Sequence[tuple[int, Json]], outcomes: Sequence[tuple[int, Json]], runs: frozenset[str]
) -> Breaches:
    """What is said of a call is what its tool has written down."""
    if not intents and f"begin {token}" in runs:
        yield "it ran without an intent"
    if outcomes and outcomes[0][1]["data"]["success"] and f"end {token}" not in runs:
        yield "it is said to have succeeded, and has not ended"


def _input_hash(arguments: Json) -> str:
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
