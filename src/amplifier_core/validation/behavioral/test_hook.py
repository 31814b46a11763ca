"""Does a hook behave as the contract says?"""

from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core.boundary import settle
from amplifier_core.models import HookResult
from amplifier_core.testing import MockCoordinator

from .base import answer_or_refusal

_EVENT = "test:event"
_ACTIONS = frozenset({"continue", "deny", "modify", "inject_context", "ask_user"})

Cleanup = Callable[[], Any] | None


class HookBehaviorTests:
    """Inherit from it in the test suite of a hook."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, hook_cleanup: Cleanup, coordinator: MockCoordinator) -> None:
        assert coordinator.hooks is not None, "mount() took the hook registry away"

    @pytest.mark.asyncio
    async def test_handler_returns_hook_result(self, hook_cleanup: Cleanup, coordinator: MockCoordinator) -> None:
        result = await coordinator.hooks.emit(_EVENT, {"key": "value"})
        assert isinstance(result, HookResult), f"emit() returned {type(result).__name__}"

    @pytest.mark.asyncio
    async def test_hook_result_has_valid_action(self, hook_cleanup: Cleanup, coordinator: MockCoordinator) -> None:
        result = await coordinator.hooks.emit(_EVENT, {"key": "value"})
        assert result.action in _ACTIONS, f"{result.action!r} is none of {sorted(_ACTIONS)}"

    @pytest.mark.asyncio
    async def test_cleanup_is_callable_if_present(self, hook_cleanup: Cleanup) -> None:
        assert hook_cleanup is None or callable(hook_cleanup), "what mount() returned cannot be called"

    @pytest.mark.asyncio
    async def test_cleanup_does_not_raise(self, hook_cleanup: Cleanup) -> None:
        """The fixture calls it once more afterwards: unregistering twice has to be harmless."""
        if hook_cleanup is not None:
            await settle(hook_cleanup())

    @pytest.mark.asyncio
    async def test_handler_does_not_crash_on_malformed_data(
        self, hook_cleanup: Cleanup, coordinator: MockCoordinator
    ) -> None:
        malformed: Any = None
        call = coordinator.hooks.emit(_EVENT, malformed)
        await answer_or_refusal(call, "a handler given None", (AttributeError, TypeError))

    @pytest.mark.asyncio
    async def test_handler_does_not_crash_on_empty_data(
        self, hook_cleanup: Cleanup, coordinator: MockCoordinator
    ) -> None:
        result = await coordinator.hooks.emit(_EVENT, {})
        assert isinstance(result, HookResult), f"emit() returned {type(result).__name__}"


class TestHookBehavior(HookBehaviorTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.behavioral`."""
