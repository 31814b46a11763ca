"""Which mount plan a command means, from what was typed and set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.registry import BundleRegistry
from amplifier_foundation.sources import FileReference, NameReference, parse_reference
from amplifier_system.urls import shown
from amplifierd.builds.build import Build
from amplifierd.builds.origins import replaced_sources
from amplifierd.builds.resources import without_source
from amplifierd.home import Home
from amplifierd.identifiers import ProfileId
from amplifierd.session_defaults import default_profile

from .config import ResolvedConfig, resolve_app_config
from .failures import UsageError, did_you_mean
from .options import Invocation
from .project_overlay import project_overlay
from .session_choice import find_profile, read_plan_file

_FILES = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class ChosenPlan:
    """A plan, portable where it comes from a profile. `name` says what it is the plan of, `build` what it is from.

    `replaced` has the sources that the plan's author named, by module, where the settings put installed modules in
    their place.
    """

    name: str
    plan: dict[str, Any]
    build: Build | None = None
    replaced: Mapping[str, str] = field(default_factory=dict)


async def chosen_plan(
    home: Home,
    invocation: Invocation,
    typed: str | None = None,
    *,
    bundle: str | None = None,
    file: Path | None = None,
    config: ResolvedConfig | None = None,
) -> ChosenPlan:
    """Return the plan of a file, a profile or a bundle; by default the one that new sessions have.

    With `config`, a profile's plan is the one of new sessions in the project that it trusts.

    Raises:
        UsageError: both or something unknown is named.
    """
    named = [str(each) for each in (typed, bundle, file) if each is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} each name an agent", hint="use one of them")
    file = Path(typed) if typed is not None and _is_file(typed) else file
    if file is not None:
        return ChosenPlan(str(file), read_plan_file(file))
    source = {"bundle": bundle} if bundle else {"profile": typed} if typed else {}
    source = source or resolve_app_config(home=invocation.home).source()
    if "bundle" in source:
        return await _of_bundle(home, source["bundle"])
    return await _of_profile(home, await chosen_profile(home, source.get("profile")), config)


async def chosen_profile(home: Home, typed: str | None) -> ProfileId:
    """Return a profile by what was typed of its name; by default the home's."""
    if typed is not None:
        return await find_profile(home, typed)
    return await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=os.environ)


async def _of_profile(home: Home, profile_id: ProfileId, config: ResolvedConfig | None) -> ChosenPlan:
    build = await home.profiles.ensure(profile_id)
    changes = project_overlay(config, profile_id) if config is not None else {}
    plan = await home.plans.generate(build, overrides=changes or None)
    return ChosenPlan(str(profile_id), plan, build, replaced_sources(build.origins()))


async def find_bundle(home: Home, typed: str, registry: BundleRegistry | None = None) -> Bundle:
    """Return a registered bundle, or the one of a source, with all it includes and what its agents' files say.

    Raises:
        BundleError: it cannot be found or used.
        UsageError: it is a bare name that is not registered.
    """
    registry = registry or home.bundles
    bundle = await registry.load_source(_bundle_source(registry, typed))
    bundle.load_agent_metadata()
    return bundle


def _bundle_source(registry: BundleRegistry, typed: str) -> str:
    if registry.find(typed) is not None:
        return typed
    source = absolute_source(typed)
    if isinstance(parse_reference(source), NameReference):
        known = registry.list_registered()
        hint = did_you_mean(typed, known) or "amplifier bundle list shows them; amplifier bundle add adds one"
        raise UsageError(f"there is no bundle {typed!r}", hint=hint)
    return source


async def _of_bundle(home: Home, typed: str) -> ChosenPlan:
    bundle = await find_bundle(home, typed)
    plan, replaced = MountPlan(bundle.to_mount_plan()), home.settings.sources.replace
    named = {entry.identity: entry.source for entry in plan.entries() if entry.module_id in replaced and entry.source}
    told = {identity: shown(str(source)) for identity, source in named.items()}
    return ChosenPlan(bundle.name or typed, plan.map(without_source(replaced)), replaced=told)


def _is_file(typed: str) -> bool:
    return typed.endswith(_FILES) or Path(typed).is_file()


def absolute_source(typed: str) -> str:
    """Return a source that means the same from anywhere.

    Raises:
        RefResolutionError: it is not a source.
        UsageError: it is a bare name, and a path of that name exists: a name never is a path.
    """
    reference = parse_reference(typed)
    if isinstance(reference, NameReference) and Path(typed).exists():
        raise UsageError(f"{typed!r} is a name, not a path", hint=f"write ./{typed} for a path here")
    if not isinstance(reference, FileReference):
        return typed
    path = str(Path(reference.path).expanduser().absolute())
    return str(FileReference(path, reference.subpath))
