"""Options that several commands have, with one wording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from amplifier_system.permission_levels import PermissionLevel

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="ID", help="The profile to use, by id or name.")
]
Bundle = Annotated[str | None, typer.Option("--bundle", metavar="REF", help="The bundle to use, by name or source.")]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="The mount plan to use, as JSON or YAML.")
]
Provider = Annotated[
    str | None, typer.Option("-p", "--provider", metavar="NAME", help="Which of the profile's providers to use.")
]
Model = Annotated[str | None, typer.Option("-m", "--model", metavar="NAME", help="The model to use.")]
Effort = Annotated[
    str | None, typer.Option("--effort", metavar="LEVEL", help="How hard the model thinks: low, medium, high, …")
]
MaxIterations = Annotated[
    int | None, typer.Option("--max-iterations", min=1, metavar="N", help="Limit on model calls per turn.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", min=0, metavar="USD", help="Spending limit for the session, in dollars.")
]
Permissions = Annotated[
    PermissionLevel | None,
    typer.Option("--permissions", help="What the agent may do without asking; plan: nothing is written or executed."),
]
Full = Annotated[bool, typer.Option("--full", help="Show the whole conversation, not just its last exchange.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve everything the agent asks for.")]
Daemon = Annotated[
    bool | None,
    typer.Option(
        "--daemon/--no-daemon",
        help="Run in the daemon or in this process; by default in the daemon if it is running.",
        show_default=False,
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Do not use the network.")]
Frozen = Annotated[bool, typer.Option("--frozen", help="Fail if the profile's build does not match its lock.")]


def checked_source(profile: str | None, bundle: str | None, plan: Path | None) -> None:
    """Refuse more than one agent.

    Raises:
        UsageError: two are named.
    """
    if len([each for each in (profile, bundle, plan) if each]) > 1:
        from .failures import UsageError  # loads the kernel, which options alone do not need

        raise UsageError("--profile, --bundle and --plan each name an agent", hint="use one of them")


# What was said before the command's name, `amplifier --home DIR …`: the same for all commands.


@dataclass(frozen=True)
class Invocation:
    """The options of the command itself; `home` is None where the environment names it."""

    home: Path | None = None
    debug: bool = False


def invocation_of(ctx: typer.Context) -> Invocation:
    found = ctx.find_root().obj
    return found if isinstance(found, Invocation) else Invocation()
