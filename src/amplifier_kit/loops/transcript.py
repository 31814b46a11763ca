"""The conversation as a turn keeps it: what it stores in the context, and what it reads from there."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from amplifier_core import ChatResponse, ContextManager, Provider
from amplifier_core.boundary import Boundary
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.messages.conversation import CLOSING_MESSAGE, user_message
from amplifier_kit.messages.stored_messages import estimate_messages
from amplifier_kit.types import Message

logger = logging.getLogger(__name__)


class Transcript:
    """A context manager in the hands of a turn. A context without `add_message` is read-only."""

    def __init__(self, context: ContextManager) -> None:
        self._context = context
        self._add = getattr(context, "add_message", None)
        self._ends_with_result = False

    async def add(self, message: Message) -> None:
        """Store a message."""
        if self._add is not None:
            await self._add(message)
            self._ends_with_result = message["role"] == "tool"

    async def add_all(self, messages: Iterable[Message]) -> None:
        """Store each of the messages; what goes wrong with one is raised when the others are stored."""
        failure: BaseException | None = None
        for message in messages:
            try:
                await self.add(message)
            except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - raised below
                failure = failure or exc
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Have a cancelled turn end with an assistant message, where it would end with tool results."""
        if self._ends_with_result:
            message = "the closing message of a cancelled turn could not be stored: %s"
            with Boundary(logger, message, level=logging.ERROR):
                await self.add(dict(CLOSING_MESSAGE))

    async def compact(self) -> tuple[int, int] | None:
        """Have the context leave out what it can, as it does when the window is full.

        Returns how many tokens the model was shown before and is shown now, None when nothing can be left out.
        """
        get_messages = getattr(self._context, "get_messages_for_request", None)
        if not callable(get_messages) or not _takes(get_messages, token_budget=1):
            return None
        before = estimate_messages(await get_messages())
        after = estimate_messages(await get_messages(token_budget=max(before, 1)))
        return (before, after) if after < before else None

    async def view_for(self, provider: Provider, prompt: str) -> list[Message]:
        """Return the messages for a request to `provider`."""
        context = self._context
        if callable(get_messages := getattr(context, "get_messages_for_request", None)):
            view: list[Message] = await _ask_for_view(get_messages, provider)
            return view
        if callable(get_messages := getattr(context, "get_messages", None)):
            history: list[Message] = await get_messages()
            return history
        messages = getattr(context, "messages", None)
        return list(messages) if isinstance(messages, list) else [user_message(prompt)]


def _ask_for_view(
    get_messages: Callable[..., Awaitable[list[Message]]], provider: Provider
) -> Awaitable[list[Message]]:
    """Ask a context for the messages of a request; one from before contexts were told the provider is not told it."""
    try:
        return get_messages(provider=provider)
    except TypeError:
        if _takes(get_messages, provider=None):
            raise
        return get_messages()


def _takes(get_messages: Callable[..., object], **arguments: object) -> bool:
    try:
        inspect.signature(get_messages).bind(**arguments)
    except TypeError:
        return False
    except ValueError:
        logger.debug("the parameters of %r are not known", get_messages)
    return True


@dataclass(slots=True)
class Reply:
    """A provider's response, its text and its tool calls."""

    response: ChatResponse
    text: str
    calls: list[Call] = field(default_factory=list)

    @property
    def is_answer(self) -> bool:
        """True if it has something to say and calls no tool."""
        return not self.calls and bool(self.text or self.response.content)
