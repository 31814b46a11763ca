"""The guards of a session, and what a bundle, a project or a request may say about them: more, never less.

Approval and redaction are this home's own. Whatever does not stand in the home's `config/` can have more denied, asked
about and masked; nothing that it says lets a call pass unasked, shows what would be masked, or puts other code in a
guard's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_core.packages import package_name

APPROVAL = "hooks-approval"
REDACTION = "hooks-redaction"
GUARDS = (REDACTION, APPROVAL)

_RISKY = "high_risk_tools"
_SANDBOX = "sandbox"

Config = Mapping[str, Any]
_Kept = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """What someone wanted of a guard, and does not get: the keys of its configuration, or its `source`."""

    module_id: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module_id} keeps its own {', '.join(self.keys)}"


def guard_of(entry: Any) -> str | None:
    """Return the guard that an entry of a plan means, however it spells the name; None for any other module."""
    module_id = entry.get("module") if isinstance(entry, Mapping) else None
    if not isinstance(module_id, str):
        return None
    return next((guard for guard in GUARDS if package_name(guard) == package_name(module_id)), None)


def own_guards(*plans: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the guards of a home, required: each as the first of these plans has it that does."""
    return [_own_guard(guard, plans) for guard in GUARDS]


def without_guards(entries: Sequence[Any]) -> list[Any]:
    return [entry for entry in entries if guard_of(entry) is None]


def tightened(guard: Mapping[str, Any], wanted: Sequence[Any]) -> tuple[dict[str, Any], list[Refusal]]:
    """Return a guard with what entries of a plan may add to it, and what they may not."""
    result, refusals = dict(guard), []
    for entry in wanted:
        if guard_of(entry) != guard["module"]:
            continue
        config = entry.get("config") or {}
        kept = tightening(str(guard["module"]), config)
        result["config"] = _merged(result.get("config") or {}, kept)
        keys = [*_refused(config, kept), *(["source"] if entry.get("source") else [])]
        if keys:
            refusals.append(Refusal(str(guard["module"]), tuple(keys)))
    return result, refusals


def tightening(module_id: str, config: Any) -> _Kept:
    """Return the part of a guard's configuration that allows nothing and hides nothing."""
    if not isinstance(config, Mapping):
        return {}
    rules = _TIGHTENING[module_id]
    found = ((key, rules[key](value)) for key, value in config.items() if key in rules)
    kept = {key: value for key, value in found if value is not None}
    if module_id == APPROVAL and (risky := _texts(config.get(_RISKY))):  # the list would replace the guard's own
        kept["tools"] = {**(kept.get("tools") or {}), **{name: {"require_approval": True} for name in risky}}
    return kept


def guarded_agents(
    agents: Mapping[str, Any], guards: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[Refusal]]:
    """Return agents whose tools keep their sandbox, and whose guards are the session's with what they add to them."""
    result, refusals = dict(agents), []
    for name, agent in MountPlan({"agents": agents}).overlays():
        result[name], refused = _guarded_agent(agent, guards)
        refusals += refused
    return result, refusals


def _guarded_agent(agent: MountPlan, guards: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[Refusal]]:
    hooks = [entry.spec for entry in agent.entries(section="hooks")]
    waiting = {guard["module"]: tightened(guard, hooks) for guard in guards}
    refusals: list[Refusal] = []

    def change(entry: PlanEntry) -> Mapping[str, Any] | None:
        guard = guard_of(entry.spec)
        if guard is None:
            (spec,), refused = confined([entry.spec]) if entry.section == "tools" else ([entry.spec], [])
        else:  # in another list it would be a second one
            spec, refused = waiting.pop(guard, (None, [])) if entry.section == "hooks" else (None, [])
        refusals.extend(refused)
        return spec

    return agent.map(change), refusals


def confined(tools: Sequence[Any]) -> tuple[list[Any], list[Refusal]]:
    """Return tools of which none leaves its sandbox, and what that refuses."""
    kept, refusals = [], []
    for tool in tools:
        config = tool.get("config") if isinstance(tool, Mapping) else None
        if isinstance(config, Mapping) and config.get(_SANDBOX, "") in (False, "off"):
            tool = {**tool, "config": {key: value for key, value in config.items() if key != _SANDBOX}}
            refusals.append(Refusal(str(tool.get("module")), (_SANDBOX,)))
        kept.append(tool)
    return kept, refusals


def _own_guard(module_id: str, plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for plan in plans:
        entry = MountPlan(plan).find(module_id, section="hooks")
        if entry is not None:
            return {**deepcopy(dict(entry.spec)), "required": True}
    config = {"ask_user_fallback": True} if module_id == APPROVAL else {}
    return {"module": module_id, "config": config, "required": True}


def _refused(config: Any, kept: Config) -> Iterator[str]:
    if isinstance(config, Mapping):
        yield from (str(key) for key, value in config.items() if kept.get(key) != value and key != _RISKY)
    else:
        yield "config"


def _merged(config: Config, more: Config) -> dict[str, Any]:
    """Return a configuration with more of the same: lists and mappings grow, of two times the shorter counts."""
    result = dict(config)
    for key, value in more.items():
        own = result.get(key)
        if isinstance(value, list):
            result[key] = [*(own if isinstance(own, list) else ()), *value]
        elif isinstance(value, Mapping):
            result[key] = _merged(own if isinstance(own, Mapping) else {}, value)
        elif key == "default_timeout":
            result[key] = min(own, value) if isinstance(own, int | float) else value
        else:
            result[key] = value
    return result


# What a key may say, by guard: the part of a value that only tightens, None for nothing of it. A key that is not here
# is the home's own.


def _only(wanted: Any) -> Callable[[Any], Any]:
    return lambda value: wanted if value == wanted and isinstance(value, type(wanted)) else None


def _texts(value: Any) -> list[str] | None:
    found = [text for text in ([value] if isinstance(value, str) else value or ()) if isinstance(text, str)]
    return found or None


def _denials(value: Any) -> list[Any] | None:
    rules = value if isinstance(value, list) else []
    return [rule for rule in rules if isinstance(rule, Mapping) and rule.get("action") == "auto_deny"] or None


def _needing_approval(value: Any) -> dict[str, Any] | None:
    tools = value if isinstance(value, Mapping) else {}
    asked = {name: tool for name, tool in tools.items() if isinstance(tool, Mapping) and tool.get("require_approval")}
    return {name: {"require_approval": True} for name in asked} or None


def _seconds(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _audit(value: Any) -> dict[str, Any] | None:
    audit = value if isinstance(value, Mapping) else {}
    return {key: True for key in ("enabled", "required") if audit.get(key) is True} or None


def _patterns(value: Any) -> list[Any] | None:
    given = value if isinstance(value, list) else [value] if value else []
    return [pattern for pattern in given if isinstance(pattern, str | Mapping)] or None


_TIGHTENING: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    APPROVAL: {
        "rules": _denials,
        "default_action": _only("deny"),
        "default_timeout": _seconds,
        "audit": _audit,
        "policy_driven_only": _only(False),
        "tools": _needing_approval,
        "patterns": _texts,
        "auto_approve": _only(False),
        "remember": _only(False),
        "ask_user_fallback": _only(False),
    },
    REDACTION: {"custom_patterns": _patterns},
}
