"""What other applications of the ecosystem keep in `~/.amplifier` and this command can use; it is only read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from amplifier_core.packages import provider_name
from amplifier_foundation.io import load_yaml

from .config import AppConfig
from .failures import UsageError

_SETTINGS = "settings.yaml"
_REGISTRY = "registry.json"
_BUNDLES = "bundles"
_BUNDLE_FILES = ("bundle.md", "bundle.yaml")


@dataclass(frozen=True)
class EcosystemHome:
    """The settings in the words of this command, bundles by their names, and the keys that mean nothing to it."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def read_ecosystem_home(directory: Path) -> EcosystemHome:
    """Read a directory of another application.

    Raises:
        UsageError: there is none, or a file in it cannot be read.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint="name the one to import: amplifier import DIR")
    stored = _mapping(directory / _SETTINGS, load_yaml)
    settings, used = _translated(stored)
    bundles = dict(_in_folder(directory / _BUNDLES)) | dict(_registered(directory / _REGISTRY)) | dict(_added(stored))
    return EcosystemHome(directory, settings, bundles, tuple(sorted(set(map(str, stored)) - used)))


def _translated(stored: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the settings, and the keys of the file that were used for them."""
    found = {key: stored[key] for key in AppConfig.model_fields if _is_plain(stored.get(key))}
    used = set(found)
    for key in ("bundle", "profile"):
        section = stored.get(key)
        if isinstance(section, dict):
            used.add(key)
            if isinstance(section.get("active"), str):
                found[key] = section["active"]
    section = stored.get("config")
    providers = section.get("providers") if isinstance(section, dict) else None
    if isinstance(providers, list) and providers and isinstance(providers[0], dict):
        used.add("config")
        found |= _provider(providers[0])
    return found, used


def _provider(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provider that comes first, and its model; what else is configured may hold secrets."""
    config = entry.get("config")
    model = config.get("default_model") if isinstance(config, dict) else None
    found = {"provider": provider_name(str(entry.get("module") or "")), "model": model}
    return {key: value for key, value in found.items() if value and isinstance(value, str)}


def _added(stored: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    section = stored.get("bundle")
    added = section.get("added") if isinstance(section, dict) else None
    yield from ((str(name), uri) for name, uri in (added or {}).items() if isinstance(uri, str))


def _registered(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the bundles that were asked for by name, without those that only others include."""
    for name, state in (_mapping(file, json.loads).get("bundles") or {}).items():
        if not isinstance(state, dict) or not isinstance(state.get("uri"), str):
            continue
        if state.get("explicitly_requested") or (state.get("is_root", True) and not state.get("included_by")):
            yield str(name), state["uri"]


def _in_folder(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.glob("*.md")) + sorted(folder.glob("*.yaml")):
        yield file.stem, file.as_uri()
    for name in _BUNDLE_FILES:
        for file in sorted(folder.glob(f"*/{name}")):
            yield file.parent.name, file.as_uri()


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _mapping(file: Path, parse: Any) -> dict[str, Any]:
    try:
        value = parse(file.read_text(encoding="utf-8-sig")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="correct it; nothing was imported") from error
    if not isinstance(value, dict):
        raise UsageError(f"{file} does not contain a mapping", hint="correct it; nothing was imported")
    return value
