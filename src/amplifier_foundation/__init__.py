"""Bundles: agents described in markdown and YAML, shared through git, composed, prepared and run on the kernel."""

from typing import TYPE_CHECKING

from amplifier_system.distributions import refuse_mixed_installation
from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .bundle import Bundle
    from .cache import CacheProviderProtocol, DiskCache, SimpleCache
    from .configurator import (
        RUNTIME_CONTEXT_OVERLAY_CAPABILITY,
        RUNTIME_SKILL_OVERLAY_CAPABILITY,
        RuntimeOverlay,
        SessionConfigurator,
        TransitionResult,
    )
    from .dicts import deep_merge, get_nested, merge_module_lists, set_nested
    from .exceptions import (
        BundleDependencyError,
        BundleError,
        BundleLoadError,
        BundleNotFoundError,
        BundleValidationError,
    )
    from .io import parse_frontmatter, read_with_retry, read_yaml, write_with_backup, write_with_retry, write_yaml
    from .mentions import (
        BaseMentionResolver,
        ContentDeduplicator,
        ContextFile,
        MentionResolverProtocol,
        MentionResult,
        expand_mentions_in_instruction,
        load_mentions,
        parse_mentions,
    )
    from .observability import bridge_child_cost, inject_additional_events, sum_cost_usd
    from .paths import (
        ParsedURI,
        construct_agent_path,
        construct_context_path,
        find_bundle_root,
        find_files,
        normalize_path,
        parse_uri,
    )
    from .registry import BundleRegistry, BundleState, UpdateInfo, load_bundle
    from .serialization import sanitize_for_json, sanitize_message
    from .session.capabilities import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir
    from .sources import (
        SimpleSourceResolver,
        SourceHandlerProtocol,
        SourceHandlerWithStatusProtocol,
        SourceResolverProtocol,
        SourceStatus,
    )
    from .spawn_utils import (
        ModelResolutionResult,
        ProviderPreference,
        apply_provider_preferences,
        apply_provider_preferences_with_resolution,
        is_glob_pattern,
        resolve_model_pattern,
    )
    from .tracing import generate_sub_session_id
    from .updates import BundleStatus, check_bundle_status, update_bundle
    from .validator import BundleValidator, ValidationResult, validate_bundle, validate_bundle_or_raise

__all__ = [
    "RUNTIME_CONTEXT_OVERLAY_CAPABILITY",
    "RUNTIME_SKILL_OVERLAY_CAPABILITY",
    "WORKING_DIR_CAPABILITY",
    "BaseMentionResolver",
    "Bundle",
    "BundleDependencyError",
    "BundleError",
    "BundleLoadError",
    "BundleNotFoundError",
    "BundleRegistry",
    "BundleState",
    "BundleStatus",
    "BundleValidationError",
    "BundleValidator",
    "CacheProviderProtocol",
    "ContentDeduplicator",
    "ContextFile",
    "DiskCache",
    "MentionResolverProtocol",
    "MentionResult",
    "ModelResolutionResult",
    "ParsedURI",
    "ProviderPreference",
    "RuntimeOverlay",
    "SessionConfigurator",
    "SimpleCache",
    "SimpleSourceResolver",
    "SourceHandlerProtocol",
    "SourceHandlerWithStatusProtocol",
    "SourceResolverProtocol",
    "SourceStatus",
    "TransitionResult",
    "UpdateInfo",
    "ValidationResult",
    "apply_provider_preferences",
    "apply_provider_preferences_with_resolution",
    "bridge_child_cost",
    "check_bundle_status",
    "construct_agent_path",
    "construct_context_path",
    "deep_merge",
    "expand_mentions_in_instruction",
    "find_bundle_root",
    "find_files",
    "generate_sub_session_id",
    "get_nested",
    "get_working_dir",
    "inject_additional_events",
    "is_glob_pattern",
    "load_bundle",
    "load_mentions",
    "merge_module_lists",
    "normalize_path",
    "parse_frontmatter",
    "parse_mentions",
    "parse_uri",
    "read_with_retry",
    "read_yaml",
    "resolve_model_pattern",
    "sanitize_for_json",
    "sanitize_message",
    "set_nested",
    "set_working_dir",
    "sum_cost_usd",
    "update_bundle",
    "validate_bundle",
    "validate_bundle_or_raise",
    "write_with_backup",
    "write_with_retry",
    "write_yaml",
]

refuse_mixed_installation()  # the kernel, too, may be another's

__getattr__ = lazy_names(
    __name__,
    {
        ".bundle": ("Bundle",),
        ".cache": ("CacheProviderProtocol", "DiskCache", "SimpleCache"),
        ".configurator": (
            "RUNTIME_CONTEXT_OVERLAY_CAPABILITY",
            "RUNTIME_SKILL_OVERLAY_CAPABILITY",
            "RuntimeOverlay",
            "SessionConfigurator",
            "TransitionResult",
        ),
        ".dicts": ("deep_merge", "get_nested", "merge_module_lists", "set_nested"),
        ".exceptions": (
            "BundleDependencyError",
            "BundleError",
            "BundleLoadError",
            "BundleNotFoundError",
            "BundleValidationError",
        ),
        ".io": (
            "parse_frontmatter",
            "read_with_retry",
            "read_yaml",
            "write_with_backup",
            "write_with_retry",
            "write_yaml",
        ),
        ".mentions": (
            "BaseMentionResolver",
            "ContentDeduplicator",
            "ContextFile",
            "MentionResolverProtocol",
            "MentionResult",
            "expand_mentions_in_instruction",
            "load_mentions",
            "parse_mentions",
        ),
        ".observability": ("bridge_child_cost", "inject_additional_events", "sum_cost_usd"),
        ".paths": (
            "ParsedURI",
            "construct_agent_path",
            "construct_context_path",
            "find_bundle_root",
            "find_files",
            "normalize_path",
            "parse_uri",
        ),
        ".registry": ("BundleRegistry", "BundleState", "UpdateInfo", "load_bundle"),
        ".serialization": ("sanitize_for_json", "sanitize_message"),
        ".session.capabilities": ("WORKING_DIR_CAPABILITY", "get_working_dir", "set_working_dir"),
        ".sources": (
            "SimpleSourceResolver",
            "SourceHandlerProtocol",
            "SourceHandlerWithStatusProtocol",
            "SourceResolverProtocol",
            "SourceStatus",
        ),
        ".spawn_utils": (
            "ModelResolutionResult",
            "ProviderPreference",
            "apply_provider_preferences",
            "apply_provider_preferences_with_resolution",
            "is_glob_pattern",
            "resolve_model_pattern",
        ),
        ".tracing": ("generate_sub_session_id",),
        ".updates": ("BundleStatus", "check_bundle_status", "update_bundle"),
        ".validator": ("BundleValidator", "ValidationResult", "validate_bundle", "validate_bundle_or_raise"),
    },
)
