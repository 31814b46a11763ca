"""`amplifier module`: the parts that agents are assembled from."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError, pick
from amplifier_cli.new_module import ModuleType, find_module_type, module_id_for, write_module
from amplifier_cli.open_home import finish, in_home
from amplifier_cli.options import Bundle, Json, PlanFile, ProfileOption, invocation_of
from amplifier_cli.plan_choice import chosen_plan
from amplifier_cli.terminal.render import styled, write, write_fields, write_json, write_table
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import bare_name, find_package, module_id_of
from amplifierd.home import Home
from amplifierd.profiles.builds.installed_modules import ModuleFacts, installed_facts, read_facts

app = new_group(
    "List, inspect, validate and create modules.\n\n"
    "A module is a Python package that mounts a tool, a hook, a provider, an orchestrator or a context manager. "
    "Profiles, bundles and plans name it and its source.",
    "amplifier module list",
    "amplifier module new word-count --type tool",
    "amplifier module validate ./word-count",
)


@app.command("list", epilog=examples("amplifier module list", "amplifier module list --profile coding --json"))
def list_modules(
    ctx: typer.Context,
    module_type: Annotated[ModuleType | None, typer.Option("--type", help="Only modules of this type.")] = None,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """List the installed modules, or those of a profile, a bundle or a plan."""
    if profile is None and bundle is None and plan is None:
        found = [each for each in installed_facts() if module_type in (None, each.module_type)]
        if as_json:
            write_json([{**asdict(each), "summary": each.summary} for each in found])
            return
        rows = [(each.module_id, each.module_type, each.version, each.summary) for each in found]
        write_table(("MODULE", "TYPE", "VERSION", "FOR"), rows, empty="No modules are installed")
        return

    async def work(home: Home) -> None:
        chosen = await chosen_plan(home, invocation_of(ctx), profile, bundle=bundle, file=plan)
        locked = {each["name"]: each for each in chosen.build.lock.modules()} if chosen.build else {}
        entries = [entry for entry in MountPlan(chosen.plan).entries() if module_type in (None, entry.module_type)]
        named = [
            {
                "module_id": entry.identity,
                "module_type": entry.module_type,
                "version": (lock := locked.get(entry.module_id, {})).get("commit") or lock.get("version"),
                "source": (lock.get("ref") if lock else entry.source) or "installed",
                "instead_of": chosen.replaced.get(entry.identity),
            }
            for entry in entries
        ]
        if as_json:
            write_json(named)
            return
        rows = [
            (
                each["module_id"],
                each["module_type"],
                each["version"],
                f"{each['source']}, not {each['instead_of']}" if each["instead_of"] else each["source"],
            )
            for each in named
        ]
        write_table(("MODULE", "TYPE", "VERSION", "SOURCE"), rows, empty=f"{chosen.name} has no such module")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier module show tool-bash", "amplifier module show ./my-tool"))
def show(
    module: Annotated[
        str, typer.Argument(metavar="MODULE", help="The ID of an installed module, or a folder.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Show a module's type, location and configuration."""
    facts = find_facts(module)
    if as_json:
        write_json({**asdict(facts), "summary": facts.summary})
        return
    about = {"module": facts.module_id, "type": facts.module_type, "version": facts.version, "path": facts.path}
    readme = Path(facts.path).parent / "README.md"
    write_fields({**about, "readme": str(readme) if readme.is_file() else None})
    if facts.documentation:
        write(f"\n{facts.documentation}")


@app.command(
    epilog=examples("amplifier module validate ./my-tool", "amplifier module validate ./my-module --type provider")
)
def validate(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The module's folder or its package.", show_default=False)
    ],
    module_type: Annotated[
        ModuleType | None, typer.Option("--type", help="Its type, if it does not declare one.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Import and mount a module in isolation, and check it against the contract of its type.

    Exits with 1 if a check fails. This runs the module's code: validate only what you trust.
    """
    from amplifier_core.validation.base import validate_module  # loads the whole kernel

    if not Path(path).exists():
        raise UsageError(f"{path} does not exist", hint="name the folder of a module")
    with redirect_stdout(sys.stderr):  # what the module prints is not our answer
        result = finish(validate_module(path, module_type))
    if as_json:
        checks = [asdict(check) for check in result.checks]
        write_json({"module_type": result.module_type, "passed": result.passed, "checks": checks})
    else:
        for check in result.checks:
            mark = (
                styled("✓", "green") if check.passed else styled("✗", "red" if check.severity == "error" else "yellow")
            )
            write(f"{mark} {check.name}: {check.message}")
        write(result.summary())
    if not result.passed:
        raise typer.Exit(ExitCode.FAILURE)


@app.command(
    epilog=examples(
        "amplifier module new word-count --type tool",
        "amplifier module new hooks-audit",
        "amplifier module new tool-x --dir src",
    )
)
def new(
    name: Annotated[str, typer.Argument(help="Its name, and that of its folder.", show_default=False)],
    module_type: Annotated[
        ModuleType | None, typer.Option("--type", help="Its type, unless the name begins with it.", show_default=False)
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The directory to create its folder in.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Create a working module with passing tests, for you to change."""
    chosen = find_module_type(name, module_type)
    module_id = module_id_for(name, chosen)
    folder = directory / name
    written = write_module(folder, module_id, chosen)
    if as_json:
        write_json({"module_id": module_id, "module_type": chosen, "files": [str(file) for file in written]})
        return
    place = folder if folder.is_absolute() else f"./{folder}"
    write(f"{place} contains the module {module_id}:")
    for file in written:
        write(f"  {file.relative_to(folder)}")
    write(f"\nCheck it:      amplifier module validate {place}")
    write(f"Test it:       python -m pytest {place}")
    write(f"Use it:        {place}/README.md explains how")


def find_facts(typed: str) -> ModuleFacts:
    """Return the facts of an installed module, or of the one in a folder.

    Raises:
        UsageError: there is neither.
    """
    if "/" in typed or typed.startswith("."):
        package = find_package(Path(typed)) if Path(typed).is_dir() else None
        if package is None:
            raise UsageError(f"{typed} does not contain a module", hint="name the folder with its pyproject.toml")
        return read_facts(module_id_of(Path(typed)), package, None)
    known = {facts.module_id: facts for facts in installed_facts()}
    see = "amplifier module list shows them; ./NAME is a folder"
    return known[pick(typed, known, "module", key=bare_name, see=see)]
