"""Does a provider behave as the contract says?"""

from typing import Any

import pytest

from amplifier_core.message_models import ChatResponse, TextBlock
from amplifier_core.models import ProviderInfo


class ProviderBehaviorTests:
    """Inherit from it in the test suite of a provider."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, provider_module: Any) -> None:
        assert provider_module is not None, "mount() installed no provider"

    @pytest.mark.asyncio
    async def test_get_info_returns_valid_provider_info(self, provider_module: Any) -> None:
        info = provider_module.get_info()
        assert isinstance(info, ProviderInfo), f"get_info() returned {type(info).__name__}"
        assert info.id, "ProviderInfo.id is empty"
        assert info.display_name, "ProviderInfo.display_name is empty"

    @pytest.mark.asyncio
    async def test_list_models_returns_list(self, provider_module: Any) -> None:
        models = await provider_module.list_models()
        assert isinstance(models, list), f"list_models() returned {type(models).__name__}"

    @pytest.mark.asyncio
    async def test_provider_has_name_attribute(self, provider_module: Any) -> None:
        name = provider_module.name
        assert isinstance(name, str), f"name is a {type(name).__name__}"
        assert name, "name is empty"

    @pytest.mark.asyncio
    async def test_parse_tool_calls_returns_list(self, provider_module: Any) -> None:
        response = ChatResponse(content=[TextBlock(text="No tool is needed.")])
        calls = provider_module.parse_tool_calls(response)
        assert isinstance(calls, list), f"parse_tool_calls() returned {type(calls).__name__}"


class TestProviderBehavior(ProviderBehaviorTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.behavioral`."""
