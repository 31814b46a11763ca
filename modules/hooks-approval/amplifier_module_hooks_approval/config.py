"""The configuration of the guard: whatever is wrong in it, the guard mounts, with the value that allows least."""

import json
import logging
import os
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from amplifier_core.interfaces import ApprovalRequest, ApprovalResponse
from amplifier_core.utils import json_safe
from amplifier_core.utils.timestamps import utc_timestamp
from amplifier_kit.config import ModuleConfig, is_required
from amplifier_kit.files import LineFile

from .commands import BASH, command_of, is_simple, segments, trimmed

logger = logging.getLogger(__name__)

# Rules that answer for a person: commands that are always fine, commands that never are.


Action = Literal["auto_approve", "auto_deny"]

DEFAULT_RULES: list[dict[str, str]] = [
    {"pattern": "ls", "action": "auto_approve", "description": "list the current directory"},
    {"pattern": "ls *", "action": "auto_approve", "description": "list a directory"},
    {"pattern": "pwd", "action": "auto_approve", "description": "show the current directory"},
    {"pattern": "echo", "action": "auto_approve", "description": "print nothing"},
    {"pattern": "echo *", "action": "auto_approve", "description": "print text"},
]

# Case is ignored for plain letters only: other alphabets have letters that fold to these, and name other programs.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do when a tool is given something that looks like `pattern`, in which only `*` is special."""

    pattern: str
    action: Action
    tool: str = BASH

    @classmethod
    def parse(cls, raw: Any) -> Self | None:
        """Return the rule, None (and an error in the log) if it is not one."""
        match raw:
            case {"pattern": str(pattern), "action": ("auto_approve" | "auto_deny") as action} if pattern.strip():
                tool = raw.get("tool")
                if tool is None or (isinstance(tool, str) and tool):
                    return cls(pattern, action, tool or BASH)
        logger.error(
            "hooks-approval: the rule %r is skipped; a rule has a pattern and an action, auto_approve or auto_deny", raw
        )
        return None

    def denies(self, text: str) -> bool:
        """True if the text, or a part of it between separators, is what the rule denies."""
        pattern = _folded(self.pattern)
        return self.action == "auto_deny" and any(_matches(pattern, _folded(part)) for part in segments(text))

    def approves_file(self, inner: str) -> bool:
        """True if the rule approves a file of the working directory, written `./src/app.py`; `./*` means any."""
        return self.action == "auto_approve" and self.pattern.startswith("./") and _matches(self.pattern, inner)

    def approves(self, text: str) -> bool:
        """True if the text is a simple command that the rule approves."""
        if self.action != "auto_approve" or "*" in self.pattern.split()[0] or not is_simple(text):
            return False
        return _matches(self.pattern.strip().translate(_LOWER), trimmed(text).translate(_LOWER))


def check_auto_action(
    rules: Iterable[Any], tool_name: str, arguments: Any, *, working_dir: Path | None = None
) -> Action | None:
    """Return what the rules say about a call: denials come before approvals, None is for a person to decide."""
    parsed = (rule if isinstance(rule, Rule) else Rule.parse(rule) for rule in rules)
    concerned = [rule for rule in parsed if rule is not None and rule.tool == tool_name]
    if not concerned:
        return None
    given = arguments if isinstance(arguments, Mapping) else {}
    text, inner = _subject(tool_name, given), _inner_path(tool_name, given, working_dir)
    if any(rule.denies(text) or (inner and rule.denies(inner)) for rule in concerned):
        return "auto_deny"
    is_fine = any(rule.approves(text) or (inner and rule.approves_file(inner)) for rule in concerned)
    return "auto_approve" if is_fine else None


def _inner_path(tool_name: str, arguments: Mapping[str, Any], working_dir: Path | None) -> str:
    """Return the file that a call names, from the working directory on; empty for one that lies elsewhere."""
    path = _path_of(arguments)
    if working_dir is None or not path or tool_name == BASH or command_of(arguments) or path.startswith(("@", "~")):
        return ""
    base = os.path.realpath(working_dir)
    try:
        real = os.path.realpath(os.path.join(base, path))  # noqa: PTH118 - a text that may be no path
    except ValueError:
        return ""
    return f"./{os.path.relpath(real, base)}" if real.startswith(base.rstrip(os.sep) + os.sep) else ""


def _path_of(arguments: Mapping[str, Any]) -> str:
    return next((arguments[key] for key in ("file_path", "path") if isinstance(arguments.get(key), str)), "")


def _subject(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """Return the text that rules look at: the command, for other tools else the path."""
    command = command_of(arguments)
    path = _path_of(arguments)
    return command if command or tool_name == BASH or not path else os.path.normpath(path)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _matches(pattern: str, text: str) -> bool:
    """True if the whole text matches; in linear time, whatever the pattern."""
    first, *others = pattern.split("*")
    if not others:
        return text == first
    *middle, last = others
    position, end = len(first), len(text) - len(last)
    if position > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


__all__ = ["DEFAULT_RULES", "ApprovalSettings", "AuditSettings", "check_auto_action"]

MODULE_ID = "hooks-approval"
DEFAULT_HIGH_RISK_TOOLS = ("write_file", "edit_file", "apply_patch", "bash", "execute", "run")


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


DEFAULT_AUDIT_FILE = "~/.amplifier/audit/approvals.jsonl"

Scrub = Callable[[Any], Any]


def audit_log(
    request: ApprovalRequest,
    response: ApprovalResponse,
    audit_file: Path | str | None = None,
    *,
    session_id: str | None = None,
    tool_call_id: str | None = None,
    source: str = "provider",
    scrub: Scrub | None = None,
) -> bool:
    """Append a decision to the audit file; False, and an error in the log, when that is not possible.

    `scrub` masks secrets in what the tool was asked to do.
    """
    try:
        line = {
            "timestamp": utc_timestamp(),
            "session_id": session_id,
            "tool_call_id": tool_call_id,
            "source": source,
            "request": _described(request, scrub),
            "response": {"approved": response.approved, "reason": response.reason, "remember": response.remember},
        }
        file = LineFile(Path(audit_file or DEFAULT_AUDIT_FILE).expanduser())
        try:
            file.append(json.dumps(json_safe(line), ensure_ascii=False) + "\n")
        finally:
            file.close()
    except Exception:
        logger.exception("hooks-approval: the decision on %s could not be written to the audit file", request.tool_name)
        return False
    return True


def _described(request: ApprovalRequest, scrub: Scrub | None) -> dict[str, Any]:
    action, details = request.action, json_safe(request.details)
    if scrub is not None:
        try:
            action, details = scrub(action), scrub(details)
        except Exception as exc:  # noqa: BLE001 - its text and traceback could show what must not be shown
            message = "hooks-approval: details are left out of the audit file, they could not be scrubbed (%s)"
            logger.warning(message, type(exc).__name__)
            action, details = f"Execute {request.tool_name}", {}
    return {
        "tool_name": request.tool_name,
        "action": action,
        "risk_level": request.risk_level,
        "details": details,
        "timeout": request.timeout,
    }
