"""`amplifier bundle`: composable agents, by name or from anywhere."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import Local, Project, SettingsFiles, chosen_layer, resolve_app_config, store_settings
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError, pick
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json, Offline, invocation_of
from amplifier_cli.plan_choice import find_bundle
from amplifier_cli.session_choice import absolute_source, base_profile, bundle_source
from amplifier_cli.terminal.render import ago, counted, shortened, styled, write, write_fields, write_json, write_table
from amplifier_core.mount_plan import SESSION_MEMBERS, MountPlan, PlanEntry
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.registry import BundleState
from amplifier_foundation.validator import BundleValidator
from amplifierd.home import Home
from amplifierd.plans.composition import Composition
from amplifierd.profiles.bundles import open_bundles
from amplifierd.sessions.secret_values import without_secrets

app = new_group(
    "Register, inspect and use bundles.\n\n"
    "A bundle is a file, bundle.md or bundle.yaml, that names the modules of an agent and includes other bundles. It "
    "comes from a git repository, a directory, a file or an archive.",
    "amplifier bundle add git+https://github.com/org/my-bundle@v1",
    "amplifier bundle show my-bundle",
    "amplifier bundle use my-bundle",
)

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="The name of a registered bundle, or a source.", show_default=False)
]
_WIDE = 100


@app.command("list", epilog=examples("amplifier bundle list", "amplifier bundle list --all --json"))
def list_bundles(
    ctx: typer.Context,
    included: Annotated[bool, typer.Option("--all", help="Include bundles that others include.")] = False,
    as_json: Json = False,
) -> None:
    """List the registered bundles."""

    async def work(home: Home) -> None:
        states = home.bundles.get_state()
        found = [states[name] for name in sorted(states) if included or _is_own(states[name])]
        if as_json:
            write_json([state.to_dict() for state in found])
            return
        rows = [(state.name, state.version, ago(_moment(state.loaded_at)), state.to_dict()["uri"]) for state in found]
        write_table(
            ("BUNDLE", "VERSION", "LOADED", "SOURCE"),
            rows,
            empty="There are no bundles yet: amplifier bundle add SOURCE",
        )

    in_home(ctx, work)


@app.command(epilog=examples("amplifier bundle show my-bundle", "amplifier bundle show ./bundle.md --json"))
def show(ctx: typer.Context, bundle: BundleArgument, offline: Offline = False, as_json: Json = False) -> None:
    """Show a bundle as sessions run it: modules and where each comes from, agents, context files and instruction."""

    async def work(home: Home) -> None:
        found = await find_bundle(home, bundle)
        settings = resolve_app_config(home=invocation_of(ctx).home)
        composition = await home.composer.compose(found, await base_profile(home, settings))
        described = {**_described(composition.bundle), **_composed(composition)}
        if as_json:
            write_json(described)
            return
        modules = {
            section: [one["module"] for one in described["modules"] if one["section"] == section]
            for section in ("orchestrator", "context", "providers", "tools", "hooks")
        }
        about = {key: described[key] for key in ("name", "version", "description", "source", "includes")}
        rest = {"agents": [*described["agents"]], "context files": [*described["context"]]}
        write_fields({**about, **modules, **rest})
        origins = dict.fromkeys(one["from"] for one in described["modules"])
        by_origin = {
            f"from {name}": [one["module"] for one in described["modules"] if one["from"] == name] for name in origins
        }
        write("")
        write_fields(by_origin)
        for note in composition.notes:
            write(f"{styled('note:', 'dim')} {note}")
        if found.instruction:
            write(f"\n{styled(shortened(found.instruction, _WIDE), 'dim')}")

    in_home(ctx, work, offline=offline or None)


@app.command(
    epilog=examples(
        "amplifier bundle add git+https://github.com/org/my-bundle@v1", "amplifier bundle add ./bundle.md --name mine"
    )
)
def add(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="A git+ address, a path or an archive.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Register it under this name instead of its own.")] = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Register a bundle by name, and fetch it with everything it includes. One that does not work is not added."""

    async def work(home: Home) -> None:
        registry, place = home.bundles, absolute_source(source)
        if name is not None:
            known = registry.find(name)
            if known is not None and known != place:
                raise UsageError(
                    f"there is already a bundle {name!r}, from {known}", hint=f"amplifier bundle remove {name}"
                )
            registry.register(name, place)
        loaded = await registry.load(name or place)
        called = name or loaded.name
        if not called or registry.find(called) is None:
            raise UsageError(
                f"the bundle in {source} has no name", hint="give it one: amplifier bundle add --name NAME"
            )
        registry.save()
        if as_json:
            write_json({"name": called, **_described(loaded)})
            return
        write(f"added the bundle {called}: amplifier run --bundle {shlex.quote(called)}")

    in_home(ctx, work, offline=offline or None)


