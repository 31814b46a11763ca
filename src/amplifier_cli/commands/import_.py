"""`amplifier import`: settings and bundles of another application of the ecosystem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.config import SettingsFiles, checked_value, stored_settings
from amplifier_cli.ecosystem_home import EcosystemHome, read_ecosystem_home
from amplifier_cli.failures import UsageError, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.render import write, write_json, write_table
from amplifier_cli.session_choice import find_profile
from amplifier_cli.stored_settings import store_settings
from amplifier_core.packages import provider_module_id
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
