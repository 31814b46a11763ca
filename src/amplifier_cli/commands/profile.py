"""`amplifier profile`: agents as files, compiled into builds that never change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError
from amplifier_cli.installation import install_words, missing_for
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json, Offline
from amplifier_cli.session_choice import find_profile
from amplifier_cli.terminal.render import counted, styled, write, write_fields, write_json, write_table
from amplifier_core.mount_plan import MountPlan
from amplifierd.home import Home
from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue, errors
from amplifierd.profiles.builds.staleness import ProfileStatus
from amplifierd.yaml_edits import replace_text

app = new_group(
    "List, check and compile profiles.\n\n"
    "Name a profile by its id, foundation/coding, or by its name alone if that is unique.",
    "amplifier profile list",
    "amplifier profile new helper --extends foundation/coding",
    "amplifier profile compile helper",
)

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help="Its id or name.", show_default=False)]

_TEMPLATE = """\
---
profile:
  name: {name}
  version: 1.0.0
  description: {description}
  extends: {extends}
  schema_version: 2

# What you write here is laid over what the profile extends. For example:
#
# tools:
# - module: tool-bash
# providers:
# - module: provider-anthropic
#   config:
#     default_model: claude-sonnet-5
---

You are {name}. Say here what the agent is for and how it should work.
"""


@app.command("list", epilog=examples("amplifier profile list", "amplifier profile list --json"))
def list_profiles(ctx: typer.Context, as_json: Json = False) -> None:
    """List the profiles of all collections; your own are in the collection local."""

    async def work(home: Home) -> None:
        await home.collections.extract_missing()
        profiles = home.profiles.list()
        if as_json:
            write_json([profile.to_dict() for profile in profiles])
            return
        rows = [
            (p.profile_id, p.version, _state(valid=p.valid, compiled=p.is_compiled), p.description) for p in profiles
        ]
        write_table(("PROFILE", "VERSION", "STATE", "ABOUT"), rows)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier profile show coding", "amplifier profile show coding --json"))
def show(ctx: typer.Context, profile: ProfileArgument, as_json: Json = False) -> None:
    """Show a profile with everything it inherits."""

    async def work(home: Home) -> None:
        profile_id = await find_profile(home, profile)
        await home.profiles.ensure_extracted(profile_id)
        found, merged = home.profiles.get(profile_id), home.profiles.merged(profile_id)
        sections = {key: value for key, value in merged.sections.items() if value}
        if as_json:
            write_json({**found.to_dict(), "sections": sections, "instruction": merged.body})
            return
        ancestors = [str(document.profile_id) for document in reversed(merged.ancestors)]
        about = {"profile": str(profile_id), "version": found.version, "about": found.description}
        write_fields(
            {
                **about,
                "extends": ancestors,
                "file": found.path,
                "state": _state(valid=found.valid, compiled=found.is_compiled),
            }
        )
        write()
        write(_as_yaml(sections))
        write(merged.body.strip())
        _write_issues(merged.issues)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier profile validate coding", "amplifier profile validate ./helper.md"))
def validate(
    ctx: typer.Context,
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Its id or name, or a file.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Check a profile and report problems with file and line; exits with 1 if there is an error."""

    file = Path(profile)
    is_file = file.suffix == ".md" or file.is_file()
    if is_file and not file.is_file():
        raise UsageError(f"{file} is not a file", hint="name a profile, or a file that exists")

    async def work(home: Home) -> ExitCode:
        await home.collections.extract_missing()
        issues = home.profiles.validate(file) if is_file else await _issues_of(home, profile)
        if as_json:
            write_json([issue.to_dict() for issue in issues])
        else:
            _write_issues(issues)
            found = len(errors(issues))
            write(f"{profile} has {counted(found, 'error')} and {counted(len(issues) - found, 'warning')}")
        return ExitCode.FAILURE if errors(issues) else ExitCode.OK

    raise typer.Exit(in_home(ctx, work))


@app.command(epilog=examples("amplifier profile compile coding", "amplifier profile compile coding --frozen"))
def compile(
    ctx: typer.Context,
    profile: ProfileArgument,
    force: Annotated[bool, typer.Option("--force", help="Resolve everything again, even if it is fresh.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask the remotes for newer commits, and fetch them.")
    ] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Fail if something is not locked.")] = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Resolve and lock everything a profile names; does nothing if its build is fresh."""

    async def work(home: Home) -> None:
        profile_id = await find_profile(home, profile)
        build = await home.profiles.compile(profile_id, force=force, refresh=refresh, frozen=frozen)
        about = {"profile": str(profile_id), "build": build.build_id, "status": build.status, "path": str(build.path)}
        if as_json:
            write_json({**about, "warnings": list(build.warnings)})
            return
        write_fields(about)
        for warning in build.warnings:
            write(styled(f"warning: {warning}", "yellow"))

    in_home(ctx, work, offline=offline or None)


@app.command(epilog=examples("amplifier profile verify coding"))
def verify(ctx: typer.Context, profile: ProfileArgument, as_json: Json = False) -> None:
    """Compare every file of a build with its lock; exits with 1 if they differ."""

    async def work(home: Home) -> ExitCode:
        found = await home.profiles.verify(await find_profile(home, profile))
        if as_json:
            write_json(found.to_dict())
        else:
            _write_status([found])
        return ExitCode.OK if found.status == "fresh" else ExitCode.FAILURE

    raise typer.Exit(in_home(ctx, work))


@app.command(epilog=examples("amplifier profile publish coding", "amplifier profile publish coding --force"))
def publish(
    ctx: typer.Context,
    profile: ProfileArgument,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="BUILD", help="The build; by default the newest one.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Upload it even if it is there already.")] = False,
    as_json: Json = False,
) -> None:
    """Upload a build to builds.url for other machines; compiling does this too."""

    async def work(home: Home) -> None:
        profile_id = await find_profile(home, profile)
        if build is None:
            await home.profiles.ensure(profile_id)
        published = await home.profiles.publish(profile_id, build, force=force)
        about = {"profile": str(profile_id), "build": published.build_id, "archive": published.archive_name}
        (write_json if as_json else write_fields)(about)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier profile fetch foundation/coding 5d1f0c…"))
