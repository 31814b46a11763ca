"""`amplifier plan`: what an agent is made of, down to every value and the file that set it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import resolve_app_config
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Bundle, Json, invocation_of
from amplifier_cli.plan_choice import ChosenPlan, chosen_plan
from amplifier_cli.session_choice import read_plan_file
from amplifier_cli.terminal.render import counted, styled, write, write_data, write_json
from amplifier_core.mount_plan import MountPlan
from amplifier_system.near_names import did_you_mean
from amplifierd.home import Home
from amplifierd.plans.conversion import Form
from amplifierd.plans.home_plans import by_entry_path
from amplifierd.sessions.secret_values import without_secrets

app = new_group(
    "Inspect mount plans: everything a session starts with.\n\n"
    "A profile is compiled into a plan, which lists the modules and their configuration; explain shows which file "
    "set a value. Keys and tokens are left out.",
    "amplifier plan show coding",
    "amplifier plan explain session.orchestrator.module",
    "amplifier plan diff foundation/base foundation/coding",
)

PlanArgument = Annotated[
    str | None,
    typer.Argument(metavar="PLAN", help="A profile or a plan file; by default what new sessions use."),
]
PlanFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A mount plan, as JSON or YAML.", show_default=False)
]
FormOption = Annotated[Form, typer.Option(help="With named sources (portable) or with directories (resolved).")]


@app.command(
    epilog=examples(
        "amplifier plan show", "amplifier plan show coding --form resolved", "amplifier plan show base > plan.yaml"
    )
)
def show(
    ctx: typer.Context,
    plan: PlanArgument = None,
    bundle: Bundle = None,
    form: FormOption = "portable",
    as_json: Json = False,
) -> None:
    """Print a mount plan as YAML, or as JSON. `amplifier run --plan FILE` runs either."""

    async def work(home: Home) -> None:
        chosen = await chosen_plan(home, invocation_of(ctx), plan, bundle=bundle, config=config)
        is_as_it_is = chosen.composition is not None and form == "portable"
        found = chosen.plan if is_as_it_is else home.plans.convert(chosen.plan, form, build=chosen.build)
        _write(without_secrets(found), as_json=as_json)

    config = resolve_app_config(home=invocation_of(ctx).home)
    in_home(ctx, work, config=config)


@app.command(
    epilog=examples(
        "amplifier plan explain session.orchestrator.module",
        'amplifier plan explain "tools[tool-bash].config.timeout" --profile coding',
        "amplifier plan explain providers --bundle my-bundle",
        "amplifier plan explain instruction",
    )
)
def explain(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(help="The path of the value.", show_default=False)],
    profile: Annotated[
        str | None, typer.Option(metavar="ID", help="The profile; by default what new sessions use.")
    ] = None,
    bundle: Bundle = None,
    as_json: Json = False,
) -> None:
    """Show where a value of a plan comes from: the file, the line, and what it overrode."""

    async def work(home: Home) -> None:
        chosen = await chosen_plan(home, invocation_of(ctx), profile, bundle=bundle)
        try:
            found = _safe(key, await _explained(home, chosen, key))
        except KeyError as error:
            known = [*_keys(chosen.plan), "instruction"]
            which = f" --bundle {bundle}" if bundle else f" {chosen.name}" if chosen.build is not None else ""
            hint = did_you_mean(key, known) or f"amplifier plan show{which} shows what there is"
            raise UsageError(f"the plan of {chosen.name} has no {key!r}", hint=hint) from error
        if as_json:
            write_json(found)
            return
        write_data(found["value"])
        write(styled(f"  from {_place(found['origin'])}", "dim"))
        for old in reversed(found["overrode"]):
            how = "merged with" if old.get("merged") else "instead of"
            write(styled(f"  {how} {old['value']!r} from {_place(old['origin'])}", "dim"))

    in_home(ctx, work)


@app.command(
    epilog=examples("amplifier plan diff foundation/base foundation/coding", "amplifier plan diff coding plan.yaml")
)
def diff(
    ctx: typer.Context,
    before: Annotated[str, typer.Argument(help="A profile, or a file with a plan.", show_default=False)],
    after: Annotated[str, typer.Argument(help="The other one.", show_default=False)],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when they differ.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two plans: modules, versions, configuration, agents and order."""

    async def work(home: Home) -> bool:
        invocation = invocation_of(ctx)
        sides = [await chosen_plan(home, invocation, each) for each in (before, after)]
        plans = [without_secrets(side.plan) for side in sides]
        found = home.plans.diff(*plans, builds=(sides[0].build, sides[1].build))
        if as_json:
            write_json(found.to_dict())
        else:
            write(str(found))
        return bool(found)

    if in_home(ctx, work) and exit_code:
        raise typer.Exit(ExitCode.FAILURE)


