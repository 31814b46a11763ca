"""Rules for what was said in a session: turns end once, calls have results, and nothing was said that no one wanted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from cluster_evidence import BEGUN, DONE, Evidence, Json, StoredSession, Submission, text_of

Breaches = Iterator[str]

_INTERRUPTED = frozenset({"aborted", "interrupted"})


def transcript(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Every call has one result, directly behind it; turns come one after the other."""
    waiting: dict[str, int] = {}
    last_turn = 0
    for _, message in session.messages:
        turn = int(message["turn"])
        if turn < last_turn:
            yield f"message {message['id']} of turn {turn} follows turn {last_turn}"
        last_turn = max(last_turn, turn)
        if message["role"] == "tool":
            if waiting.pop(message["tool_call_id"], None) is None:
                yield f"turn {turn}: there is a result without a call, {message['tool_call_id']}"
            continue
        if waiting:
            yield f"turn {turn}: calls have no result: {[*waiting]}"
            waiting = {}
        for call in message.get("tool_calls") or ():
            waiting[call["id"]] = turn
    if waiting:
        yield f"turn {last_turn}: calls have no result: {[*waiting]}"


def turns(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Every turn that has a prompt ended once, and before the next one began."""
    prompts = [message for _, message in session.messages if message["role"] == "user"]
    begun, ended = session.of(BEGUN), session.of(DONE)
    for message in prompts:
        correlation_id = message.get("correlation_id")
        ends = [event for _, event in ended if event["correlation_id"] == correlation_id]
        if len(ends) != 1 and (session.is_root or session.of(BEGUN, correlation_id)):
            yield f"turn {message['turn']} ended {len(ends)} times"
        for end in ends:
            yield from _end(evidence, session, message, end, counted)
    if len(begun) != len({event["data"]["turn"] for _, event in begun}):
        yield f"a turn was begun twice: {[event['data']['turn'] for _, event in begun]}"
    running: object = None
    for _, _, event in session.events:
        if event["event"] == BEGUN:
            if running is not None:
                yield f"turn {event['data']['turn']} began while turn {running} was running"
            running = event["data"]["turn"]
        elif event["event"] == DONE:
            running = None


def _end(evidence: Evidence, session: StoredSession, prompt: Json, event: Json, counted: Counter[str]) -> Breaches:
    data = event["data"]
    turn, code = prompt["turn"], (data.get("error") or {}).get("code")
    own = [message for _, message in session.messages if message["turn"] == turn]
    if data["status"] == "completed":
        counted["completed turns"] += 1
        if not own or text_of(own[-1]) != data["response"]:
            yield f"turn {turn} was answered {data['response']!r:.80}, and stored is {text_of(own[-1])!r:.80}"
    elif data["status"] == "failed" and code in _INTERRUPTED:
        counted["interrupted turns"] += 1
        if own[-1]["role"] != "assistant":
            yield f"turn {turn} was interrupted, and its last message is of the {own[-1]['role']}"
    elif data["status"] == "cancelled" and session.member_of(event) in evidence.left:
        counted["turns cancelled by a daemon that was told to stop"] += 1
    else:
        yield f"turn {turn} ended as {data['status']}: {data.get('error')}"


def submissions(evidence: Evidence, root: StoredSession, counted: Counter[str]) -> Breaches:
    """What a client submitted is there once: always if it was accepted, at most if it was not."""
    said: dict[str, list[str]] = {}
    for _, message in root.messages:
        if message["role"] == "user":
            said.setdefault(text_of(message), []).append(str(message["correlation_id"]))
    wanted = [each for each in evidence.submissions if each.session_id == root.session_id]
    for each in wanted:
        found = _submission(evidence, root, each, said.get(each.prompt, []), counted)
        yield from (f"{each.prompt!r} {breach}" for breach in found)
    for prompt, count in Counter(each.prompt for each in wanted).items():
        if count > 1:
            yield f"{prompt!r} was submitted twice"
    own = {each.prompt for each in wanted}
    for _, message in root.messages:
        if message["role"] == "user" and text_of(message) not in own and not message.get("metadata"):
            yield f"turn {message['turn']} was submitted by no one: {text_of(message)!r:.80}"


def _submission(
    evidence: Evidence, root: StoredSession, each: Submission, ran: Sequence[str], counted: Counter[str]
) -> Breaches:
    if len(ran) > 1:
        yield f"ran {len(ran)} times"
    if not each.is_accepted:
        counted["turns without an answer"] += 1
        return
    counted["accepted turns"] += 1
    if len(each.correlation_ids) > 1:
        yield f"was accepted as {sorted(each.correlation_ids)}"
    (turn_id, *_) = each.correlation_ids
    state, result = evidence.turns.get(turn_id, ("unknown", ""))
    if state != "ended":
        yield f"was accepted as {turn_id}, which is {state}"
        return
    outcome = json.loads(result)
    if "error" in outcome:
        counted["accepted turns that never began"] += 1
        if ran:
            yield f"ran, and its queue says that it never began: {outcome['error']!r:.200}"
        return
    ends = [event["data"]["status"] for _, event in root.of(DONE, turn_id)]
    if [*ran] != [turn_id] or ends != [outcome["result"]["status"]]:
        yield f"was accepted as {turn_id} and {outcome['result']['status']}, stored are {[*ran]} and {ends}"
