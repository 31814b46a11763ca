"""The plan of a replay: without the modules that reach out of the session by themselves.

A module says so in its `runtime.toml`: with `leave_out` in the table `replay` it is not mounted, and the recorded tools
whose names match one of `tools` stand for those that it would have mounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifierd.exceptions import ReplayError
from amplifierd.plans.module_declarations import declared_by

from .stored_requests import StoredRequest


@dataclass(frozen=True)
class ReplayPlan:
    """A plan that can be mounted without effects, and the patterns of the tools that the record stands in for."""

    plan: dict[str, Any]
    tool_patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Mapping[str, Any], resolver: ModuleSourceResolver | None) -> ReplayPlan:
        left_out: list[Mapping[str, Any]] = []

        def change(entry: PlanEntry) -> Mapping[str, Any] | None:
            said = declared_by(entry, resolver).get("replay")
            if isinstance(said, Mapping) and said.get("leave_out") is True:
                left_out.append(said)
                return None
            return entry.spec

        mounted = MountPlan(dict(plan)).map(change)
        return cls(mounted, tuple(str(pattern) for said in left_out for pattern in said.get("tools") or ()))

    def recorded_tools(self, requests: Iterable[StoredRequest]) -> dict[str, RecordedTool]:
        """Return the tools that stand for those of modules that are left out."""
        specs = {str(spec.get("name")): spec for request in requests for spec in request.tools}
        return {
            name: RecordedTool(spec)
            for name, spec in specs.items()
            if any(fnmatchcase(name, pattern) for pattern in self.tool_patterns)
        }


class RecordedTool:
    """Looks to a model like the tool that was offered then."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.name = str(spec.get("name"))
        self.description = str(spec.get("description") or "")
        self.input_schema: dict[str, Any] = dict(spec.get("parameters") or {})

    async def execute(self, input: dict[str, Any]) -> Any:
        raise ReplayError(f"tool {self.name!r} is a recorded one; no tool runs in a replay")
