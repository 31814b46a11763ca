"""Which session or agent a command means, from what was typed and set."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from amplifier_core.packages import provider_name
from amplifier_foundation.io import load_yaml, yaml_problem
from amplifier_foundation.sources import FileReference, NameReference, parse_reference
from amplifier_sessions.session_directory import is_session_id
from amplifier_system.near_names import did_you_mean
from amplifierd.exceptions import SessionNotFoundError
from amplifierd.home import Home
from amplifierd.identifiers import ProfileId
from amplifierd.plans.agent_choice import AgentChoice, preferred_provider, providers_of
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.documents.inheritance import merge_sections
from amplifierd.session_defaults import WITHOUT_KEYS, default_profile
from amplifierd.store.record import SessionRecord

from .config import AppConfig, ResolvedConfig
from .failures import UsageError, pick, say
from .session_names import PREFIX, short_id

if TYPE_CHECKING:
    from amplifier_foundation.registry import BundleRegistry

_LOOKED_AT = 10_000


def find_session(home: Home, typed: str) -> SessionRecord:
    """Return the session that an id, a unique beginning of one, its name or `last` means.

    Raises:
        UsageError: none or several are meant.
    """
    if typed == "last":
        return last_session(home)
    if is_session_id(typed):
        try:
            return home.sessions.get(typed)
        except SessionNotFoundError:
            pass
    known = {record.session_id: record for record in home.sessions.list(limit=_LOOKED_AT).sessions}
    named = [record for record in known.values() if record.name == typed]
    if len(named) == 1:
        return named[0]
    short = [each for each in known if short_id(each) == typed]
    begun = [each for each in known if typed and each.removeprefix(PREFIX).startswith(typed)]
    roots = [each for each in begun if known[each].root_id == each]
    for found in (short, roots, begun):  # an agent's session begins with the id of the one that it works for
        if len(found) == 1:
            return known[found[0]]
    see = "amplifier session list shows them"
    return known[pick(typed, known, "session", key=lambda each: each.removeprefix(PREFIX), see=see)]


def last_session(home: Home, working_dir: Path | None = None) -> SessionRecord:
    """Return the session that was used last, in a directory if one is given.

    Raises:
        UsageError: there is none.
    """
    where = str(working_dir) if working_dir else None
    found = home.sessions.list(working_dir=where, roots_only=True, limit=1).sessions
    if found:
        return found[0]
    place = f" in {working_dir}" if working_dir else ""
    raise UsageError(f"there is no session{place} yet", hint="start one: amplifier chat")


async def find_profile(home: Home, typed: str) -> ProfileId:
    """Return the profile that an id, its name alone or a unique beginning means.

    Raises:
        UsageError: none or several are meant.
    """
    await home.collections.extract_missing()
    known = [str(each) for each in home.collections.profile_ids()]
    try:
        return _picked_profile(typed, known)
    except UsageError:
        broken = {each.profile_id for each in home.profiles.list() if not each.valid} - {*known}
        file = home.paths.own_profiles / f"{typed.removeprefix('local/')}.md"
        if not broken and file.is_file():
            hint = f"amplifier profile validate {shlex.quote(str(file))} shows what is missing"
            raise UsageError(f"{file} has no 'profile' section, so it is not a profile", hint=hint) from None
        if not broken:
            raise
        return _picked_profile(typed, [*known, *sorted(broken)])


def _picked_profile(typed: str, known: Iterable[str]) -> ProfileId:
    see = "amplifier profile list shows them"
    picked = pick(typed, known, "profile", key=lambda each: each.partition("/")[2], see=see)
    try:
        return ProfileId.parse(picked)
    except ValueError as error:  # a file that cannot be read is called after its name, whatever that is
        hint = "give the file another name, then check it: amplifier profile validate FILE"
        raise UsageError(f"{picked!r} cannot be the id of a profile", hint=hint) from error


async def chosen_agent(
    home: Home, config: ResolvedConfig, *, plan_file: Path | None = None, frozen: bool = False
) -> dict[str, Any]:
    """Return what `home.sessions.open` takes for the agent that flags and settings choose.

    Raises:
        UsageError: what they name does not exist.
    """
    values = config.values
    options: dict[str, Any] = {} if values.max_cost is None else {"limits": {"cost_usd": values.max_cost}}
    if values.permissions is not None:
        options["permission_level"] = values.permissions
    if plan_file is not None:
        plan = read_plan_file(plan_file)
        return {"plan": plan, "overrides": _changes(home, config, plan), **options}
    source = config.source()
    if "bundle" in source:
        return {**await _of_bundle(home, config, source["bundle"]), **options}
    profile = await _profile(home, source.get("profile"))
    build = await home.profiles.compile(profile, frozen=frozen) if frozen else await home.profiles.ensure(profile)
    for warning in _warnings(home, build):
        say(f"warning: {warning}")
    return {
        "profile": str(profile),
        "build": build,
        "overrides": _changes(home, config, build.plan(), profile),
        **options,
    }


def bundle_source(registry: BundleRegistry, typed: str) -> str:
    """Return what a bundle that was typed is known by from anywhere: its registered name, or its source.

    Raises:
        UsageError: it is a bare name that is not registered.
    """
    if registry.find(typed) is not None:
        return typed
    source = absolute_source(typed)
    if isinstance(parse_reference(source), NameReference):
        known = registry.list_registered()
        hint = did_you_mean(typed, known) or "amplifier bundle list shows them; amplifier bundle add adds one"
        raise UsageError(f"there is no bundle {typed!r}", hint=hint)
    return source


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


async def base_profile(home: Home, config: ResolvedConfig) -> ProfileId | None:
    """Return the profile that bundles run over, if the settings name one; else it is that of new sessions."""
    named = config.values.profile
    return await find_profile(home, named) if named else None


async def _of_bundle(home: Home, config: ResolvedConfig, typed: str) -> dict[str, Any]:
    """Return the same for a bundle; it is loaded here only if the plan has to say which provider is meant."""
    source, below = bundle_source(home.bundles, typed), await base_profile(home, config)
    agent: dict[str, Any] = {"bundle": source, **({"base_profile": str(below)} if below is not None else {})}
    values, plan = config.values, None
    if values.provider or values.model:
        plan = (await home.composer.compose(await home.bundles.load_source(source), below)).plan
    return {**agent, "overrides": _changes(home, config, plan)}


def _changes(
    home: Home, config: ResolvedConfig, plan: Mapping[str, Any] | None, profile: ProfileId | None = None
) -> dict[str, Any] | None:
    """Return what a trusted project changes about an agent, and over it what flags and settings do."""
    own = overrides(_preferred(config, plan), home, plan)
    if not (config.is_trusted and config.files.of_project()):
        return own
    from .project_overlay import project_overlay  # few projects have something of their own

    return merge_sections(project_overlay(config, profile), own or {}) or None


def _preferred(config: ResolvedConfig, plan: Mapping[str, Any] | None) -> AppConfig:
    """Return the settings for a plan. Which provider, and of it which model, is a wish unless the command line says so:
    where the plan has only others, it is passed over."""
    values = config.values
    if plan is None or values.provider is None or config.setting("provider").layer == "flag":
        return values
    try:
        picked_provider(values.provider, plan)
    except UsageError:
        is_typed = config.setting("model").layer == "flag"
        return values.model_copy(update={"provider": None, "model": values.model if is_typed else None})
    return values


def _warnings(home: Home, build: Build) -> list[str]:
    """Return what is doubtful about a profile, with file and line where it is known, and about its build."""
    if not build.warnings:
        return []
    issues = home.profiles.merged(build.profile_id).issues
    codes = tuple(f"{issue.code}:" for issue in issues)
    return [*map(str, issues), *(warning for warning in build.warnings if not warning.startswith(codes))]


def overrides(values: AppConfig, home: Home, plan: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what flags and settings change about a plan: the provider, its model, how hard and how long it works."""
    choice = AgentChoice(values.provider, values.model, values.effort, values.max_iterations)
    identity = _provider(values, home, plan) if values.provider or values.model else None
    return choice.overrides_of(identity) or None


