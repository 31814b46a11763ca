"""What is wrong with a conversation that a vendor refuses, and how to mend it. Nothing here reads or writes files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from amplifier_core.utils.tool_messages import Call, listed_calls, with_stand_ins

from .messages import is_real_user_message

Entry = dict[str, Any]

SYNTHETIC_TOOL_RESULT_CONTENT = json.dumps(
    {"error": "unknown_error", "message": "The result of this tool call was lost when the session was interrupted."}
)
"""What stands in the place of a result that is missing."""


class IncompleteTurn(TypedDict):
    """A place at which the assistant's answer to its tools' results is missing."""

    after_line: int | None
    after_index: int
    missing: str


class DiagnosisResult(TypedDict):
    """What is wrong with a conversation; `status` is `healthy` or `broken`."""

    status: str
    failure_modes: list[str]
    orphaned_tool_ids: list[str]
    misplaced_tool_ids: list[str]
    incomplete_turns: list[IncompleteTurn]
    recommended_action: str


def build_tool_index(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return where every tool call and every result is, by the call's id."""
    uses: dict[str, dict[str, Any]] = {}
    results: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(entries):
        place = {"line_num": entry.get("line_num"), "entry_index": index}
        for call in listed_calls(entry):
            uses[call.id] = {**place, "tool_name": _name(call)}
        if entry.get("role") == "tool" and isinstance(entry.get("tool_call_id"), str):
            results[entry["tool_call_id"]] = place
    return {"tool_uses": uses, "tool_results": results}


def diagnose_transcript(entries: Sequence[Mapping[str, Any]]) -> DiagnosisResult:
    """Look for calls without result, results in the wrong place, and results that were never answered."""
    index = build_tool_index(entries)
    uses, results = index["tool_uses"], index["tool_results"]
    orphaned = [call_id for call_id in uses if call_id not in results]
    misplaced = [
        call_id
        for call_id, use in uses.items()
        if call_id in results and _is_torn_apart(entries, use["entry_index"], results[call_id]["entry_index"])
    ]
    incomplete = _incomplete_turns(entries, results, {*orphaned, *misplaced})
    modes = {
        "missing_tool_results": orphaned,
        "ordering_violation": misplaced,
        "incomplete_assistant_turn": incomplete,
    }
    found = [mode for mode, cases in modes.items() if cases]
    return DiagnosisResult(
        status="broken" if found else "healthy",
        failure_modes=found,
        orphaned_tool_ids=orphaned,
        misplaced_tool_ids=misplaced,
        incomplete_turns=incomplete,
        recommended_action="repair" if found else "none",
    )


def repair_transcript(entries: Sequence[Mapping[str, Any]], diagnosis: DiagnosisResult) -> list[Entry]:
    """Return the conversation with every call answered in its place and every turn closed."""
    misplaced = set(diagnosis["misplaced_tool_ids"])
    broken = {*diagnosis["orphaned_tool_ids"], *misplaced}
    unanswered = {turn["after_index"] for turn in diagnosis["incomplete_turns"]}
    kept = [
        (index, entry)
        for index, entry in enumerate(entries)
        if not (entry.get("role") == "tool" and entry.get("tool_call_id") in misplaced)
    ]
    stand_ins: dict[int, list[Entry]] = {}
    for position, (index, entry) in enumerate(kept):
        calls = listed_calls(entry)
        stand_ins[position] = [_synthetic_result(call) for call in calls if call.id in broken]
        following = kept[position + 1][1] if position + 1 < len(kept) else None
        all_broken = bool(calls) and all(call.id in broken for call in calls)
        if index in unanswered or (all_broken and (following is None or is_real_user_message(following))):
            stand_ins[position].append(_synthetic_answer())
    return with_stand_ins([_without_line(entry) for _, entry in kept], stand_ins)


def rewind_transcript(entries: Sequence[Mapping[str, Any]], diagnosis: DiagnosisResult) -> list[Entry]:
    """Return the conversation up to before the person's message that led to the first problem."""
    whole = [_without_line(entry) for entry in entries]
    if diagnosis["status"] == "healthy":
        return whole
    broken = {*diagnosis["orphaned_tool_ids"], *diagnosis["misplaced_tool_ids"]}
    issues = [index for index, entry in enumerate(entries) if any(call.id in broken for call in listed_calls(entry))]
    issues += [turn["after_index"] for turn in diagnosis["incomplete_turns"]]
    if not issues:
        return whole
    before = [index for index in range(min(issues)) if is_real_user_message(entries[index])]
    return whole[: before[-1]] if before else []


def _name(call: Call) -> str:
    return call.name or "unknown"


def _is_torn_apart(entries: Sequence[Mapping[str, Any]], use: int, result: int) -> bool:
    return any(
        is_real_user_message(entry) or (entry.get("role") == "assistant" and not entry.get("tool_calls"))
        for entry in entries[use + 1 : result]
    )


def _incomplete_turns(
    entries: Sequence[Mapping[str, Any]], results: Mapping[str, Mapping[str, Any]], broken: set[str]
) -> list[IncompleteTurn]:
    incomplete = []
    for entry in entries:
        placed = [results[call.id]["entry_index"] for call in listed_calls(entry) if call.id not in broken]
        if not placed:
            continue
        last = max(placed)
        if last + 1 == len(entries) or is_real_user_message(entries[last + 1]):
            line = entries[last].get("line_num")
            incomplete.append(IncompleteTurn(after_line=line, after_index=last, missing="assistant_response"))
    return incomplete


def _without_line(entry: Mapping[str, Any]) -> Entry:
    return {key: value for key, value in entry.items() if key != "line_num"}


def _synthetic_result(call: Call) -> Entry:
    return {"role": "tool", "tool_call_id": call.id, "name": _name(call), "content": SYNTHETIC_TOOL_RESULT_CONTENT}


def _synthetic_answer() -> Entry:
    text = "The previous tool calls were interrupted before I could answer."
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}
