"""Does a context manager behave as the contract says?"""

import inspect
from typing import Any

import pytest

from amplifier_core.boundary import settle

from .base import answer_or_refusal

_MESSAGES = [
    {"role": "user", "content": "What is two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "And one more?"},
]


def _contents(messages: Any) -> list[Any]:
    return [message["content"] if isinstance(message, dict) else message.content for message in messages]


async def _filled(context: Any) -> Any:
    for message in _MESSAGES:
        await context.add_message(dict(message))
    return context


def _internal_method(context: Any, *names: str) -> Any:
    """Return a method that only some contexts have; the test is skipped for the others."""
    for name in names:
        method = getattr(context, name, None)
        if callable(method):
            return method
    return pytest.skip(f"the context has no {' or '.join(names)}")


async def _call_internal(method: Any, *arguments: int) -> Any:
    """Call it with `arguments` when it needs that many, without any when it needs none."""
    parameters = inspect.signature(method).parameters.values()
    required = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(required) not in (0, len(arguments)):
        pytest.skip(f"{method.__name__} needs {len(required)} arguments of its own")
    return await settle(method(*arguments[: len(required)]))


class ContextBehaviorTests:
    """Inherit from it in the test suite of a context manager."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, context_module: Any) -> None:
        assert context_module is not None, "mount() installed no context manager"

    @pytest.mark.asyncio
    async def test_context_has_required_methods(self, context_module: Any) -> None:
        names = ("add_message", "get_messages", "clear")
        missing = [name for name in names if not callable(getattr(context_module, name, None))]
        assert not missing, f"the context lacks {missing}"

    @pytest.mark.asyncio
    async def test_message_round_trip(self, context_module: Any) -> None:
        await context_module.add_message(dict(_MESSAGES[0]))
        contents = _contents(await context_module.get_messages())
        assert _MESSAGES[0]["content"] in contents, f"the message is not among {contents}"

    @pytest.mark.asyncio
    async def test_multiple_messages(self, context_module: Any) -> None:
        messages = await (await _filled(context_module)).get_messages()
        assert len(messages) >= len(_MESSAGES), f"{len(_MESSAGES)} messages were added, {len(messages)} are there"

    @pytest.mark.asyncio
    async def test_clear_removes_messages(self, context_module: Any) -> None:
        await (await _filled(context_module)).clear()
        messages = await context_module.get_messages()
        assert len(messages) == 0, f"{len(messages)} messages are left after clear()"

    @pytest.mark.asyncio
    async def test_get_messages_for_request_returns_messages(self, context_module: Any) -> None:
        messages = await (await _filled(context_module)).get_messages_for_request()
        assert isinstance(messages, list), f"get_messages_for_request() returned {type(messages).__name__}"
        assert _MESSAGES[-1]["content"] in _contents(messages), "the newest message is missing"

    @pytest.mark.asyncio
    async def test_internal_should_compact_returns_bool(self, context_module: Any) -> None:
        should_compact = _internal_method(context_module, "_should_compact", "should_compact")
        answer = await _call_internal(should_compact, 100_000, 200_000)
        assert isinstance(answer, bool), f"{should_compact.__name__} returned {type(answer).__name__}"

    @pytest.mark.asyncio
    async def test_internal_compact_does_not_crash(self, context_module: Any) -> None:
        compact = _internal_method(await _filled(context_module), "_compact_internal", "_compact", "compact")
        await _call_internal(compact)

    @pytest.mark.asyncio
    async def test_add_invalid_message_does_not_crash(self, context_module: Any) -> None:
        await answer_or_refusal(context_module.add_message({}), "add_message({})")

    @pytest.mark.asyncio
    async def test_get_messages_never_returns_none(self, context_module: Any) -> None:
        assert await context_module.get_messages() is not None, "get_messages() returned None"
        await context_module.clear()
        assert await context_module.get_messages() is not None, "get_messages() returned None after clear()"


class TestContextBehavior(ContextBehaviorTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.behavioral`."""
