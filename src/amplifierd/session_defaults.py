"""What a session gets that does not say: its profile and its working directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_foundation.io import load_yaml
from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import in_thread

from .exceptions import SettingsError
from .identifiers import ProfileId
from .keys import Keys
from .paths import Paths
from .plans.agent_choice import AgentChoice
from .plans.foreign_values import FindVariable
from .plans.injection import expand_variables, variables
from .plans.runtime_values import key_variables
from .settings import Settings

if TYPE_CHECKING:
    from amplifierd.profiles.builds.home_profiles import Profiles

_CHOICES = ("provider", "model", "effort", "max_iterations")
WITH_MODELS = ProfileId("foundation", "base")
WITHOUT_KEYS = ProfileId("foundation", "offline")


async def default_profile(
    paths: Paths, settings: Settings, profiles: Profiles, keys: Keys, *, environment: Mapping[str, str]
) -> ProfileId:
    """Return the profile of a session that names none: the active one, the user's, the daemon's, else one that works.

    That is `foundation/base` as soon as one of its providers has a key: in the profile or its overlay, stored, or in
    the environment; else `foundation/offline`.

    Raises:
        ProfileNotFoundError: there is no `foundation/base`.
        ProfileValidationError: it cannot be read.
        SettingsError: the file of keys, or that with the active profile, cannot be read.
    """
    if active := find_active_profile(paths):
        return active
    if (named := _user_settings(paths).get("profile")) and "/" in str(named):
        return ProfileId.parse(str(named))
    if settings.default_profile:
        return ProfileId.parse(settings.default_profile)
    await profiles.ensure_extracted(WITH_MODELS)
    has_key = await in_thread(lambda stop: _has_key(profiles, keys, environment))
    return WITH_MODELS if has_key else WITHOUT_KEYS


def default_working_dir(settings: Settings) -> Path:
    """Return the working directory of a session that names none; it is there afterwards."""
    return make_directory(settings.working_dir)


def find_active_profile(paths: Paths) -> ProfileId | None:
    """Return the profile that was chosen for sessions which name none, None when none was.

    Raises:
        SettingsError: the file that says so cannot be read.
    """
    file = paths.active_profile_file
    try:
        text = file.read_text(encoding="utf-8").strip()
        return ProfileId.parse(text) if text else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {error}", hint="write the id of a profile, or remove the file") from error


def user_choice(paths: Paths) -> AgentChoice:
    """Return what the user's settings say about the agent of new sessions, as `amplifier init` writes them.

    A file that cannot be read says nothing: the command reports what is wrong with it.
    """
    found = _user_settings(paths)
    return AgentChoice(**{name: found[name] for name in _CHOICES if found.get(name)})


def _user_settings(paths: Paths) -> Mapping[str, Any]:
    try:
        found = load_yaml((paths.config / "settings.yaml").read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _has_key(profiles: Profiles, keys: Keys, environment: Mapping[str, str]) -> bool:
    plan = MountPlan(dict(profiles.merged(WITH_MODELS).sections))
    providers = [*plan.entries(section="providers")]
    find = variables(environment, keys.find)
    return any(_has_key_at_hand(entry, find) for entry in providers) or any(
        keys.find(entry.module_id) is not None for entry in providers
    )


def can_answer(entry: PlanEntry, keys: Keys, environment: Mapping[str, str]) -> bool:
    """True for a provider that has a key, or needs none."""
    find = variables(environment, keys.find)
    return not key_variables(entry) or _has_key_at_hand(entry, find) or keys.find(entry.module_id) is not None


def _has_key_at_hand(entry: PlanEntry, find: FindVariable) -> bool:
    given = expand_variables(dict(entry.config), find, []).get("api_key")
    return bool(given) or any((find(name) or "").strip() for name in key_variables(entry))
