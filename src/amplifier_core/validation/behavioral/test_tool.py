"""Does a tool behave as the contract says?"""

from typing import Any

import pytest

from amplifier_core.models import ToolResult

from .base import answer_or_refusal

_INPUT = {"_tool_call_id": "behavior-test"}


class ToolBehaviorTests:
    """Inherit from it in the test suite of a tool."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, tool_module: Any) -> None:
        assert tool_module is not None, "mount() installed no tool"

    @pytest.mark.asyncio
    async def test_tool_has_name(self, tool_module: Any) -> None:
        assert isinstance(tool_module.name, str), f"name is a {type(tool_module.name).__name__}"
        assert tool_module.name, "name is empty"

    @pytest.mark.asyncio
    async def test_tool_has_description(self, tool_module: Any) -> None:
        assert isinstance(tool_module.description, str), f"description is a {type(tool_module.description).__name__}"
        assert tool_module.description, "description is empty"

    @pytest.mark.asyncio
    async def test_tool_has_execute_method(self, tool_module: Any) -> None:
        assert callable(getattr(tool_module, "execute", None)), "there is no execute()"

    @pytest.mark.asyncio
    async def test_execute_returns_tool_result(self, tool_module: Any) -> None:
        result = await tool_module.execute(dict(_INPUT))
        assert isinstance(result, ToolResult), f"execute() returned {type(result).__name__}"

    @pytest.mark.asyncio
    async def test_tool_result_has_required_fields(self, tool_module: Any) -> None:
        result = await tool_module.execute(dict(_INPUT))
        missing = [name for name in ("success", "output", "error") if not hasattr(result, name)]
        assert not missing, f"the result lacks {missing}"
        assert isinstance(result.success, bool), f"success is a {type(result.success).__name__}"

    @pytest.mark.asyncio
    async def test_invalid_input_returns_error_result(self, tool_module: Any) -> None:
        result = await answer_or_refusal(tool_module.execute({}), "execute({})")
        assert result is None or isinstance(result, ToolResult), f"execute({{}}) returned {type(result).__name__}"


class TestToolBehavior(ToolBehaviorTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.behavioral`."""
