"""`amplifier chat`: a conversation at the terminal."""

from __future__ import annotations

from typing import Any

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.options import (
    Bundle,
    Daemon,
    Effort,
    Frozen,
    MaxCost,
    MaxIterations,
    Model,
    Offline,
    Permissions,
    PlanFile,
    ProfileOption,
    Provider,
    Yes,
    checked_source,
)

app = single_command()


@app.command(
    epilog=examples("amplifier", "amplifier chat --profile coding", "amplifier chat -p anthropic -m claude-sonnet-5")
)
def chat(
    ctx: typer.Context,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    provider: Provider = None,
    model: Model = None,
    effort: Effort = None,
    max_iterations: MaxIterations = None,
    max_cost: MaxCost = None,
    permissions: Permissions = None,
    yes: Yes = False,
    offline: Offline = False,
    frozen: Frozen = False,
    daemon: Daemon = None,
) -> None:
    """Chat with an agent that works in the current directory; amplifier alone does the same.

    Enter sends a line, or steers the agent while it works; Alt-Enter queues the next prompt. @path includes a file,
    /help lists the chat commands. Ctrl-C stops a turn, Ctrl-D ends the chat; the session is kept.
    """
    from amplifier_cli.chat.start import begin_chat  # needs a terminal's libraries

    checked_source(profile, bundle, plan)
    flags: dict[str, Any] = {"profile": profile, "bundle": bundle, "provider": provider, "model": model}
    flags |= {"effort": effort, "max_iterations": max_iterations, "max_cost": max_cost, "offline": offline or None}
    flags["permissions"] = permissions
    raise typer.Exit(begin_chat(ctx, flags, plan=plan, yes=yes, frozen=frozen, daemon=daemon))
