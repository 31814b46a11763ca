"""`amplifier source`: what collections, bundles and modules are fetched from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json, Offline
from amplifier_cli.session_choice import absolute_source
from amplifier_cli.terminal.render import counted, write, write_fields, write_json, write_table
from amplifier_foundation.sources import CachedSource, parse_reference
from amplifier_system.urls import shown
from amplifier_system.visible import write_exactly
from amplifierd.home import Home

app = new_group(
    "Inspect and fetch sources, and clean up the cache.\n\n"
    "A source says where something is: git+https://host/org/repo@v1#subdirectory=modules/tool-x, a path, an "
    "https:// address, zip+https://…, or the name of an installed package. What is fetched stays in the cache, so "
    "it works offline.",
    "amplifier source show git+https://github.com/org/repo@main",
    "amplifier source fetch git+https://github.com/org/repo@v1",
    "amplifier source prune --dry-run",
)

SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="A source.", show_default=False)]
_MIB = 1024 * 1024


@app.command(epilog=examples("amplifier source show", "amplifier source show git+https://github.com/org/repo@main"))
def show(
    ctx: typer.Context,
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="A source; by default everything in the cache.")
    ] = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Explain a source, what the cache has of it, and whether there is something newer."""

    async def work(home: Home) -> None:
        if source is None:
            _write_cache(await home.source_cache.list(), as_json=as_json)
            return
        place = absolute_source(source)
        reference = parse_reference(place)
        status = await home.sources.get_status(reference)
        parts = {name: value for name, value in asdict(reference).items() if value is not None}
        if as_json:
            write_json({"kind": _kind(reference), "reference": _safe(parts), "status": asdict(status)})
            return
        write_fields({"kind": _kind(reference), **_safe(parts)})
        about = {
            "cached commit": status.cached_commit,
            "cached": status.cached_at,
            "remote commit": status.remote_commit,
        }
        write_fields({**about, "status": status.summary})

    in_home(ctx, work, offline=offline or None)


@app.command(
    epilog=examples("amplifier source fetch git+https://github.com/org/repo@v1", "amplifier source fetch ./here --json")
)
def fetch(
    ctx: typer.Context,
    source: SourceArgument,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask the remote for the current commit of a branch.")
    ] = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Fetch a source into the cache and print its path."""

    async def work(home: Home) -> None:
        found = await home.sources.resolve(absolute_source(source), refresh=refresh)
        if as_json:
            names = ("kind", "url", "rev", "commit", "subpath", "mutable", "from_cache", "stale", "resolved_at")
            facts = {name: getattr(found, name) for name in names}
            write_json({"source": shown(found.ref), "path": str(found.path), **facts, "warnings": list(found.warnings)})
            return
        write_exactly(str(found.path))

    in_home(ctx, work, offline=offline or None)


@app.command(epilog=examples("amplifier source prune --dry-run", "amplifier source prune --older-than 7"))
def prune(
    ctx: typer.Context,
    older_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Unused for this many days; by default cache.keep_days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what.")] = False,
    as_json: Json = False,
) -> None:
    """Remove fetched sources that no collection or bundle uses and that have not been needed for a while.

    What compiled profiles and running sessions need is in their builds and is kept.
    """

    async def work(home: Home) -> None:
        result = await home.source_cache.prune(keep_days=older_than, dry_run=dry_run)
        if as_json:
            write_json({"removed": [str(path) for path in result.removed], "freed_bytes": result.freed_bytes})
            return
        for path in result.removed:
            write_exactly(str(path))
        removed = f"{'would be ' if dry_run else ''}removed"
        write(f"{counted(len(result.removed), 'entry', 'entries')} {removed}, {_size(result.freed_bytes)}")

    in_home(ctx, work)


def _write_cache(found: tuple[tuple[CachedSource, bool], ...], *, as_json: bool) -> None:
    if as_json:
        write_json([{**each.to_dict(), "is_used": is_used} for each, is_used in found])
        return
    rows = [(each.kind, each.version[:12], _size(each.bytes), is_used, each.source) for each, is_used in found]
    write_table(("KIND", "VERSION", "SIZE", "USED", "SOURCE"), rows, empty="Nothing has been fetched yet")


def _kind(reference: object) -> str:
    return type(reference).__name__.removesuffix("Reference").lower()


def _safe(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown(value) if name == "url" else value for name, value in parts.items()}


def _size(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB // 10 else f"{count} bytes"
