"""Options that several commands have, with one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="ID", help="The profile to run; its name alone will do.")
]
Bundle = Annotated[str | None, typer.Option("--bundle", metavar="REF", help="The bundle to run, by name or source.")]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="The mount plan to run, as JSON or YAML.")
]
Provider = Annotated[
    str | None, typer.Option("-p", "--provider", metavar="NAME", help="The provider to ask, of those in the profile.")
]
Model = Annotated[str | None, typer.Option("-m", "--model", metavar="NAME", help="The model to ask.")]
Effort = Annotated[
    str | None, typer.Option("--effort", metavar="LEVEL", help="How hard the model thinks: low, medium, high, …")
]
MaxIterations = Annotated[
    int | None, typer.Option("--max-iterations", min=1, metavar="N", help="Most calls of the model in a turn.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", min=0, metavar="USD", help="Most money that the session may use.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer yes to every question of the agent.")]
Daemon = Annotated[
    bool | None,
    typer.Option(
        "--daemon/--no-daemon",
        help="Run in the daemon, or in this process; else in a daemon if one runs.",
        show_default=False,
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Fetch nothing.")]
Frozen = Annotated[bool, typer.Option("--frozen", help="Refuse a profile whose build is not exactly what is locked.")]


def checked_source(profile: str | None, bundle: str | None, plan: Path | None) -> None:
    """Refuse more than one agent.

    Raises:
        UsageError: two are named.
    """
    if len([each for each in (profile, bundle, plan) if each]) > 1:
        from .failures import UsageError  # loads the kernel, which options alone do not need

        raise UsageError("--profile, --bundle and --plan each name an agent", hint="use one of them")