@app.command(epilog=examples("amplifier plan validate plan.yaml", "amplifier plan validate plan.json --json"))
def validate(ctx: typer.Context, file: PlanFileArgument, as_json: Json = False) -> None:
    """Check a plan and its sources; exits with 1 if it cannot run."""

    async def work(home: Home) -> bool:
        report = home.plans.validate(read_plan_file(file))
        if as_json:
            checks = {name: [asdict(each) for each in getattr(report, name)] for name in ("errors", "warnings")}
            write_json({"passed": report.passed, **checks})
            return report.passed
        for check in (*report.errors, *report.warnings):
            mark = styled("✗", "red") if check.severity == "error" else styled("!", "yellow")
            write(f"{mark} {f'{check.location}: ' if check.location else ''}{check.message}")
        count = f"{counted(len(report.errors), 'error')}, {counted(len(report.warnings), 'warning')}"
        write(f"{file} {'can be run' if report.passed else 'cannot be run'}: {count}")
        return report.passed

    if not in_home(ctx, work):
        raise typer.Exit(ExitCode.FAILURE)


@app.command(epilog=examples("amplifier plan convert plan.json --form resolved > resolved.yaml"))
def convert(
    ctx: typer.Context,
    file: PlanFileArgument,
    form: Annotated[Form, typer.Option(help="The form to write it in.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Convert a plan between the portable and the resolved form, without loss. Secrets are kept."""

    async def work(home: Home) -> None:
        _write(home.plans.convert(read_plan_file(file), form), as_json=as_json)

    in_home(ctx, work)


async def _explained(home: Home, chosen: ChosenPlan, key: str) -> dict[str, Any]:
    if chosen.composition is not None:
        return chosen.composition.explain(by_entry_path(key))
    if chosen.build is None:
        raise UsageError(f"{chosen.name} is a plan, which says everything itself", hint="name a profile or a bundle")
    return await home.plans.explain(chosen.build, key)


def _write(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_json(plan)
    else:
        write_data(plan)


def _safe(key: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation that tells no secret."""
    name = key.rpartition(".")[2]

    def value(holder: Mapping[str, Any]) -> dict[str, Any]:
        return {**holder, "value": without_secrets({name: holder["value"]}).get(name, "[REDACTED]")}

    return {**value(found), "overrode": [value(old) for old in found["overrode"]]}


def _place(origin: Mapping[str, Any]) -> str:
    where = f"{origin['file']}:{origin['line']}" if origin.get("line") else origin.get("file")
    return f"{origin['profile']} ({where})" if where else str(origin["profile"])


def _keys(plan: Mapping[str, Any]) -> list[str]:
    """Return the key paths that people probably look for."""
    found = []
    for entry in MountPlan(plan).entries():
        in_list = entry.section not in ("orchestrator", "context")
        place = f"{entry.section}[{entry.identity}]" if in_list else entry.place
        found += [f"{place}.module", f"{place}.config", *(f"{place}.config.{key}" for key in entry.config)]
    return [*found, *(f"agents.{name}" for name in plan.get("agents") or {})]
