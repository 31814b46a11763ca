"""Rules for what a run with a cluster leaves: its rows, the receipts of its tools, its turns, and what clients saw.

Nothing is missing, nothing is there twice, and nobody wrote who may not; what is stored of tool calls is what the world
has seen of them; turns end once, calls have results, and nothing was said that no one wanted; a client saw one stream,
of everything that is stored and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cluster_evidence import (
    BEGUN,
    DONE,
    INTENT,
    OUTCOME,
    PIECE,
    Evidence,
    Json,
    ShownStream,
    StoredSession,
    Submission,
    Write,
    is_piece,
    text_of,
)

from amplifierd.store.cursor import Cursor

Breaches = Iterator[str]

# --- rows


def lines(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Nothing is missing between two lines, and nothing is there twice."""
    placed = [line for line, _, _ in session.events]
    if placed != [*range(1, len(placed) + 1)]:
        yield f"the lines of events are not numbered one by one: {_jumps(placed)}"
    counts = [seq for _, seq, _ in session.events]
    if any(later <= earlier for earlier, later in pairwise(counts)):
        yield f"the numbers of events do not grow: {_jumps(counts)}"
    for _, seq, event in session.events:
        if event["seq"] != seq or is_piece(event["event"]):
            yield f"event {seq} is stored as {event['event']} {event['seq']}"
    placed = [line for line, _ in session.messages]
    if placed and placed != [*range(placed[0], placed[0] + len(placed))]:
        yield f"the lines of messages are not numbered one by one: {_jumps(placed)}"
    for message_id, count in Counter(message["id"] for _, message in session.messages).items():
        if count > 1:
            yield f"message {message_id} is there {count} times"
    if session.record["message_count"] != len(session.messages):
        yield f"{session.record['message_count']} messages are counted, {len(session.messages)} are stored"
    counted["messages"] += len(session.messages)
    counted["events"] += len(session.events)


def numbers(tree: Sequence[StoredSession]) -> Breaches:
    taken = Counter(seq for session in tree for _, seq, _ in session.events)
    for seq, count in taken.items():
        if count > 1:
            yield f"{count} events of the tree have the number {seq}"


def writes(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Epochs only grow, and every line was written by whoever had the hold at that moment."""
    last = 0
    for before, epoch in session.epochs:
        if epoch < last or (before is not None and before != last):
            yield f"the epoch went from {last} ({before}) to {epoch}"
        counted["takings"] += epoch > last
        last = epoch
    for kind, written in session.writes.items():
        reached = 0
        for write in written:
            if reached or write.epoch is not None:  # what a session begins with needs no hold
                yield from (
                    f"line {write.line} of {kind} was written {how}" for how in _write(evidence, write, reached)
                )
            reached = max(reached, write.epoch or 0)
    known = {write.line for write in session.writes["events"]}
    if lost := known - {line for line, _, _ in session.events}:
        yield f"events are gone that were written: lines {sorted(lost)[:5]}"


def _write(evidence: Evidence, write: Write, reached: int) -> Breaches:
    if write.epoch is None or write.member_id is None:
        yield f"without a hold, by {write.who}"
        return
    if write.epoch < reached:
        yield f"under epoch {write.epoch}, after {reached}"
    if evidence.members.get(write.member_id) != write.who:
        yield f"by {write.who} while {write.member_id} held the session"
    if write.state not in ("active", "draining"):
        yield f"by {write.who}, which was {write.state}"


def _jumps(numbers: Sequence[int]) -> str:
    return (
        ", ".join(f"{before} → {after}" for before, after in pairwise(numbers) if after != before + 1)[:300]
        or f"{numbers[:3]}"
    )


# --- receipts

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


# --- turns

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


# --- what clients saw

_RECENT_S = 1.0
"""What was said of an answer in the last moment before its process died may be lost."""


def shown(tree: Sequence[StoredSession], stream: ShownStream, counted: Counter[str]) -> Breaches:
    """A client saw one stream: every event that is stored, each once and in order, and none that is not."""
    stored = {seq: (session.session_id, event) for session in tree for _, seq, event in session.events}
    last = Cursor(0, 0)
    seen: set[int] = set()
    for event in stream.events:
        name, place = event["event"], Cursor.of_event(event)
        if name in ("stream:gap", "stream:overflow", "stream:error"):
            yield f"after {last} came {name}: {event['data']}"
        if place is None or name.startswith("stream:"):
            continue
        if last.covers(place):
            yield f"{name} {place} came after {last}"
        else:
            last = place
        if bool(place.piece) != is_piece(name) or event["sequence"] != place.sequence:
            yield f"{name} is numbered {event['sequence']}, and stands at {place}"
        if not place.piece:
            seen.add(place.seq)
            yield from _same(event, stored.get(place.seq))
    if missed := sorted(seq for seq in stored if seq not in seen and seq <= last.seq):
        names = [stored[seq][1]["event"] for seq in missed[:5]]
        yield f"{len(missed)} events were never shown: {missed[:5]} {names}"
    if stored and last.seq < max(stored):
        yield f"nothing was shown after {last}, and {max(stored)} is stored"
    counted["shown events"] += len(seen)
    counted["connections of clients"] += max((int(event["link"]) for event in stream.events), default=0)
    yield from _ends(stream)
    yield from _pieces(tree, stream)


def _ends(stream: ShownStream) -> Breaches:
    """The end of a turn was shown once, whoever told it."""
    told: dict[tuple[str, str], list[Json]] = {}
    for event in stream.events:
        if event["event"] == DONE:
            told.setdefault((event["session_id"], event["correlation_id"]), []).append(event)
    for (_, correlation_id), ends in told.items():
        if len(ends) > 1:
            found = [f"{end['sequence']} {end['data']['status']} {end['data'].get('error')!r:.200}" for end in ends]
            yield f"{correlation_id} ended {len(ends)} times: {found}"


def _same(event: Json, stored: tuple[str, Json] | None) -> Breaches:
    number = event["sequence"]
    if stored is None:
        yield f"{event['event']} {number} was shown and is not stored"
        return
    session_id, line = stored
    if (line["event"], session_id) != (event["event"], event["session_id"]):
        yield f"{number} was shown as {event['event']} and is stored as {line['event']}"
    elif event["event"] in (BEGUN, DONE, INTENT, OUTCOME) and event["data"] != line["data"]:
        yield f"{event['event']} {number} was shown as {event['data']!r:.100} and is stored as {line['data']!r:.100}"


def _pieces(tree: Sequence[StoredSession], stream: ShownStream) -> Breaches:
    """What was seen of an answer, but for its last moment, is in a message, in the same order."""
    answers: dict[tuple[str, str], list[Json]] = {}
    for event in stream.events:
        if event["event"] == PIECE:
            answers.setdefault((event["session_id"], event["data"]["request_id"]), []).append(event)
    texts = {
        session.session_id: [
            text_of(message).split() for _, message in session.messages if message["role"] == "assistant"
        ]
        for session in tree
    }
    for (session_id, _), pieces in answers.items():
        until = float(pieces[-1]["at"]) - _RECENT_S
        words = "".join(piece["data"]["text"] for piece in pieces if piece["at"] <= until).split()
        if words and not any(_is_within(words, text) for text in texts.get(session_id, ())):
            yield f"of {session_id} was shown, and is not stored: {' '.join(words)!r:.200}"


def _is_within(words: Sequence[str], text: Sequence[str]) -> bool:
    rest = iter(text)
    return all(word in rest for word in words)
