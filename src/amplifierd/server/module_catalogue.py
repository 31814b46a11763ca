"""The modules that a home knows: those that profiles were compiled with, and those that are installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amplifier_core.packages import TYPE_TO_MOUNT_POINT, find_package, package_name
from amplifier_foundation.observability import read_declaration
from amplifierd.exceptions import RequestRefusedError
from amplifierd.identifiers import ProfileId, is_module_id
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.installed_modules import ModuleFacts, find_facts, installed_facts
from amplifierd.profiles.collections.home_collections import Collections

INSTALLED = "installed"


@dataclass(frozen=True)
class KnownModule:
    """A module in one version. `profiles` were compiled with it; `location` counts from the home's `share`.

    `config_schema` is the JSON schema of its configuration, if it declares one.
    """

    id: str
    type: str
    mount_type: str
    package: str
    version: str | None
    source: str
    description: str
    profiles: tuple[str, ...] = ()
    location: str | None = None
    requirements: tuple[str, ...] = ()
    config_schema: Mapping[str, Any] | None = None


class ModuleCatalogue:
    """Finds the modules that a home knows; `share` is where its builds are. Calls read files."""

    def __init__(self, collections: Collections, profiles: Profiles, share: Path) -> None:
        self._collections, self._profiles, self._share = collections, profiles, share

    def list(self, *, module_type: str | None = None, profile: ProfileId | None = None) -> list[KnownModule]:
        """Return the modules, by their ids; the same one in two versions is there twice."""
        wanted = [profile] if profile is not None else self._collections.profile_ids()
        found: dict[tuple[str, str | None, str], KnownModule] = {}
        for module in (*self._compiled(wanted), *(() if profile else map(_installed, installed_facts()))):
            key = (module.id, module.version, module.source)
            known = found.get(key)
            found[key] = module if known is None else replace(known, profiles=(*known.profiles, *module.profiles))
        chosen = (module for module in found.values() if module_type in (None, module.type))
        return sorted(chosen, key=lambda module: (module.id, module.source, module.version or ""))

    def get(self, module_id: str, *, profile: ProfileId | None = None) -> KnownModule:
        """Return a module: the one of a profile, else the installed one, else any.

        Raises:
            RequestRefusedError: there is none (`module-not-found`), or it is not an id.
        """
        if not is_module_id(module_id):
            raise RequestRefusedError(f"{module_id!r} is not the id of a module", code="invalid-identifier")
        found = [module for module in self.list(profile=profile) if module.id == module_id]
        if not found:
            raise RequestRefusedError(
                f"Module not found: {module_id}", code="module-not-found", hint="list the modules"
            )
        return next((module for module in found if module.source == INSTALLED), found[0])

    def _compiled(self, profiles: Iterable[ProfileId]) -> Iterator[KnownModule]:
        own = {facts.module_id: facts for facts in installed_facts()}
        for profile_id in profiles:
            build = self._profiles.find_build(profile_id)
            for entry in build.lock.modules() if build else ():
                module = _find_locked(profile_id, build.path if build else Path(), entry, own, self._share)
                if module is not None:
                    yield module


def _installed(facts: ModuleFacts) -> KnownModule:
    return KnownModule(
        id=facts.module_id,
        type=facts.module_type,
        mount_type=TYPE_TO_MOUNT_POINT[facts.module_type],
        package=package_name(facts.module_id),
        version=facts.version,
        source=INSTALLED,
        description=facts.summary,
        config_schema=_declared_schema(Path(facts.path)),
    )


def _find_locked(
    profile_id: ProfileId, directory: Path, entry: Any, own: dict[str, ModuleFacts], share: Path
) -> KnownModule | None:
    name, version = str(entry["name"]), entry.get("commit") or entry.get("version") or entry.get("content_hash")
    if entry.get("kind") == INSTALLED and name in own:
        return replace(_installed(own[name]), profiles=(str(profile_id),))
    place = directory / entry["path"] if entry.get("path") else None
    package = find_package(place) if place is not None and place.is_dir() else None
    facts = find_facts(name, package or place or directory, version)
    if facts is None:
        return None
    return KnownModule(
        id=name,
        type=facts.module_type,
        mount_type=TYPE_TO_MOUNT_POINT[facts.module_type],
        package=package_name(name),
        version=version,
        source=entry.get("ref") or INSTALLED,
        description=facts.summary,
        profiles=(str(profile_id),),
        location=_relative(place, share),
        requirements=tuple(pin["pin"] for pin in entry.get("requirements") or ()),
        config_schema=_declared_schema(package) if package is not None else None,
    )


def _declared_schema(package: Path) -> Mapping[str, Any] | None:
    schema = (read_declaration(package) or {}).get("config_schema")
    return schema if isinstance(schema, dict) else None


def _relative(place: Path | None, root: Path) -> str | None:
    return str(place.relative_to(root)) if place is not None and place.is_relative_to(root) else None
