"""`amplifier routing`: which model serves which kind of work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import resolve_app_config
from amplifier_cli.failures import UsageError, pick
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Bundle, Json, PlanFile, ProfileOption, checked_source, invocation_of
from amplifier_cli.session_choice import chosen_agent
from amplifier_cli.terminal.render import write, write_fields, write_json, write_table
from amplifier_system.model_choice import MODEL_ROLE_RESOLVER
from amplifierd.home import Home
from amplifierd.sessions.routing import routing_of
from amplifierd.sessions.tool_session import open_tools
from amplifierd.settings_file import edit_settings

T = TypeVar("T")

app = new_group(
    "See which model serves which kind of work, and why.\n\n"
    "A matrix says for each role which models may serve it. What is shown is decided as a session decides it, with "
    "the providers and keys that you have.",
    "amplifier routing show",
    "amplifier routing explain explorer",
)


@app.command("list", epilog=examples("amplifier routing list", "amplifier routing list --json"))
def list_matrices(
    ctx: typer.Context,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """List the matrices that an agent could use; the one in use is marked."""

    async def work(coordinator: Any) -> list[dict[str, Any]]:
        resolver = _resolver(coordinator)
        return [{**each, "is_used": each["name"] == resolver.name} for each in await resolver.matrices()]

    found = _inside(ctx, profile, bundle, plan, work)
    if as_json:
        write_json(found)
        return
    rows = [("*" if one["is_used"] else "", one["name"], one["problem"] or one["description"]) for one in found]
    write_table(("", "MATRIX", "FOR"), rows, empty="There are no matrices")


@app.command(epilog=examples("amplifier routing show", "amplifier routing show --profile coding --json"))
def show(
    ctx: typer.Context,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Show the model that each role and each agent will really get, and what was passed over."""
    report = _inside(ctx, profile, bundle, plan, routing_of)
    if as_json:
        write_json(report)
        return
    default = _named(report["default"])
    write_fields({"matrix": report["matrix"] or "none", "from": report["source"], "without a role": default})
    write("")
    rows = [(one["role"], _named(one), _place(one), _passed(one["passed"])) for one in report["roles"]]
    write_table(("ROLE", "MODEL", "CANDIDATE", "PASSED OVER"), rows, empty="No role is served")
    if report["agents"]:
        write("")
        agents = [(one["agent"], _named(one), one["reason"]) for one in report["agents"]]
        write_table(("AGENT", "MODEL", "DECIDED BY"), agents)


@app.command(epilog=examples("amplifier routing explain explorer", "amplifier routing explain explorer --json"))
def explain(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Its name or the start of it.", show_default=False)],
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Show why an agent works with the model that it has."""

    async def work(coordinator: Any) -> dict[str, Any]:
        report = await routing_of(coordinator)
        agents = {one["agent"]: one for one in report["agents"]}
        found = agents[pick(agent, agents, "agent", see=f"there are {', '.join(agents) or 'none'}")]
        resolver = coordinator.get_capability(MODEL_ROLE_RESOLVER)
        explained = {role: await resolver.explain(role) for role in found["model_role"]} if resolver else {}
        return {**found, "matrix": report["matrix"], "candidates": explained}

    found = _inside(ctx, profile, bundle, plan, work)
    if as_json:
        write_json(found)
        return
    write_fields({"agent": found["agent"], "model": _named(found), "decided by": found["reason"]})
    for role, candidates in found["candidates"].items():
        write("")
        rows = [(_named(one), one["verdict"], one["why"]) for one in candidates]
        write_table((role.upper(), "VERDICT", "WHY"), rows, empty=f"the matrix has no role {role}")


@app.command(epilog=examples("amplifier routing check routing/mine.yaml"))
def check(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A matrix.", show_default=False)],
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Check a matrix in a file; exits with 1 if it cannot be used."""

    async def work(coordinator: Any) -> list[str]:
        problems: list[str] = await _resolver(coordinator).check(str(file))
        return problems

    problems = _inside(ctx, profile, bundle, plan, work)
    if as_json:
        write_json({"file": str(file), "problems": problems})
    else:
        write("\n".join(problems) or f"{file} can be used")
    if problems:
        raise typer.Exit(1)


@app.command(epilog=examples("amplifier routing use economy", "amplifier routing use --unset"))
def use(
    ctx: typer.Context,
    matrix: Annotated[str | None, typer.Argument(help="Its name.", show_default=False)] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Use that of each profile again.")] = False,
    profile: ProfileOption = None,
) -> None:
    """Have all new sessions of this home use a matrix, instead of their profile's."""
    if (matrix is None) != unset:
        raise UsageError("name a matrix, or give --unset", hint="amplifier routing list shows them")

    async def known(coordinator: Any) -> list[str]:
        return [str(each["name"]) for each in await _resolver(coordinator).matrices()]

    if matrix is not None and matrix not in (names := _inside(ctx, profile, None, None, known)):
        raise UsageError(f"there is no matrix {matrix!r}", hint=f"there are {', '.join(names)}")

    async def store(home: Home) -> None:
        edit_settings(home.paths.settings_file, {"routing.matrix": matrix}, locks_dir=home.paths.locks)

    in_home(ctx, store)
    write(f"new sessions use {matrix}" if matrix else "new sessions use the matrix of their profile")


def _inside(
    ctx: typer.Context,
    profile: str | None,
    bundle: str | None,
    plan: Path | None,
    work: Callable[[Any], Awaitable[T]],
) -> T:
    """Open a session of an agent, which is not kept, and return what is found in it."""

    async def opened(home: Home) -> T:
        checked_source(profile, bundle, plan)
        config = resolve_app_config({"profile": profile, "bundle": bundle}, home=invocation_of(ctx).home)
        agent = {**await chosen_agent(home, config, plan_file=plan), "working_dir": Path.cwd()}
        async with open_tools(home.sessions, keep=False, **agent) as session:
            return await work(session.session.runner.kernel.session.coordinator)

    return in_home(ctx, opened)


def _resolver(coordinator: Any) -> Any:
    resolver = coordinator.get_capability(MODEL_ROLE_RESOLVER)
    if resolver is None or not callable(getattr(resolver, "matrices", None)):
        raise UsageError("this agent has no routing", hint="add the module hooks-routing to its hooks")
    return resolver


def _named(one: Any) -> str:
    return f"{one['provider'] or 'none'}/{one['model'] or 'its own model'}"


def _place(one: Any) -> str:
    return f"{one['position']}" if one["is_served"] else "none: the session's own"


def _passed(candidates: list[dict[str, Any]]) -> str:
    return "; ".join(f"{_named(one)}: {one['verdict']}" for one in candidates)
