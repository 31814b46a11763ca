"""provider-anthropic: Claude models through Anthropic's Messages API."""

from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.providers.vendor import VENDOR_EVENTS, mount_vendor

from .provider import AnthropicProvider
from .response import AnthropicChatResponse
from .transport import CLOUDFLARE_CHALLENGE, THINKING_BINDING_RETRY

__all__ = ["AnthropicChatResponse", "AnthropicProvider", "mount"]

__amplifier_module_type__ = "provider"

EVENTS = (*VENDOR_EVENTS, THINKING_BINDING_RETRY, CLOUDFLARE_CHALLENGE)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the provider; returns the cleanup, which closes the client. Without a key nothing is mounted."""
    return await mount_vendor(
        coordinator,
        lambda add_cost: AnthropicProvider(None, config, coordinator, add_cost),
        events=EVENTS,
    )
