"""The names that others import: each is where the ecosystem looks for it, and one object everywhere."""

import importlib

import pytest

import amplifier_foundation

SUBMODULES = {
    "bundle": "Bundle Origin PreparedBundle BundleModuleResolver BundleModuleSource FOUNDATION_OBSERVABILITY_EVENTS",
    "registry": "BundleRegistry BundleState UpdateInfo load_bundle",
    "exceptions": "BundleError BundleNotFoundError BundleLoadError BundleValidationError BundleDependencyError "
    "RefResolutionError",
    "modules": "ModuleActivator ModuleActivationError",
    "modules.activator": "ModuleActivator ModuleActivationError",
    "sources": "SimpleSourceResolver FileSourceHandler GitSourceHandler HttpSourceHandler ZipSourceHandler "
    "FsspecSourceHandler SourceResolverProtocol resolve ResolvedRef",
    "sources.git": "GitSourceHandler GitCloneTimeoutError",
    "sources.protocol": "SourceStatus SourceResolverProtocol SourceHandlerProtocol SourceHandlerWithStatusProtocol",
    "sources.resolver": "SimpleSourceResolver",
    "sources.file": "FileSourceHandler",
    "sources.http": "HttpSourceHandler",
    "sources.zip": "ZipSourceHandler",
    "sources.fsspec": "FsspecSourceHandler",
    "paths": "get_amplifier_home parse_uri normalize_path construct_agent_path construct_context_path find_files "
    "find_bundle_root",
    "paths.resolution": "parse_uri normalize_path get_amplifier_home ParsedURI ResolvedSource",
    "paths.construction": "construct_agent_path construct_context_path",
    "paths.discovery": "find_files find_bundle_root",
    "mentions": "parse_mentions load_mentions expand_mentions_in_instruction format_context_block "
    "format_directory_listing ContentDeduplicator ContextFile MentionResult MentionResolverProtocol "
    "BaseMentionResolver",
    "mentions.parser": "parse_mentions",
    "mentions.loader": "load_mentions expand_mentions_in_instruction format_context_block",
    "mentions.resolver": "BaseMentionResolver",
    "mentions.deduplicator": "ContentDeduplicator",
    "mentions.models": "ContextFile MentionResult",
    "mentions.protocol": "MentionResolverProtocol",
    "mentions.utils": "format_directory_listing",
    "session.messages": "slice_to_turn",
    "session.diagnosis": "diagnose_transcript",
    "session.store": "load_transcript",
    "session.events": "count_events",
    "session.fork": "fork_session",
    "session.finder": "find_sessions",
    "session.capabilities": "WORKING_DIR_CAPABILITY get_working_dir set_working_dir",
    "spawn_utils": "ProviderPreference ModelResolutionResult apply_provider_preferences "
    "apply_provider_preferences_with_resolution is_glob_pattern resolve_model_pattern PROTECTED_CONFIG_KEYS",
    "io": "read_with_retry write_with_retry read_yaml write_yaml parse_frontmatter",
    "io.files": "read_with_retry write_with_retry write_with_backup",
    "io.yaml": "read_yaml write_yaml",
    "io.frontmatter": "parse_frontmatter",
    "dicts": "deep_merge merge_module_lists get_nested set_nested",
    "dicts.merge": "deep_merge merge_module_lists",
    "dicts.navigation": "get_nested set_nested",
    "cache": "CacheProviderProtocol SimpleCache",
    "cache.simple": "SimpleCache",
    "cache.protocol": "CacheProviderProtocol",
    "updates": "BundleStatus SourceStatus check_bundle_status update_bundle",
    "validator": "BundleValidator ValidationResult validate_bundle validate_bundle_or_raise "
    "validate_bundle_completeness validate_bundle_completeness_or_raise",
    "serialization": "sanitize_for_json sanitize_message",
    "tracing": "generate_sub_session_id",
    "configurator": "SessionConfigurator RuntimeOverlay TransitionResult RUNTIME_SKILL_OVERLAY_CAPABILITY "
    "RUNTIME_CONTEXT_OVERLAY_CAPABILITY",
    "spawn": "register_spawn",
}


PLACES = [(submodule, name) for submodule, names in SUBMODULES.items() for name in names.split()]


@pytest.mark.parametrize(("submodule", "name"), PLACES)
def test_a_name_is_the_same_object_in_its_submodule_and_at_the_top(submodule: str, name: str) -> None:
    there = getattr(importlib.import_module(f"amplifier_foundation.{submodule}"), name)

    if name in amplifier_foundation.__all__:
        assert getattr(amplifier_foundation, name) is there


@pytest.mark.parametrize("name", amplifier_foundation.__all__)
def test_everything_that_is_listed_can_be_imported(name: str) -> None:
    assert getattr(amplifier_foundation, name) is not None
