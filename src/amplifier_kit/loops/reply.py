"""What a provider answered: the response, taken apart once."""

from dataclasses import dataclass, field

from amplifier_core import ChatResponse
from amplifier_core.utils.tool_messages import Call


@dataclass(slots=True)
class Reply:
    """A provider's response, its text and its tool calls."""

    response: ChatResponse
    text: str
    calls: list[Call] = field(default_factory=list)

    @property
    def is_answer(self) -> bool:
        """Whether it has something to say and calls no tool."""
        return not self.calls and bool(self.text or self.response.content)
