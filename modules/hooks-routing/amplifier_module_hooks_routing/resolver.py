"""Which model of this session serves a role, and why the others before it do not."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from amplifier_core.boundary import Boundary, settle
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import provider_name
from amplifier_kit.mounted_providers import MountedProvider, best_match, find_provider, is_pattern
from amplifier_system.model_choice import ProviderPreference

from .matrix_loader import Candidate, Matrix, MatrixError, matrix_files, read_matrix

Verdict = Literal["usable", "not mounted", "no key", "no model matches", "listing failed"]

PRERESOLVED = "preresolved_models"

logger = logging.getLogger(__name__)

_LISTING_S = 10.0


@dataclass(frozen=True)
class Judged:
    """A candidate, what became of it here, and the model that it stands for."""

    candidate: Candidate
    verdict: Verdict
    why: str = ""
    provider: str | None = None
    model: str | None = None

    def to_dict(self) -> dict[str, Any]:
        named = {"provider": self.provider or self.candidate.provider, "model": self.model or self.candidate.model}
        return {**named, "config": dict(self.candidate.config), "verdict": self.verdict, "why": self.why}


class MatrixModelRoleResolver:
    """Serves the roles of one matrix from the providers that are mounted; the capability `model_role_resolver`."""

    def __init__(
        self,
        matrix: Matrix,
        coordinator: Any,
        listings: dict[str, list[str]] | None = None,
        directories: Sequence[Path] = (),
    ) -> None:
        self.matrix = matrix
        self._directories = tuple(directories)
        self._coordinator = coordinator
        self.listings: dict[str, list[str]] = {} if listings is None else listings
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def name(self) -> str:
        return self.matrix.name

    @property
    def known_roles(self) -> tuple[str, ...]:
        return tuple(self.matrix.roles)

    async def resolve(self, role: str | Sequence[str]) -> list[ProviderPreference]:
        """Return all models that can serve the first of the roles that is served, best first; none where none is."""
        for each in [role] if isinstance(role, str) else role:
            judged = await self.judge(each)
            usable = [
                ProviderPreference(one.provider, one.model, dict(one.candidate.config))
                for one in judged
                if one.verdict == "usable" and one.provider and one.model
            ]
            if usable:
                return usable
        return []

    async def matrices(self) -> list[dict[str, Any]]:
        """Return every matrix that could be used: its name, what it is for, and its file; or why it cannot."""
        return await asyncio.to_thread(self._matrices)

    def _matrices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for name, file in sorted(matrix_files(self._directories).items()):
            try:
                told = {"description": read_matrix(file).description, "problem": None}
            except MatrixError as error:
                told = {"description": "", "problem": str(error)}
            found.append({"name": name, **told, "source": str(file)})
        return found

    async def check(self, file: str) -> list[str]:
        """Return what is wrong with a matrix in a file."""
        try:
            await asyncio.to_thread(read_matrix, Path(file))
        except MatrixError as error:
            return [str(error)]
        return []

    async def explain(self, role: str) -> list[dict[str, Any]]:
        """Return every candidate of a role with its `verdict` and `why`."""
        return [one.to_dict() for one in await self.judge(role)]

    async def judge(self, role: str) -> list[Judged]:
        known = self.matrix.roles.get(role)
        return [await self._judge(candidate) for candidate in known.candidates] if known is not None else []

    async def _judge(self, candidate: Candidate) -> Judged:
        found = find_provider(self._coordinator, candidate.provider)
        if found is None:
            return self._missing(candidate)
        if not is_pattern(candidate.model):
            return Judged(candidate, "usable", "", found.key, candidate.model)
        models = await self._models(found)
        if models is None:
            return Judged(candidate, "listing failed", f"{found.key} does not list its models", found.key)
        model = best_match(candidate.model, models)
        if model is None:
            return Judged(candidate, "no model matches", f"{found.key} has {len(models)} others", found.key)
        return Judged(candidate, "usable", f"the newest that matches {candidate.model}", found.key, model)

    def _missing(self, candidate: Candidate) -> Judged:
        """Say why a provider is not there: the plan does not name it, or it could not be mounted."""
        short = provider_name(candidate.provider)
        plan = getattr(self._coordinator, "config", None)
        entries = MountPlan(plan).entries(section="providers") if isinstance(plan, Mapping) else ()
        named = [each for each in entries if short in (provider_name(each.module_id), each.instance_id)]
        if not named:
            return Judged(candidate, "not mounted", "the session's plan does not name it")
        modules = {each.module_id for each in named}
        status = getattr(getattr(self._coordinator, "session", None), "status", None)
        failures = [one for one in getattr(status, "load_failures", None) or () if isinstance(one, Mapping)]
        errors = [str(one.get("error")) for one in failures if one.get("module_id") in modules]
        reason = (errors or ["it was not mounted"])[0].strip()
        is_key = "key" in reason.lower() or "credential" in reason.lower()
        return Judged(candidate, "no key" if is_key else "not mounted", reason.splitlines()[-1].strip())

    async def _models(self, found: MountedProvider) -> list[str] | None:
        """Return the models that a provider lists, asked once in a session and its children; None where it fails."""
        async with self._locks.setdefault(found.key, asyncio.Lock()):
            if found.key in self.listings:
                return self.listings[found.key]
            with Boundary(logger, "the models of %s cannot be listed: %s", found.key):
                async with asyncio.timeout(_LISTING_S):
                    listed = await settle(found.provider.list_models())
                names = [each if isinstance(each, str) else str(getattr(each, "id", each)) for each in listed]
                self.listings[found.key] = names
                return names
        return None
