"""A mount plan as the kernel takes it."""

from typing import Any

from amplifier_core.mount_plan import MountPlan, PlanEntry


def session_plan(mount_plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan for a session: providers that have an `id` are mounted under it. Otherwise the plan itself."""
    plan = MountPlan(mount_plan)
    if not any(_lacks_instance_id(entry) for entry in plan.entries(section="providers")):
        return mount_plan
    return plan.map(_with_instance_id, section="providers")


def _with_instance_id(entry: PlanEntry) -> dict[str, Any]:
    named = {"instance_id": entry.spec["id"]} if _lacks_instance_id(entry) else {}
    return {**entry.spec, **named}


def _lacks_instance_id(entry: PlanEntry) -> bool:
    return bool(entry.spec.get("id")) and not entry.spec.get("instance_id")
