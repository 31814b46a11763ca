"""Does an orchestrator behave as the contract says?"""

from typing import Any

import pytest

from amplifier_core.testing import EventRecorder, MockContextManager, MockProvider, MockTool

from .base import answer_or_refusal

Dependencies = tuple[MockContextManager, dict[str, MockProvider], dict[str, MockTool], EventRecorder]


async def _run_turn(orchestrator: Any, prompt: str, dependencies: Dependencies) -> Any:
    context, providers, tools, hooks = dependencies
    return await orchestrator.execute(prompt=prompt, context=context, providers=providers, tools=tools, hooks=hooks)


class OrchestratorBehaviorTests:
    """Inherit from it in the test suite of an orchestrator."""

    @pytest.mark.asyncio
    async def test_mount_succeeds(self, orchestrator_module: Any) -> None:
        assert orchestrator_module is not None, "mount() installed no orchestrator"

    @pytest.mark.asyncio
    async def test_orchestrator_has_execute_method(self, orchestrator_module: Any) -> None:
        assert callable(getattr(orchestrator_module, "execute", None)), "there is no execute()"

    @pytest.mark.asyncio
    async def test_execute_returns_string(self, orchestrator_module: Any, mock_deps: Dependencies) -> None:
        answer = await _run_turn(orchestrator_module, "Hello", mock_deps)
        assert isinstance(answer, str), f"execute() returned {type(answer).__name__}"
        assert answer, "execute() returned an empty string"

    @pytest.mark.asyncio
    async def test_execute_with_empty_prompt(self, orchestrator_module: Any, mock_deps: Dependencies) -> None:
        answer = await answer_or_refusal(
            _run_turn(orchestrator_module, "", mock_deps), "execute() with an empty prompt"
        )
        assert answer is None or isinstance(answer, str), f"execute() returned {type(answer).__name__}"

    @pytest.mark.asyncio
    async def test_orchestrator_uses_provider(self, orchestrator_module: Any, mock_deps: Dependencies) -> None:
        await _run_turn(orchestrator_module, "Hello", mock_deps)
        assert mock_deps[1]["default"].call_count > 0, "the provider was never asked"

    @pytest.mark.asyncio
    async def test_orchestrator_updates_context(self, orchestrator_module: Any, mock_deps: Dependencies) -> None:
        await _run_turn(orchestrator_module, "Hello", mock_deps)
        assert mock_deps[0].add_message.called, "nothing was added to the context"


class TestOrchestratorBehavior(OrchestratorBehaviorTests):
    """Runs in a module's folder without any test file: `pytest --pyargs amplifier_core.validation.behavioral`."""