def fetch(
    ctx: typer.Context,
    profile: ProfileArgument,
    build: Annotated[str, typer.Argument(metavar="BUILD", help="The full id of the build.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Download a build from builds.url, or rebuild it from its lock."""

    async def work(home: Home) -> None:
        profile_id = ProfileId.parse(profile) if "/" in profile else await find_profile(home, profile)
        found = await home.profiles.obtain(profile_id, build)
        about = {"profile": str(profile_id), "build": found.build_id, "status": found.status, "path": str(found.path)}
        (write_json if as_json else write_fields)(about)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier profile status", "amplifier profile status coding --json"))
def status(
    ctx: typer.Context,
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="By default all.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether builds are up to date, and why not; does not use the network."""

    async def work(home: Home) -> None:
        await home.collections.extract_missing()
        wanted = [await find_profile(home, profile)] if profile else home.collections.profile_ids()
        found = [await home.profiles.status(profile_id) for profile_id in wanted]
        if as_json:
            write_json([each.to_dict() for each in found])
        else:
            _write_status(found)

    in_home(ctx, work)


@app.command(
    epilog=examples("amplifier profile new helper", "amplifier profile new helper --extends foundation/coding")
)
def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    extends: Annotated[str, typer.Option(metavar="PROFILE", help="The profile it extends.")] = "foundation/base",
    description: Annotated[str, typer.Option(help="A one-line description.")] = "An agent of my own",
) -> None:
    """Create a profile of your own, ready to edit and run."""

    async def work(home: Home) -> None:
        if not is_collection_or_profile_name(name):
            raise UsageError(f"{name!r} is not a name for a profile", hint="use at most 64 of a-z 0-9 . _ -")
        parent = await find_profile(home, extends)
        file = home.paths.own_profiles / f"{name}.md"
        if file.exists():
            raise UsageError(f"{file} exists already", hint="edit it, or choose another name")
        replace_text(
            file, _TEMPLATE.format(name=name, extends=parent, description=yaml.safe_dump(description).splitlines()[0])
        )
        write(f"{file} is the new profile {ProfileId(LOCAL, name)}. Edit it, then: amplifier run --profile {name}")

    in_home(ctx, work)


async def _issues_of(home: Home, typed: str) -> tuple[Issue, ...]:
    profile_id = await find_profile(home, typed)
    await home.profiles.ensure_extracted(profile_id)
    found = home.profiles.get(profile_id)
    return (*found.issues, *(_missing_packages(home, profile_id) if found.valid else ()))


def _missing_packages(home: Home, profile_id: ProfileId) -> Iterator[Issue]:
    """Yield the modules of a profile whose packages are not installed."""
    for entry in MountPlan(dict(home.profiles.merged(profile_id).sections)).entries():
        if missing := missing_for(entry):
            message = f"{entry.module_id} needs packages that are not installed: {', '.join(missing)}"
            yield Issue("package-missing", message, fix=install_words(missing), severity="warning")


def _state(*, valid: bool, compiled: bool) -> str:
    return "invalid" if not valid else "compiled" if compiled else "not compiled"


def _write_status(found: list[ProfileStatus]) -> None:
    rows = [(each.profile_id, each.status, (each.build_id or "")[:12], _why(each)) for each in found]
    write_table(("PROFILE", "STATUS", "BUILD", "WHY"), rows)


def _why(found: ProfileStatus) -> str:
    return "; ".join(
        [*map(str, found.reasons), *map(str, found.issues if found.status == "invalid" else ()), *found.warnings]
    )


def _write_issues(issues: tuple[Issue, ...]) -> None:
    for issue in issues:
        write(f"{styled(issue.severity, 'red' if issue.severity == 'error' else 'yellow')}: {issue}")


def _as_yaml(value: Any) -> str:
    return str(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)).rstrip()


def _plain(value: Any) -> Any:
    """Return data without the types of ours that YAML does not know."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if type(value) in (str, int, float, bool, type(None)) else str(value)
