"""`amplifier run`: one task, one answer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.approval_prompt import approver_for
from amplifier_cli.command_group import examples, single_command
from amplifier_cli.config import ResolvedConfig
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.one_turn import Output, answers_alone, run_turn
from amplifier_cli.open_home import finish, opened_home
from amplifier_cli.options import (
    Bundle,
    Daemon,
    Effort,
    Frozen,
    Invocation,
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
    invocation_of,
)
from amplifier_cli.project_trust import trusted_config
from amplifier_cli.prompt_input import Prompt, read_prompt
from amplifier_cli.resumption import attended, refuse_missing, resumed
from amplifier_cli.session_choice import chosen_agent, find_session
from amplifier_cli.session_places import agreed_directory, place_for
from amplifierd.store.record import checked_name

app = single_command()


@app.command(
    epilog=examples(
        'amplifier run "What does this project do?"',
        'git diff | amplifier run "Write a commit message"',
        'amplifier run "What is wrong here?" -f error.log -f screen.png',
        'amplifier run --profile coding --yes "Make the tests pass"',
        'amplifier run --output json "List files" | jq .response',
        'amplifier run --resume last "And now in Spanish"',
    )
)
def run(
    ctx: typer.Context,
    prompt: Annotated[
        list[str] | None, typer.Argument(help="What to do; piped text is appended.", show_default=False)
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", help="A text or image file to attach; can be repeated.", show_default=False),
    ] = None,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    provider: Provider = None,
    model: Model = None,
    effort: Effort = None,
    max_iterations: MaxIterations = None,
    max_cost: MaxCost = None,
    permissions: Permissions = None,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="The answer, one JSON object, or every event as a line of JSON.")
    ] = "text",
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Continue a session: its id or the start of it, its name, or last.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for the session.")] = None,
    yes: Yes = False,
    offline: Offline = False,
    frozen: Frozen = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail, before anything is asked, if a module of the agent is missing.")
    ] = False,
    daemon: Daemon = None,
) -> None:
    """Give an agent one task and print its answer.

    The agent works in the current directory. On a terminal you see what it does and are asked before anything risky;
    in a pipe only the answer is printed, and risky steps are denied unless you add --yes. Ctrl-C stops the model at
    once and lets running tools finish, a second Ctrl-C stops those too; either way you can continue the session later.
    If the daemon is running, the task runs there.
    """
    asked = read_prompt(prompt or [], file or [])
    flags: dict[str, Any] = {"profile": profile, "bundle": bundle, "provider": provider, "model": model}
    flags |= {"effort": effort, "max_iterations": max_iterations, "max_cost": max_cost, "offline": offline or None}
    flags["permissions"] = permissions
    checked_source(profile, bundle, plan)
    checked_name(name)
    invocation = invocation_of(ctx)
    config = trusted_config(flags, home=invocation.home)
    work = _run(
        invocation,
        config,
        asked,
        plan=plan,
        output=output,
        resume=resume,
        name=name,
        yes=yes,
        frozen=frozen,
        strict=strict,
        daemon=daemon,
        flags=flags,
    )
    raise typer.Exit(finish(work))


async def _run(
    invocation: Invocation,
    config: ResolvedConfig,
    prompt: Prompt,
    *,
    plan: Path | None,
    output: Output,
    resume: str | None,
    name: str | None,
    yes: bool,
    frozen: bool,
    strict: bool,
    daemon: bool | None,
    flags: dict[str, Any],
) -> ExitCode:
    values = config.values
    async with opened_home(invocation, offline=values.offline, config=config) as home, AsyncExitStack() as stack:
        record = find_session(home, resume) if resume is not None else None
        directory = Path.cwd() if record is None else record.working_dir
        is_guarded = agreed_directory(directory, home.paths, daemon=daemon)
        approver = approver_for(yes=yes and not is_guarded, how=values.notify)
        place = await stack.enter_async_context(place_for(home, False if is_guarded else daemon, config))
        if record is not None:
            opening = resumed(home, place, record, approver, flags, plan=plan)
        else:
            agent = await chosen_agent(home, config, plan_file=plan, frozen=frozen)
            opening = place.open(agent, approver, name=name)
        answers = stack.enter_context(answers_alone())
        session = await stack.enter_async_context(attended(home, opening))
        if strict:
            refuse_missing(session.record)
        return await run_turn(
            session,
            prompt,
            output=output,
            answers=answers,
            show_thinking=values.show_thinking,
            bell_after=values.bell_after,
            how=values.notify,
        )