@app.command(epilog=examples("amplifier bundle remove my-bundle"))
def remove(
    ctx: typer.Context, bundle: Annotated[str, typer.Argument(help="Its registered name.", show_default=False)]
) -> None:
    """Unregister a bundle. Your own files are not touched; amplifier source prune removes what was fetched."""

    async def work(home: Home) -> None:
        registered = _registered(home, bundle)
        home.bundles.unregister(registered)
        home.bundles.save()
        write(f"removed the bundle {registered}")

    in_home(ctx, work)


@app.command(
    epilog=examples(
        "amplifier bundle use my-bundle",
        "amplifier bundle use my-bundle --project",
        "amplifier config set bundle --unset",
    )
)
def use(ctx: typer.Context, bundle: BundleArgument, project: Project = False, local: Local = False) -> None:
    """Use a bundle for new sessions, instead of a profile."""
    layer = chosen_layer(project=project, local=local)

    async def work(home: Home) -> None:
        await home.composer.compose(await find_bundle(home, bundle))
        chosen = bundle_source(home.bundles, bundle)
        files = SettingsFiles.of(home.paths, Path.cwd())
        file = files.at(layer)
        with home.trust.following(files.project_dir):
            store_settings(file, {"bundle": chosen, "profile": None})
        write(f"new sessions use the bundle {chosen}; saved in {file}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier bundle validate ./bundle.md", "amplifier bundle validate my-bundle --strict"))
def validate(
    ctx: typer.Context,
    bundle: BundleArgument,
    part: Annotated[bool, typer.Option("--part", help="It is meant to be included, so it may be incomplete.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat missing parts as errors, also in includes.")] = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Check that a bundle is well formed and complete; exits with 1 if not."""

    async def work(home: Home) -> bool:
        found = await find_bundle(home, bundle, open_bundles(home.paths, home.settings, home.progress, strict=strict))
        validator = BundleValidator(strict=strict)
        result = validator.validate(found) if part else validator.validate_completeness(found)
        if as_json:
            write_json(asdict(result))
            return result.valid
        for text in result.errors:
            write(f"{styled('✗', 'red')} {text}")
        for text in result.warnings:
            write(f"{styled('!', 'yellow')} {text}")
        verdict = "is valid" if result.valid else "is not valid"
        count = f"{counted(len(result.errors), 'error')}, {counted(len(result.warnings), 'warning')}"
        write(f"{bundle} {verdict}: {count}")
        if not result.valid and not part and validator.validate(found).valid:
            hint = "sessions give it what it lacks, as amplifier bundle show says; --part checks it without that"
            write(styled(f"note: {hint}", "dim"))
        return result.valid

    if not in_home(ctx, work, offline=offline or None):
        raise typer.Exit(ExitCode.FAILURE)


def _is_own(state: BundleState) -> bool:
    """True if a bundle is more than a part of another."""
    return state.explicitly_requested or (state.is_root and not state.included_by)


def _registered(home: Home, typed: str) -> str:
    return pick(typed, home.bundles.list_registered(), "bundle", see="amplifier bundle list shows them")


def _described(bundle: Bundle) -> dict[str, Any]:
    plan = bundle.to_mount_plan()
    return {
        "name": bundle.name,
        "version": bundle.version,
        "description": bundle.description,
        "source": getattr(bundle, "_source_uri", None),
        "includes": [item if isinstance(item, str) else str(item.get("bundle", item)) for item in bundle.includes],
        "plan": without_secrets(plan),
        "agents": {name: str(agent.get("description") or "") for name, agent in (plan.get("agents") or {}).items()},
        "context": {name: str(path) for name, path in bundle.context.items()},
        "instruction": bundle.instruction,
    }


def _composed(composition: Composition) -> dict[str, Any]:
    """Return the plan that sessions run, and of every module which bundle or profile it is from."""
    modules = [
        {"section": entry.section, "module": entry.identity, "from": _origin_of(composition, entry)}
        for entry in MountPlan(composition.plan).entries()
    ]
    return {
        "plan": without_secrets(composition.plan),
        "modules": modules,
        "base_profile": composition.base_profile,
        "is_behaviour": composition.is_behaviour,
        "notes": composition.notes,
    }


def _origin_of(composition: Composition, entry: PlanEntry) -> str:
    place = entry.place if entry.section in SESSION_MEMBERS else f"{entry.section}[{_key_of(entry)}]"
    origin = composition.explain(f"{place}.module")["origin"]
    return str(origin["profile"] or "default")


def _key_of(entry: PlanEntry) -> str:
    return str(entry.spec.get("id") or entry.module_id)


def _moment(value: Any) -> str | None:
    return value.isoformat() if value else None
