"""A bundle whose files have moved: a new commit of a repository lies in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.local_sources import path_of_source
from amplifier_core.mount_plan import MountPlan, PlanEntry

if TYPE_CHECKING:
    from .model import Bundle


def relocate(bundle: Bundle, old: Path, new: Path) -> None:
    """Have a bundle name the files in `new` that it named in `old`: its modules, context files and namespaces.

    What was read already, such as the instruction, stays as it is.
    """

    def moved(path: Path) -> Path:
        return new / path.relative_to(old) if path.is_relative_to(old) else path

    def with_source(entry: PlanEntry) -> Mapping[str, Any]:
        place = path_of_source(entry.source)
        if entry.is_by_name or place is None or not place.is_relative_to(old):
            return entry.spec
        return {**entry.spec, "source": str(moved(place))}

    plan = bundle.view().map(with_source)
    bundle.session, bundle.providers = plan["session"], plan["providers"]
    bundle.tools, bundle.hooks = plan["tools"], plan["hooks"]
    bundle.agents = {
        name: MountPlan(agent).map(with_source) if isinstance(agent, Mapping) else agent
        for name, agent in bundle.agents.items()
    }
    bundle.context = {name: moved(path) for name, path in bundle.context.items()}
    bundle.source_base_paths = {name: moved(path) for name, path in bundle.source_base_paths.items()}
    bundle.base_path = moved(bundle.base_path) if bundle.base_path else None
    bundle._file = moved(bundle._file) if bundle._file else None
