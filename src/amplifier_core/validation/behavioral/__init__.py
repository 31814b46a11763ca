"""Test classes for module repositories: does the module behave as its type requires?

    from amplifier_core.validation.behavioral import ToolBehaviorTests

    class TestBehavior(ToolBehaviorTests): ...

A test that does not fit a module is overridden by name.
"""

from .test_context import ContextBehaviorTests
from .test_hook import HookBehaviorTests
from .test_orchestrator import OrchestratorBehaviorTests
from .test_provider import ProviderBehaviorTests
from .test_tool import ToolBehaviorTests

__all__ = [
    "ContextBehaviorTests",
    "HookBehaviorTests",
    "OrchestratorBehaviorTests",
    "ProviderBehaviorTests",
    "ToolBehaviorTests",
]