def read_plan_file(file: Path) -> dict[str, Any]:
    """Return the mount plan in a JSON or YAML file.

    Raises:
        UsageError: it cannot be read, or is not a mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
        plan = json.loads(text) if file.suffix == ".json" else load_yaml(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="name a file with a mount plan") from error
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{file} is neither JSON nor YAML: {yaml_problem(error)}", hint="correct that line") from error
    if not isinstance(plan, dict):
        raise UsageError(
            f"{file} does not contain a mount plan", hint="a plan is a mapping; amplifier plan show prints one"
        )
    return plan


async def _profile(home: Home, typed: str | None) -> ProfileId:
    if typed is not None:
        return await find_profile(home, typed)
    chosen = await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=os.environ)
    if chosen == WITHOUT_KEYS and home.settings.default_profile is None:
        say("note: no model key found, so foundation/offline follows fixed rules; add a key: amplifier init")
    return chosen


def _provider(values: AppConfig, home: Home, plan: Mapping[str, Any] | None) -> str:
    """Return the module of the provider that is meant: the named one, else the first that has a key."""
    if plan is None:
        raise UsageError("which provider is meant is not known", hint="name a profile, a bundle or a plan")
    if values.provider:
        return picked_provider(values.provider, plan)
    return preferred_provider(plan, os.environ, home.keys.find)


def picked_provider(typed: str, plan: Mapping[str, Any]) -> str:
    """Return the provider of a plan that a name, or a unique beginning of one, means.

    Raises:
        UsageError: none or several are meant.
    """
    names = [entry.identity for entry in providers_of(plan)]
    others = " or ".join(f"-p {provider_name(name)}" for name in names)
    see = f"this profile has others: {others}" if names else "this profile has no provider: choose another profile"
    return pick(typed, names, "provider", key=provider_name, see=see)
