"""What a child session is told about its parent's conversation, as text before its task."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from amplifier_core.boundary import Boundary
from amplifier_core.utils.tool_messages import Call, calls_in, field_of, results_in
from amplifier_kit.messages.conversation import output_text, text_of
from amplifier_kit.mounting import find_mounted
from amplifier_kit.types import AGENT_TOOLS

logger = logging.getLogger(__name__)

Depth = Literal["none", "recent", "all"]
Scope = Literal["conversation", "agents", "full"]
"""What counts: what was said; the answers of agents as well; the results of all tools as well."""

DEPTHS: tuple[Depth, ...] = ("none", "recent", "all")
SCOPES: tuple[Scope, ...] = ("conversation", "agents", "full")
DEFAULT_TURNS = 5
MESSAGE_CHARS, RESULT_CHARS = 2000, 4000

_SPEAKERS = ("user", "assistant")
_INTRODUCTION = "The conversation that led to your task, for your information; do not answer it."
_CUT = "... [truncated]"


@dataclass(frozen=True, slots=True)
class Utterance:
    speaker: str
    text: str
    is_result: bool = False


async def with_parent_context(
    coordinator: Any,
    instruction: str,
    *,
    depth: str,
    turns: int = DEFAULT_TURNS,
    scope: str = "conversation",
    max_chars: int = MESSAGE_CHARS,
) -> str:
    """Return the instruction with the conversation before it: none, the recent turns or all of it."""
    if depth == "none" or (depth == "recent" and turns <= 0):
        return instruction
    spoken = await _conversation(coordinator, scope)
    if depth == "recent":
        spoken = last_turns(spoken, turns)
    if not spoken:
        return instruction
    paragraphs = [f"{said.speaker.upper()}: {_cut(said, max_chars)}\n" for said in spoken]
    return "\n".join(
        [
            "[PARENT CONVERSATION CONTEXT]",
            f"{_INTRODUCTION}\n",
            *paragraphs,
            "[END PARENT CONTEXT]\n",
            "[YOUR TASK]",
            instruction,
        ]
    )


def last_turns(spoken: list[Utterance], turns: int) -> list[Utterance]:
    """Return the last turns; each starts with what the user says."""
    starts = [index for index, said in enumerate(spoken) if said.speaker == "user"]
    return spoken[starts[-turns] :] if len(starts) > turns else spoken


async def _conversation(coordinator: Any, scope: str) -> list[Utterance]:
    with Boundary(logger, "the conversation cannot be read; the task is delegated without it: %s"):
        messages = await find_mounted(coordinator, "context").get_messages()
        return list(_spoken(messages, scope))
    return []


def _spoken(messages: Sequence[Any], scope: str) -> Iterator[Utterance]:
    calls: dict[str, Call] = {}
    for message in messages:
        role, text = field_of(message, "role"), text_of(field_of(message, "content"), "\n")
        results = results_in(message) if scope != "conversation" else None
        if results:
            yield from (said for result in results if (said := _result(calls.get(result.call_id), result, scope)))
            continue
        calls |= {call.id: call for call in calls_in(message)} if scope != "conversation" else {}
        if role in _SPEAKERS and text.strip():
            yield Utterance(role, text)


def _result(call: Call | None, result: Any, scope: str) -> Utterance | None:
    """Return a result as something that the assistant says, None where the scope leaves it out."""
    name = call.name if call is not None else "tool"
    is_agent = name in AGENT_TOOLS
    if not is_agent and scope != "full":
        return None
    agent = call.arguments.get("agent") if call is not None and is_agent else None
    head = f"[Agent Result from {agent or name}]" if is_agent else f"[Tool Result from {name}]"
    text = output_text(result.output)
    return Utterance("assistant", f"{head} {text}", is_result=True) if text.strip() else None


def _cut(said: Utterance, max_chars: int) -> str:
    limit = RESULT_CHARS if said.is_result else max_chars
    return said.text if len(said.text) <= limit else said.text[:limit] + _CUT
