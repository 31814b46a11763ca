"""Test classes for module repositories: does the module have the shape its type requires?

from amplifier_core.validation.structural import ToolStructuralTests

class TestStructure(ToolStructuralTests): ...
"""

from amplifier_core.validation.base import check_on_session_ready

from .test_context import ContextStructuralTests
from .test_hook import HookStructuralTests
from .test_orchestrator import OrchestratorStructuralTests
from .test_provider import ProviderStructuralTests
from .test_tool import ToolStructuralTests

__all__ = [
    "ContextStructuralTests",
    "HookStructuralTests",
    "OrchestratorStructuralTests",
    "ProviderStructuralTests",
    "ToolStructuralTests",
    "check_on_session_ready",
]
