"""Putting a home's sessions together from the parts that they run on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from amplifierd.keys import Keys
from amplifierd.paths import Paths
from amplifierd.plans.home_plans import Plans
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.bundles import open_bundles
from amplifierd.profiles.collections.catalogue import Catalogue
from amplifierd.session_defaults import default_profile, default_working_dir
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.recordings.ecosystem import EcosystemSessions
from amplifierd.settings import Settings
from amplifierd.signing_keys import SigningKeys
from amplifierd.store.hold import Holder
from amplifierd.store.store_choice import open_store

from .creation import Creation
from .home_sessions import Sessions
from .open_sessions import Defaults, FindCheckpoints, OpenSessions
from .runtime import LoadedSessions, Runtime
from .secret_values import SecretValues
from .session_reading import SessionReader
from .session_setup import Resolvers, SetupFinder
from .working_place import Machine

if TYPE_CHECKING:
    from amplifierd.plans.composition import Composer


def open_sessions(
    paths: Paths,
    settings: Settings,
    profiles: Profiles,
    plans: Plans,
    catalogue: Catalogue,
    keys: Keys,
    *,
    resolvers: Resolvers,
    composer: Callable[[], Composer],
    find_checkpoints: FindCheckpoints,
    program: str = "library",
    shared: Runtime | None = None,
) -> Sessions:
    """Return the sessions of a home; nothing is created or read yet.

    With `shared`, they are those of another runtime of this process, seen with other settings.
    """
    environment = dict(os.environ) if shared is None else shared.environment
    secrets = SecretValues.of(environment) if shared is None else shared.secrets

    def find_key(module_id: str) -> str | None:
        found = keys.find(module_id)
        if found is not None:
            secrets.add(found)
        return found

    security = settings.security
    bundles = partial(open_bundles, paths, settings)
    setups = SetupFinder(
        paths,
        profiles,
        catalogue,
        resolvers,
        bundles=bundles,
        composer=composer,
        allow_home=security.allow_home_mentions,
        offline=settings.offline,
    )
    loaded = LoadedSessions(most=settings.sessions.max_loaded, idle_s=settings.sessions.idle_unload_minutes * 60)
    if shared is not None:
        runtime = replace(shared, settings=settings, setups=setups, find_key=find_key, loaded=loaded)
    else:
        address = settings.store.resolved(lambda name: environment.get(name) or find_key(name))
        secrets.add(address.password or "")
        store = open_store(paths, address, program=program)
        runtime = Runtime(
            store=store,
            holder=Holder.of_this_process(program),
            paths=paths,
            settings=settings,
            setups=setups,
            environment=environment,
            find_key=find_key,
            secrets=secrets,
            announcements=Announcements(store, secrets),
            machine=Machine.here(settings.cluster),
            loaded=loaded,
        )
    return _sessions_on(runtime, profiles, plans, keys, find_checkpoints)


def _sessions_on(
    runtime: Runtime, profiles: Profiles, plans: Plans, keys: Keys, find_checkpoints: FindCheckpoints
) -> Sessions:
    paths, settings, environment = runtime.paths, runtime.settings, runtime.environment
    creation = Creation(
        profiles,
        plans,
        runtime.setups,
        machine=runtime.machine,
        keep=keys.keep,
        allow_modules=settings.security.allow_override_modules,
        foreign_values=runtime.foreign_values,
    )
    defaults = Defaults(
        profile=lambda: default_profile(paths, settings, profiles, keys, environment=environment),
        working_dir=lambda: default_working_dir(settings),
    )
    reader = SessionReader(runtime.store, EcosystemSessions(find_copied=runtime.store.existing))
    opened = OpenSessions(runtime, creation, reader, find_checkpoints, defaults)
    return Sessions(runtime, creation, reader, opened, profiles=profiles, keys=SigningKeys(paths), keep=keys.keep)
