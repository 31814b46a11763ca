"""`amplifier config`: the command's own settings, with the place that each value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import (
    AppConfig,
    Local,
    Project,
    ResolvedConfig,
    SettingsFiles,
    checked_key,
    checked_value,
    chosen_layer,
    resolve_app_config,
    store_settings,
    variable_of,
)
from amplifier_cli.failures import UsageError, say
from amplifier_cli.options import invocation_of
from amplifier_cli.terminal.render import write, write_json, write_table
from amplifier_system.visible import write_exactly
from amplifierd.agreements import KEY, Agreement, Agreements
from amplifierd.paths import Paths
from amplifierd.trust import Trust

app = new_group(
    "Read and change the settings of this command.\n\n"
    "The first of these that has a value counts: a flag, an environment variable, .amplifier/settings.local.yaml, "
    ".amplifier/settings.yaml, your own settings.yaml. A project's files count only once you trust its directory.",
    "amplifier config list",
    "amplifier config set profile foundation/coding",
    "amplifier config set --project model claude-sonnet-5",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The name of a setting.", show_default=False)]


@app.command("list", epilog=examples("amplifier config list", "amplifier config list --json"))
def list_settings(ctx: typer.Context, as_json: Json = False) -> None:
    """List every setting with its value and where it comes from."""
    found = _resolved(ctx)
    if as_json:
        write_json([_described(found, key) for key in AppConfig.model_fields])
        return
    rows = [
        (setting.key, "" if setting.value is None else setting.value, setting.layer, setting.place)
        for setting in found.settings
    ]
    write_table(("KEY", "VALUE", "FROM", "PLACE"), rows)


@app.command(epilog=examples("amplifier config get profile", "amplifier config get profile --json"))
def get(ctx: typer.Context, key: Key, as_json: Json = False) -> None:
    """Print the value of a setting; --json adds where it comes from."""
    found, name = _resolved(ctx), checked_key(key)
    value = found.setting(name).value
    if as_json:
        write_json(_described(found, name))
    elif value is not None:
        write_exactly(str(value).lower() if isinstance(value, bool) else str(value))


@app.command("set", epilog=examples("amplifier config set model gpt-5.5", "amplifier config set model --unset"))
def set_value(
    ctx: typer.Context,
    key: Key,
    value: Annotated[str | None, typer.Argument(help="Its new value.", show_default=False)] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the setting from the file.")] = False,
    project: Project = False,
    local: Local = False,
) -> None:
    """Set a value in your own settings file, or in one of the project's with --project or --local."""
    name, layer = checked_key(key), chosen_layer(project=project, local=local)
    if (value is None) != unset:
        raise UsageError("a setting takes either a value or --unset", hint=f"amplifier config set {name} VALUE")
    files = SettingsFiles.of(_paths(ctx), Path.cwd())
    file = files.at(layer)
    new = None if value is None else checked_value(name, value)
    with Trust(_paths(ctx)).following(files.project_dir):
        store_settings(file, {name: new})
    write(f"{name} is {'no longer set' if new is None else 'set'} in {file}")
    after = _resolved(ctx)
    if new is not None and after.setting(name).layer != layer and file not in after.ignored:
        say(f"note: {after.setting(name).place} sets it too, and takes precedence")


@app.command(epilog=examples("amplifier config path", "amplifier config path --local"))
def path(ctx: typer.Context, project: Project = False, local: Local = False) -> None:
    """Print the path of your settings file, or of one of the project's."""
    write_exactly(str(SettingsFiles.of(_paths(ctx), Path.cwd()).at(chosen_layer(project=project, local=local))))


@app.command(epilog=examples("amplifier config trust", "amplifier config trust --remove"))
def trust(
    ctx: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="The directory; by default the current project.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Stop trusting it.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the trusted directories.")] = False,
) -> None:
    """Trust a directory: its settings take effect, and turns that change its files can be undone."""
    paths = _paths(ctx)
    known = Trust(paths)
    place = directory or SettingsFiles.of(paths, Path.cwd()).project_dir
    if listed:
        for each in known.list():
            write(str(each))
    elif remove:
        write(f"{place} is no longer trusted" if known.remove(place) else f"{place} was not trusted")
    else:
        known.add(place)
        write(f"{place} is trusted")


@app.command(
    epilog=examples(
        "amplifier config agree provider-openai https://llm.example.org",
        "amplifier config agree tool-mcp https://api.github.com --variable GITHUB_TOKEN",
        "amplifier config agree --list",
    )
)
def agree(
    ctx: typer.Context,
    module: Annotated[
        str | None, typer.Argument(metavar="MODULE", help="The id of the module.", show_default=False)
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="HOST", help="The hosts that it may reach with it.", show_default=False),
    ] = None,
    variable: Annotated[
        str | None, typer.Option("--variable", help="The variable that it may have; by default its key.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Withdraw the agreement.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show what you agreed to.")] = False,
) -> None:
    """Let a module of a fetched profile, bundle or project have its key, or a variable, for the hosts it names."""
    known = Agreements(_paths(ctx))
    if listed:
        rows = [(each.module, each.gets, ", ".join(each.hosts)) for each in known.list()]
        write_table(("MODULE", "GETS", "FOR"), rows, empty="You agreed to nothing")
        return
    if module is None or (variable is None and not hosts):
        hint = "amplifier config agree MODULE HOST; errors say what to agree to"
        raise UsageError("an agreement names a module, and a host or a variable", hint=hint)
    agreement = Agreement(module, variable or KEY, tuple(hosts or ()))
    if remove:
        write("the agreement is withdrawn" if known.remove(agreement) else "there was no such agreement")
        return
    known.add(agreement)
    what = "its key" if variable is None else variable
    write(f"{module} may have {what}" + (f" for {', '.join(agreement.hosts)}" if agreement.hosts else ""))


def _resolved(ctx: typer.Context) -> ResolvedConfig:
    found = resolve_app_config(home=invocation_of(ctx).home)
    for warning in found.warnings:
        say(f"warning: {warning}")
    if found.ignored:
        names = ", ".join(map(str, found.ignored))
        say(f"note: {names} has no effect until the directory is trusted: amplifier config trust")
    return found


def _described(found: ResolvedConfig, key: str) -> dict[str, Any]:
    setting = found.setting(key)
    return {
        "key": key,
        "value": getattr(found.values, key),
        "from": setting.layer,
        "place": setting.place or None,
        "overrode": list(setting.overrode),
        "variable": variable_of(key),
        "description": AppConfig.model_fields[key].description,
    }


def _paths(ctx: typer.Context) -> Paths:
    return Paths.from_environment(invocation_of(ctx).home)
