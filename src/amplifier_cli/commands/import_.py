"""`amplifier import`: settings and bundles of another application of the ecosystem."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.config import AppConfig, SettingsFiles, checked_value, store_settings, stored_settings
from amplifier_cli.failures import UsageError, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.session_choice import find_profile
from amplifier_cli.terminal.render import write, write_json, write_table
from amplifier_core.packages import provider_module_id, provider_name
from amplifier_foundation.io import load_yaml
from amplifier_foundation.paths import get_amplifier_home
from amplifier_system.urls import shown
from amplifierd.exceptions import SettingsError
from amplifierd.home import Home

from .provider import key_of

app = single_command()

Row = dict[str, Any]


@app.command(epilog=examples("amplifier import", "amplifier import --dry-run", "amplifier import /backup/.amplifier"))
def import_(
    ctx: typer.Context,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="By default ~/.amplifier.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported.")] = False,
    as_json: Json = False,
) -> None:
    """Import settings and bundles from an existing ~/.amplifier, which is left unchanged.

    Settings you already have here are kept. Keys are not imported: run amplifier init. Sessions need no import:
    amplifier session list shows them, and the first new turn copies one.
    """
    found = read_ecosystem_home((directory or get_amplifier_home()).expanduser().absolute())

    async def work(home: Home) -> list[Row]:
        bundles = _bundles(home, found, dry_run=dry_run)
        return [*await _settings(home, found, dry_run=dry_run), *bundles]

    rows = in_home(ctx, work)
    if as_json:
        write_json({"directory": str(found.directory), "imported": rows, "left": found.left, "dry_run": dry_run})
        return
    table = [(row["kind"], row["name"], row["result"], row["value"]) for row in rows]
    write_table(("WHAT", "NAME", "RESULT", "VALUE"), table, empty=f"{found.directory} has nothing to import.")
    if found.left:
        say(f"note: these settings do not exist here and were left out: {', '.join(found.left)}")
    if dry_run and rows:
        write("nothing was changed")


async def _settings(home: Home, found: EcosystemHome, *, dry_run: bool) -> list[Row]:
    """Write the settings that the user's file does not have yet, and that name something that is here."""
    file = SettingsFiles.of(home.paths, Path.cwd()).user
    before = stored_settings(file)
    rows, new = [], dict[str, Any]()
    for key, value in found.settings.items():
        row = {"kind": "setting", "name": key, "value": value}
        if key in before:
            rows.append({**row, "result": "is the same" if before[key] == value else "kept", "value": before[key]})
        elif why := await _why_useless(home, found, key, value):
            rows.append({**row, "result": f"left out: {why}"})
        else:
            rows.append({**row, "result": "new"})
            new[key] = value
    if new and not dry_run:
        store_settings(file, new)
    return rows


async def _why_useless(home: Home, found: EcosystemHome, key: str, value: Any) -> str:
    """Say why a setting would only be in the way here; empty when it would not."""
    try:
        checked_value(key, str(value))
        if key == "profile":
            await find_profile(home, value)
    except (SettingsError, UsageError) as error:
        return error.message
    if key == "bundle" and value not in found.bundles and home.bundles.find(value) is None:
        return f"there is no bundle {value!r} here"
    provider = found.settings.get("provider")
    if key in ("provider", "model") and not (provider and key_of(home, provider_module_id(provider))["from"]):
        return "its provider has no key here yet: amplifier init"
    return ""


def _bundles(home: Home, found: EcosystemHome, *, dry_run: bool) -> list[Row]:
    """Register the bundles whose names are free; they are fetched when they are used."""
    registry, rows = home.bundles, []
    for name, uri in sorted(found.bundles.items()):
        known = registry.find(name)
        result = "new" if known is None else "is the same" if known == uri else "kept"
        rows.append({"kind": "bundle", "name": name, "result": result, "value": shown(known or uri)})
        if known is None and not dry_run:
            registry.register(name, uri)
    if not dry_run and any(row["result"] == "new" for row in rows):
        registry.save()
    return rows


# What other applications of the ecosystem keep in `~/.amplifier` and this command can use; it is only read.


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
