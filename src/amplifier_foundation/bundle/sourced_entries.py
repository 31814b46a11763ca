"""The modules of a plan, or of a bundle, that say where they come from."""

from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_core.mount_plan import MountPlan, PlanEntry


def sourced_entries(plan: Mapping[str, Any]) -> Iterator[PlanEntry]:
    """Yield the entries with a source: the session's, those of the lists, then the same of every agent.

    A session's module that is written by name is left to the kernel, which asks for it when it is mounted.
    """
    whole = MountPlan(plan)
    for part in (whole, *(overlay for _, overlay in whole.overlays())):
        yield from (entry for entry in part.entries() if entry.source and not entry.is_by_name)
