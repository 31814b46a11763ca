"""Which mount plan a command means, from what was typed and set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.registry import BundleRegistry
from amplifierd.home import Home
from amplifierd.identifiers import ProfileId
from amplifierd.plans.composition import Composition
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.origins import replaced_sources
from amplifierd.session_defaults import default_profile

from .config import ResolvedConfig, resolve_app_config
from .failures import UsageError
from .options import Invocation
from .project_overlay import project_overlay
from .session_choice import base_profile, bundle_source, find_profile, read_plan_file

_FILES = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class ChosenPlan:
    """A plan, portable where it comes from a profile. `name` says what it is the plan of, `build` what it is from.

    `replaced` has the sources that the plan's author named, by module, where the settings put installed modules in
    their place. `composition` says how the plan of a bundle was put together.
    """

    name: str
    plan: dict[str, Any]
    build: Build | None = None
    replaced: Mapping[str, str] = field(default_factory=dict)
    composition: Composition | None = None


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
    settings = config or resolve_app_config(home=invocation.home)
    source = source or settings.source()
    if "bundle" in source:
        return await _of_bundle(home, source["bundle"], await base_profile(home, settings))
    return await _of_profile(home, await chosen_profile(home, source.get("profile")), config)


async def chosen_profile(home: Home, typed: str | None) -> ProfileId:
    """Return a profile by what was typed of its name; by default the home's."""
    if typed is not None:
        return await find_profile(home, typed)
    return await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=os.environ)


async def _of_profile(home: Home, profile_id: ProfileId, config: ResolvedConfig | None) -> ChosenPlan:
    build = await home.profiles.ensure(profile_id)
    changes = project_overlay(config, profile_id) if config is not None else {}
    plan = await home.plans.generate(build, overrides=changes or None, overrides_from_elsewhere=True)
    return ChosenPlan(str(profile_id), plan, build, replaced_sources(build.origins()))


async def find_bundle(home: Home, typed: str, registry: BundleRegistry | None = None) -> Bundle:
    """Return a registered bundle, or the one of a source, with all it includes and what its agents' files say.

    Raises:
        BundleError: it cannot be found or used.
        UsageError: it is a bare name that is not registered.
    """
    registry = registry or home.bundles
    bundle = await registry.load_source(bundle_source(registry, typed))
    bundle.load_agent_metadata()
    return bundle


async def _of_bundle(home: Home, typed: str, profile: ProfileId | None) -> ChosenPlan:
    composition = await home.composer.compose(await find_bundle(home, typed), profile)
    return ChosenPlan(
        composition.bundle.name or typed,
        composition.plan,
        replaced=composition.replaced_sources,
        composition=composition,
    )


def _is_file(typed: str) -> bool:
    return typed.endswith(_FILES) or Path(typed).is_file()
