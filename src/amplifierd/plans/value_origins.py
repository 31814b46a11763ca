"""Where the values of a session's plan come from: of its own person, or from elsewhere, and then from which file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.mount_plan import MODULE_SECTIONS
from amplifierd.builds.build import Build
from amplifierd.builds.origins import key_path, origin_at
from amplifierd.documents.document import module_identity

from .foreign_values import Steps

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle

_REQUEST = "the project or the request"
_NOTHING: Any = object()


def own_place(steps: Steps, value: Any) -> None:
    """Say of every value that it is the person's own: of a plan that they wrote themselves."""


def requested_place(steps: Steps, value: Any) -> str:
    """Say of every value that it comes from a request."""
    return _REQUEST


class OfBuild:
    """The origins of a compiled profile's plan; `is_fetched` says whether a collection comes from elsewhere.

    A value that the build does not have at its place was laid over it. `agent` is the one that the session works as:
    its own part of the plan counts as well.
    """

    def __init__(self, build: Build, is_fetched: Callable[[str], bool], agent: str | None = None) -> None:
        self._build, self._is_fetched, self._agent = build, is_fetched, agent

    def for_agent(self, agent: str) -> OfBuild:
        return OfBuild(self._build, self._is_fetched, agent)

    def __call__(self, steps: Steps, value: Any) -> str | None:
        place = _REQUEST
        for above in ((), *([("agents", self._agent)] if self._agent else [])):
            path = (*above, *steps)
            if _value_at(self._plan, path) == value:
                origin = origin_at(self._origins, path)["origin"]
                if self._is_own(origin):
                    return None
                place = f"{origin['profile']} line {origin['line']}" if origin["line"] else str(origin["profile"])
        return place

    def _is_own(self, origin: Mapping[str, Any]) -> bool:
        file = str(origin["file"] or "")
        if not file or file.startswith("config/"):
            return True
        return not self._is_fetched(str(origin["profile"]).partition("/")[0])

    @cached_property
    def _plan(self) -> dict[str, Any]:
        return self._build.plan()

    @cached_property
    def _origins(self) -> dict[str, Any]:
        return self._build.origins()


class OfBundle:
    """The origins of a bundle's plan: what lies in the cache was fetched."""

    def __init__(self, bundle: Bundle, cache_dir: Path, agent: str | None = None) -> None:
        self._bundle, self._cache_dir, self._agent = bundle, cache_dir, agent

    def for_agent(self, agent: str) -> OfBundle:
        return OfBundle(self._bundle, self._cache_dir, agent)

    def __call__(self, steps: Steps, value: Any) -> str | None:
        place = _REQUEST
        for above in ((), *([("agents", self._agent)] if self._agent else [])):
            try:
                known = self._bundle.explain(key_path((*above, *steps)))
            except KeyError:
                continue
            if known["value"] == value:
                file, line = known["origin"]["file"], known["origin"]["line"]
                if file is not None and not Path(file).resolve().is_relative_to(self._cache_dir.resolve()):
                    return None
                name = known["origin"]["bundle"] or "the bundle"
                place = f"{name} line {line}" if line else str(name)
        return place


def _value_at(plan: Any, steps: Steps) -> Any:
    """Return the value at some steps, which go into lists by the identity of modules and by position."""
    found = plan
    for index, step in enumerate(steps):
        if isinstance(found, Mapping):
            found = found.get(step, _NOTHING)
        elif isinstance(found, list) and steps[index - 1] in MODULE_SECTIONS:
            section = steps[index - 1]
            named = (each for each in found if isinstance(each, Mapping) and module_identity(section, each) == step)
            found = next(named, _NOTHING)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return _NOTHING
    return found
