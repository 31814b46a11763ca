"""context-list: keeps every message and hands all of them to every request.

That is enough for a short conversation. `docs/contracts/context.md` shows a context manager that keeps to a budget.
"""

from typing import Any

from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "context"


class ListContext:
    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        if not message.get("role"):
            raise ValueError(f"a message needs a role, got {sorted(message)}")
        self._messages.append(dict(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        return list(self._messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self._messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self._messages = [dict(message) for message in messages]

    async def clear(self) -> None:
        self._messages.clear()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("context", ListContext())
