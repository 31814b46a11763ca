"""Which mount plan a command means, from what was typed and set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifierd.builds.build import Build
from amplifierd.home import Home
from amplifierd.identifiers import ProfileId
from amplifierd.session_defaults import default_profile

from .config import resolve_app_config
from .failures import UsageError
from .invocation import Invocation
from .session_choice import find_profile, read_plan_file
from .typed_sources import absolute_source

_FILES = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class ChosenPlan:
    """A plan, portable where it comes from a profile. `name` says what it is the plan of, `build` what it is from."""

    name: str
    plan: dict[str, Any]
    build: Build | None = None


async def chosen_plan(
    home: Home, invocation: Invocation, typed: str | None = None, *, bundle: str | None = None
) -> ChosenPlan:
    """Return the plan of a file, a profile or a bundle; by default the one that new sessions have.

    Raises:
        UsageError: both or something unknown is named.
    """
    if typed is not None and bundle is not None:
        raise UsageError(f"{typed!r} and --bundle both name an agent", hint="use one of them")
    if typed is not None and _is_file(typed):
        return ChosenPlan(typed, read_plan_file(Path(typed)))
    source = {"bundle": bundle} if bundle else {"profile": typed} if typed else {}
    source = source or resolve_app_config(home=invocation.home).source()
    if "bundle" in source:
        return await _of_bundle(home, source["bundle"])
    return await _of_profile(home, await chosen_profile(home, source.get("profile")))


async def chosen_profile(home: Home, typed: str | None) -> ProfileId:
    """Return a profile by what was typed of its name; by default the home's."""
    if typed is not None:
        return await find_profile(home, typed)
    return await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=os.environ)


async def _of_profile(home: Home, profile_id: ProfileId) -> ChosenPlan:
    build = await home.profiles.ensure(profile_id)
    return ChosenPlan(str(profile_id), await home.plans.generate(build), build)


async def _of_bundle(home: Home, typed: str) -> ChosenPlan:
    bundle = await home.bundles.load(typed if home.bundles.find(typed) else absolute_source(typed))
    return ChosenPlan(bundle.name or typed, bundle.to_mount_plan())


def _is_file(typed: str) -> bool:
    return typed.endswith(_FILES) or Path(typed).is_file()
