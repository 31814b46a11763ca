"""The Amplifier kernel: sessions assembled from modules, and everything a module imports.

The names below are the public surface, with the submodules as attributes; the test kit and the submodules that no agent
needs are imported when one of their names is first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from . import capabilities
from ._version import __version__ as __version__
from ._version import warn_of_other_distributions as _warn_of_other_distributions
from .cancellation import CancellationState, CancellationToken
from .content_models import (
    ContentBlock,
    ContentBlockType,
    TextContent,
    ThinkingContent,
    ToolCallContent,
    ToolResultContent,
)
from .coordinator import ModuleCoordinator
from .hooks import HookRegistry
from .interfaces import (
    ApprovalProvider,
    ApprovalRequest,
    ApprovalResponse,
    ContextManager,
    HookHandler,
    Orchestrator,
    Provider,
    Tool,
)
from .llm_errors import (
    AbortError,
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    InvalidToolCallError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
    StreamError,
)
from .loader import ModuleLoader, ModuleValidationError
from .message_models import (
    ChatRequest,
    ChatResponse,
    Degradation,
    ImageBlock,
    Message,
    ReasoningBlock,
    RedactedThinkingBlock,
    ResponseFormat,
    ResponseFormatJson,
    ResponseFormatJsonSchema,
    ResponseFormatText,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    Usage,
)
from .models import (
    ConfigField,
    ContextInjection,
    HookResult,
    ModelInfo,
    ModuleInfo,
    Pricing,
    ProviderInfo,
    SessionStatus,
    ToolResult,
)
from .session import AmplifierSession
from .utils.retry import RetryConfig, classify_error_message, retry_with_backoff

if TYPE_CHECKING:
    from .testing import (
        EventRecorder,
        MockContextManager,
        MockCoordinator,
        MockProvider,
        MockTool,
        ScriptedOrchestrator,
        TestCoordinator,
        create_test_coordinator,
        wait_for,
    )

__all__ = [
    "AbortError",
    "AccessDeniedError",
    "AmplifierSession",
    "ApprovalProvider",
    "ApprovalRequest",
    "ApprovalResponse",
    "AuthenticationError",
    "CancellationState",
    "CancellationToken",
    "ChatRequest",
    "ChatResponse",
    "ConfigField",
    "ConfigurationError",
    "ContentBlock",
    "ContentBlockType",
    "ContentFilterError",
    "ContextInjection",
    "ContextLengthError",
    "ContextManager",
    "Degradation",
    "EventRecorder",
    "HookHandler",
    "HookRegistry",
    "HookResult",
    "ImageBlock",
    "InvalidRequestError",
    "InvalidToolCallError",
    "LLMError",
    "LLMTimeoutError",
    "Message",
    "MockContextManager",
    "MockCoordinator",
    "MockProvider",
    "MockTool",
    "ModelInfo",
    "ModuleCoordinator",
    "ModuleInfo",
    "ModuleLoader",
    "ModuleValidationError",
    "NetworkError",
    "NotFoundError",
    "Orchestrator",
    "Pricing",
    "Provider",
    "ProviderInfo",
    "ProviderUnavailableError",
    "QuotaExceededError",
    "RateLimitError",
    "ReasoningBlock",
    "RedactedThinkingBlock",
    "ResponseFormat",
    "ResponseFormatJson",
    "ResponseFormatJsonSchema",
    "ResponseFormatText",
    "RetryConfig",
    "ScriptedOrchestrator",
    "SessionStatus",
    "StreamError",
    "TestCoordinator",
    "TextBlock",
    "TextContent",
    "ThinkingBlock",
    "ThinkingContent",
    "Tool",
    "ToolCall",
    "ToolCallBlock",
    "ToolCallContent",
    "ToolResult",
    "ToolResultBlock",
    "ToolResultContent",
    "ToolSpec",
    "Usage",
    "capabilities",
    "classify_error_message",
    "create_test_coordinator",
    "retry_with_backoff",
    "wait_for",
]

_warn_of_other_distributions(__path__[0])

# What applications ask of a kernel with a native engine: there is none, and the classes are these.
RUST_AVAILABLE = False
RustCancellationToken = CancellationToken
RustCoordinator = ModuleCoordinator
RustHookRegistry = HookRegistry
RustSession = AmplifierSession

_TEST_KIT = frozenset(
    {
        "EventRecorder",
        "MockContextManager",
        "MockCoordinator",
        "MockProvider",
        "MockTool",
        "ScriptedOrchestrator",
        "TestCoordinator",
        "create_test_coordinator",
        "wait_for",
    }
)


# Part of the surface, and nothing that a running agent needs: the test kit brings unittest.mock with it.
_LATE_SUBMODULES = frozenset({"cli", "display", "module_sources", "testing"})

# Submodules of the native engine, for modules of other languages.
_NATIVE = frozenset({"_engine", "grpc_adapter", "loader_grpc", "loader_wasm"})


def __getattr__(name: str) -> Any:
    if name in _TEST_KIT:
        return getattr(_import_module(".testing", __name__), name)
    if name in _LATE_SUBMODULES:
        return _import_module(f".{name}", __name__)
    if name in _NATIVE:
        raise AttributeError(
            f"{__name__}.{name} needs a native engine, which this kernel, all in Python, does not have"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_TEST_KIT, *_LATE_SUBMODULES})
