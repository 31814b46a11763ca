"""The contracts of modules."""

from typing import Any

import pytest
from pydantic import ValidationError

from amplifier_core import interfaces, message_models, models
from amplifier_core.approval import ApprovalSystem, ApprovalTimeoutError
from amplifier_core.display import DisplaySystem
from amplifier_core.interfaces import (
    ApprovalProvider,
    ApprovalRequest,
    ApprovalResponse,
    ContextManager,
    HookHandler,
    Orchestrator,
    Provider,
    Tool,
)
from amplifier_core.module_sources import ModuleSource, ModuleSourceResolver

MEMBERS: dict[type, set[str]] = {
    Orchestrator: {"execute"},
    Provider: {"name", "get_info", "list_models", "complete", "parse_tool_calls"},
    Tool: {"name", "description", "execute"},
    ContextManager: {"add_message", "get_messages_for_request", "get_messages", "set_messages", "clear"},
    HookHandler: {"__call__"},
    ApprovalProvider: {"request_approval"},
    ApprovalSystem: {"request_approval"},
    DisplaySystem: {"show_message"},
    ModuleSource: {"resolve"},
    ModuleSourceResolver: {"resolve"},
}


def having(members: set[str]) -> object:
    return type("Anything", (), dict.fromkeys(members, lambda *_: None))()


@pytest.mark.parametrize("protocol", MEMBERS)
def test_an_object_with_the_members_fulfils_the_contract(protocol: type) -> None:
    assert isinstance(having(MEMBERS[protocol]), protocol)


@pytest.mark.parametrize(
    ("protocol", "member"), [(protocol, member) for protocol, members in MEMBERS.items() for member in sorted(members)]
)
def test_an_object_that_lacks_a_member_does_not(protocol: type, member: str) -> None:
    assert not isinstance(having(MEMBERS[protocol] - {member}), protocol)


def test_a_tool_may_offer_a_schema_but_need_not() -> None:
    class Documented:
        name, description, input_schema = "echo", "Says it again.", {"type": "object"}

        async def execute(self, input: dict[str, Any]) -> models.ToolResult:
            return models.ToolResult(output=input)

    assert isinstance(Documented(), Tool)


@pytest.mark.parametrize("name", ["ChatRequest", "ChatResponse", "ToolCall"])
def test_messages_can_be_imported_beside_the_contracts(name: str) -> None:
    assert getattr(interfaces, name) is getattr(message_models, name)


@pytest.mark.parametrize("name", ["HookResult", "ModelInfo", "ProviderInfo", "ToolResult"])
def test_models_can_be_imported_beside_the_contracts(name: str) -> None:
    assert getattr(interfaces, name) is getattr(models, name)


def test_an_approval_request_waits_for_ever_by_default() -> None:
    request = ApprovalRequest(tool_name="bash", action="run", risk_level="whatever the hook calls it")

    assert (request.details, request.timeout) == ({}, None)


@pytest.mark.parametrize("timeout", [0, -1, -0.5])
def test_an_approval_request_needs_time(timeout: float) -> None:
    with pytest.raises(ValidationError, match=r"Timeout must be positive or None \(infinite wait\)"):
        ApprovalRequest(tool_name="bash", action="run", risk_level="high", timeout=timeout)


def test_an_approval_is_neither_explained_nor_remembered_by_default() -> None:
    assert ApprovalResponse(approved=True).model_dump() == {"approved": True, "reason": None, "remember": False}


def test_an_approval_timeout_is_its_own_kind_of_error() -> None:
    assert ApprovalTimeoutError.__bases__ == (Exception,)


def test_a_tool_that_inherits_the_contract_has_an_empty_schema_unless_it_has_one() -> None:
    class Plain(Tool):
        name, description = "plain", "Has no schema."  # type: ignore[assignment]

        async def execute(self, input: dict[str, Any]) -> models.ToolResult:
            return models.ToolResult(output=input)

    class Documented(Plain):
        input_schema = {"type": "object"}  # noqa: RUF012

    class Answering(Tool):
        name, description = "answering", "Is asked for its schema."  # type: ignore[assignment]

        def get_schema(self) -> dict[str, Any]:
            return {"type": "object"}

        async def execute(self, input: dict[str, Any]) -> models.ToolResult:
            return models.ToolResult(output=input)

    assert (Plain().input_schema, Documented().input_schema) == ({}, {"type": "object"})  # type: ignore[attr-defined]
    assert not hasattr(Answering(), "input_schema")
    assert isinstance(having(MEMBERS[Tool]), Tool)
