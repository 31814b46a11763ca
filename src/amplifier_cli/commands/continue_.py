"""`amplifier continue`: the last session of this directory goes on."""

from __future__ import annotations

from typing import Any

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.options import (
    Daemon,
    Effort,
    Full,
    MaxCost,
    MaxIterations,
    Model,
    Permissions,
    ProfileOption,
    Provider,
    Yes,
)

app = single_command()


@app.command(
    epilog=examples(
        "amplifier continue", "amplifier continue --profile coding", "amplifier continue -m claude-sonnet-5"
    )
)
def continue_(
    ctx: typer.Context,
    profile: ProfileOption = None,
    provider: Provider = None,
    model: Model = None,
    effort: Effort = None,
    max_iterations: MaxIterations = None,
    max_cost: MaxCost = None,
    permissions: Permissions = None,
    yes: Yes = False,
    daemon: Daemon = None,
    full: Full = False,
) -> None:
    """Continue the last session of the current directory, and show its last exchange.

    If it was cut off by a crash, it is repaired first: the agent is told which tool calls have an unknown outcome, and
    none of them is run again.
    """
    from amplifier_cli.chat.start import continue_chat  # needs a terminal's libraries

    flags: dict[str, Any] = {"profile": profile, "provider": provider, "model": model, "effort": effort}
    flags |= {"max_iterations": max_iterations, "max_cost": max_cost, "permissions": permissions}
    raise typer.Exit(continue_chat(ctx, None, flags=flags, yes=yes, daemon=daemon, full=full))
