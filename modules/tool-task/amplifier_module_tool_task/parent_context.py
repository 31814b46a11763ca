"""What a child session is told about its parent's conversation: the words, without tools and thinking."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.utils.tool_messages import field_of
from amplifier_kit.messages.conversation import text_of
from amplifier_kit.mounting import find_mounted

logger = logging.getLogger(__name__)

DEFAULT_TURNS = 5

_SPEAKERS = ("user", "assistant")
_INTRODUCTION = "The conversation that led to your task, for your information; do not answer it."
_CUT = "... [truncated]"


@dataclass(frozen=True, slots=True)
class Utterance:
    speaker: str
    text: str


async def with_parent_context(
    coordinator: Any, instruction: str, *, scope: str, turns: int = DEFAULT_TURNS, max_chars: int
) -> str:
    """Return the instruction with the conversation before it: none, the recent turns or all of it."""
    if scope == "none" or (scope == "recent" and turns <= 0):
        return instruction
    spoken = await _conversation(coordinator)
    if scope == "recent":
        spoken = last_turns(spoken, turns)
    if not spoken:
        return instruction
    paragraphs = [f"{said.speaker.upper()}: {_cut(said.text, max_chars)}\n" for said in spoken]
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


async def _conversation(coordinator: Any) -> list[Utterance]:
    with Boundary(logger, "the conversation cannot be read; the task is delegated without it: %s"):
        return list(_spoken(await find_mounted(coordinator, "context").get_messages()))
    return []


def _spoken(messages: Any) -> Iterator[Utterance]:
    for message in messages:
        role, text = field_of(message, "role"), text_of(field_of(message, "content"), "\n")
        if role in _SPEAKERS and text.strip():
            yield Utterance(role, text)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + _CUT
