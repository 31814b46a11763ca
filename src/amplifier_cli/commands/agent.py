"""`amplifier agent`: those that an agent can delegate to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.failures import pick
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Bundle, Json, PlanFile, ProfileOption, invocation_of
from amplifier_cli.plan_choice import ChosenPlan, chosen_plan
from amplifier_cli.terminal.render import write, write_fields, write_json, write_table
from amplifier_core.mount_plan import MountPlan
from amplifierd.home import Home
from amplifierd.sessions.secret_values import without_secrets

app = new_group(
    "List and show the agents of a profile or a bundle.\n\n"
    "An agent is an instruction with a description, and the changes it makes to its parent's plan. The model calls "
    "it by name; it works in a session of its own.",
    "amplifier agent list --profile coding",
    "amplifier agent show reviewer --profile coding",
)


@app.command("list", epilog=examples("amplifier agent list", "amplifier agent list --profile coding --json"))
def list_agents(
    ctx: typer.Context,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """List the agents of a profile, a bundle or a plan; by default of what new sessions use."""

    async def work(home: Home) -> None:
        chosen = await chosen_plan(home, invocation_of(ctx), profile, bundle=bundle, file=plan)
        agents = {name: _described(name, agent) for name, agent in _agents(chosen).items()}
        if as_json:
            write_json([*agents.values()])
            return
        rows = [(name, agent["description"]) for name, agent in agents.items()]
        write_table(("AGENT", "FOR"), rows, empty=f"{chosen.name} has no agents")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier agent show reviewer --profile coding"))
def show(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Its name or the start of it.", show_default=False)],
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Show an agent's description, its changes to the plan, and its instruction."""

    async def work(home: Home) -> None:
        chosen = await chosen_plan(home, invocation_of(ctx), profile, bundle=bundle, file=plan)
        agents = _agents(chosen)
        see = f"{chosen.name} has {', '.join(agents) or 'none'}"
        name = pick(agent, agents, "agent", see=see)
        described = _described(name, agents[name])
        if as_json:
            write_json({**described, "definition": without_secrets(agents[name])})
            return
        text = described.pop("instruction")
        write_fields(described)
        if text:
            write(f"\n{text.strip()}")

    in_home(ctx, work)


def _agents(chosen: ChosenPlan) -> dict[str, Mapping[str, Any]]:
    return {name: overlay.data for name, overlay in MountPlan(chosen.plan).overlays()}


def _described(name: str, agent: Mapping[str, Any]) -> dict[str, Any]:
    system = agent.get("system")
    inner = system.get("instruction") if isinstance(system, Mapping) else None
    metadata = agent.get("metadata")
    return {
        "name": name,
        "description": " ".join(str(agent.get("description") or "").split()),
        "source": metadata.get("source") if isinstance(metadata, Mapping) else None,
        "modules": [entry.identity for entry in MountPlan(agent).entries()],
        "instruction": str(inner or agent.get("instruction") or agent.get("content") or ""),
    }
