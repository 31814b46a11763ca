"""The providers of a session by the names that preferences and matrices use, and the models that patterns mean."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_core.packages import provider_name
from amplifier_kit.mounting import find_mounted

_DATE = re.compile(r"[-_@]?(?:20\d{2}-?\d{2}-?\d{2})$")
_DIGITS = re.compile(r"(\d+)")


class MountedProvider(NamedTuple):
    """A provider and the key that it is mounted under."""

    key: str
    provider: Any


def mounted_providers(coordinator: Any) -> dict[str, Any]:
    mounted = find_mounted(coordinator, "providers")
    return dict(mounted) if isinstance(mounted, Mapping) else {}


def find_provider(coordinator: Any, name: str) -> MountedProvider | None:
    """Return the provider of that name: mounted under it, with or without `provider-`, else an instance of its module.

    Of several instances the one with the lowest `config.priority` counts; one that names none has 0.
    """
    mounted = mounted_providers(coordinator)
    short = provider_name(name)
    for key in (name, *mounted):
        if key in mounted and (key == name or provider_name(key) == short):
            return MountedProvider(key, mounted[key])
    plan = getattr(coordinator, "config", None)
    entries = MountPlan(plan).entries(section="providers") if isinstance(plan, Mapping) else ()
    instances = [entry for entry in entries if provider_name(entry.module_id) == short and _key_of(entry) in mounted]
    if not instances:
        return None
    key = _key_of(min(instances, key=_priority))
    return MountedProvider(key, mounted[key])


def _key_of(entry: PlanEntry) -> str:
    return str(entry.instance_id or entry.spec.get("id") or entry.module_id)


def _priority(entry: PlanEntry) -> float:
    given = entry.config.get("priority")
    return given if isinstance(given, int | float) else 0


def is_pattern(model: str) -> bool:
    return any(sign in model for sign in "*?[")


def best_match(pattern: str, models: Iterable[Any]) -> str | None:
    """Return the newest of the models that a pattern means, None when it means none."""
    names = [model if isinstance(model, str) else str(getattr(model, "id", model)) for model in models]
    found = [name for name in names if fnmatchcase(name.lower(), pattern.lower())]
    return max(found, key=version_key) if found else None


def version_key(model: str) -> tuple[Any, ...]:
    """Return what models are ordered by: runs of digits as numbers, without a date at the end; a shorter name is later.

    So `sonnet-10` comes after `sonnet-9`, and `sonnet-4` after `sonnet-4-20250101`.
    """
    bare = _DATE.sub("", model.lower())
    parts = tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _DIGITS.split(bare) if part)
    return parts, -len(model)
