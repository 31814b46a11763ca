"""A mount plan as the kernel takes it."""

from typing import Any


def session_plan(mount_plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan for a session: providers that have an `id` are mounted under it. Otherwise the plan itself."""
    providers = mount_plan.get("providers")
    if not isinstance(providers, list) or not any(_lacks_instance_id(entry) for entry in providers):
        return mount_plan
    named = [{**entry, "instance_id": entry["id"]} if _lacks_instance_id(entry) else entry for entry in providers]
    return {**mount_plan, "providers": named}


def _lacks_instance_id(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("id")) and not entry.get("instance_id")
