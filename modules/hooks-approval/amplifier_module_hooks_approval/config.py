"""The configuration of the guard: whatever is wrong in it, the guard mounts, with the value that allows least."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from amplifier_kit.config import ModuleConfig, is_required

from .audit import DEFAULT_AUDIT_FILE
from .rules import DEFAULT_RULES, Rule, check_auto_action

__all__ = ["DEFAULT_RULES", "ApprovalSettings", "AuditSettings", "check_auto_action"]

MODULE_ID = "hooks-approval"
DEFAULT_HIGH_RISK_TOOLS = ("write_file", "edit_file", "apply_patch", "bash", "execute", "run")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where decisions are written down, and whether one that cannot be is worth anything."""

    enabled: bool
    file: Path
    required: bool

    @classmethod
    def read(cls, config: ModuleConfig) -> Self:
        nested = ModuleConfig(f"{MODULE_ID} audit", config.mapping("audit", {}), is_guard=True)
        required = nested.boolean("required", False)
        enabled = nested.boolean("enabled", True) or required
        file = Path(nested.text("file", DEFAULT_AUDIT_FILE))
        nested.warn_unknown()
        return cls(enabled, file, required)


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """The configuration, read and checked."""

    rules: tuple[Rule, ...]
    continues_on_timeout: bool
    default_timeout_s: float | None
    audit: AuditSettings
    policy_driven_only: bool
    requires_approval: Mapping[str, bool]
    patterns: tuple[str, ...]
    auto_approve: bool
    high_risk_tools: frozenset[str]
    remember: bool
    ask_user_fallback: bool

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> Self:
        config = ModuleConfig(MODULE_ID, values, is_guard=True)
        settings = cls(
            rules=_rules(config),
            continues_on_timeout=config.choice("default_action", "deny", ("deny", "continue")) == "continue",
            default_timeout_s=config.number("default_timeout", None, above=0),
            audit=AuditSettings.read(config),
            policy_driven_only=config.boolean("policy_driven_only", False),
            requires_approval=_requirements(config),
            patterns=tuple(pattern.casefold() for pattern in config.strings("patterns", [], takes_one=True)),
            auto_approve=config.boolean("auto_approve", False),
            high_risk_tools=frozenset(_high_risk_tools(config)),
            remember=config.boolean("remember", True),
            ask_user_fallback=config.boolean("ask_user_fallback", False),
        )
        if config.accept("enabled_events"):
            logger.warning("%s: enabled_events is ignored, a guard does not overlook events", MODULE_ID)
        config.warn_unknown()
        return settings


def _rules(config: ModuleConfig) -> tuple[Rule, ...]:
    given = config.raw("rules")
    if given is None:
        given = DEFAULT_RULES
    elif not isinstance(given, list):
        given = config.refuse("rules", given, "a list of rules", [])
    rules = [Rule.parse(rule) for rule in given]
    if None in rules and is_required():
        wrong = rules.index(None)
        config.refuse(f"rules[{wrong}]", given[wrong], "a pattern and an action, auto_approve or auto_deny", None)
    return tuple(rule for rule in rules if rule is not None)


def _high_risk_tools(config: ModuleConfig) -> list[str]:
    return config.strings("high_risk_tools", list(DEFAULT_HIGH_RISK_TOOLS), takes_one=True)


def _requirements(config: ModuleConfig) -> dict[str, bool]:
    """Return which tools need approval and which do not; an entry that says neither needs it."""
    found: dict[str, bool] = {}
    for tool, entry in config.mapping("tools", {}).items():
        if not isinstance(entry, Mapping):
            found[tool] = config.refuse(f"tools.{tool}", entry, "a mapping with require_approval", True)
            continue
        nested = ModuleConfig(f"{MODULE_ID} tools.{tool}", entry, is_guard=True)
        if nested.is_set("require_approval"):
            found[tool] = nested.boolean("require_approval", True)
        nested.warn_unknown()
    return found
