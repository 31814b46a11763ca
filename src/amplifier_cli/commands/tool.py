"""`amplifier tool`: what an agent can do, and doing it by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_cli.approval_prompt import approver_for
from amplifier_cli.attended_session import Interrupts
from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import resolve_app_config
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.failures import UsageError, pick, say
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Bundle, Json, PlanFile, ProfileOption, Yes, checked_source, invocation_of
from amplifier_cli.session_choice import chosen_agent
from amplifier_cli.session_names import short_id
from amplifier_cli.terminal.render import styled, write, write_json, write_table
from amplifier_system.near_names import did_you_mean
from amplifier_system.visible import write_exactly
from amplifierd.exceptions import ExecutionError
from amplifierd.home import Home
from amplifierd.sessions.tool_session import ToolFacts, ToolOutcome, ToolSession, open_tools

app = new_group(
    "List the tools of an agent, and call them yourself.\n\n"
    "A call from here is treated like one from the model: hooks, policy and sandbox apply, and you are asked for "
    "approval where the agent would have to ask.",
    "amplifier tool list --profile coding",
    "amplifier tool invoke read_file file_path=README.md",
)

ToolArgument = Annotated[str, typer.Argument(metavar="TOOL", help="Its name or the start of it.", show_default=False)]


@app.command("list", epilog=examples("amplifier tool list", "amplifier tool list --profile coding --json"))
def list_tools(
    ctx: typer.Context,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """List the tools of a profile, a bundle or a plan, as the model sees them."""

    async def work(home: Home) -> tuple[ToolFacts, ...]:
        agent = await _agent(ctx, home, profile, bundle, plan)
        async with open_tools(home.sessions, keep=False, **agent) as opened:
            return opened.tools()

    found = in_home(ctx, work)
    if as_json:
        write_json([asdict(tool) for tool in found])
        return
    rows = [(tool.name, _first_sentence(tool.description)) for tool in found]
    write_table(("TOOL", "FOR"), rows, empty="There are no tools")


@app.command(epilog=examples("amplifier tool info read_file", "amplifier tool info bash --profile coding --json"))
def info(
    ctx: typer.Context,
    tool: ToolArgument,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    as_json: Json = False,
) -> None:
    """Show a tool's description and input schema."""

    async def work(home: Home) -> ToolFacts:
        agent = await _agent(ctx, home, profile, bundle, plan)
        async with open_tools(home.sessions, keep=False, **agent) as opened:
            return _picked(opened, tool)

    found = in_home(ctx, work)
    if as_json:
        write_json(asdict(found))
        return
    write(f"{styled(found.name, 'bold')}\n\n{found.description.strip()}\n")
    required = found.input_schema.get("required") or ()
    properties = found.input_schema.get("properties")
    given: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    rows = [
        (name, _type(schema), name in required, schema.get("description") if isinstance(schema, Mapping) else "")
        for name, schema in given.items()
    ]
    write_table(("INPUT", "TYPE", "NEEDED", "FOR"), rows, empty="It takes no input")


@app.command(
    epilog=examples(
        "amplifier tool invoke read_file file_path=README.md",
        "amplifier tool invoke bash command='git status' --profile coding",
        "amplifier tool invoke write_file --input @call.json --json",
    )
)
def invoke(
    ctx: typer.Context,
    tool: ToolArgument,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its input.", show_default=False)
    ] = None,
    given: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Its input as JSON, @FILE, or - for stdin.")
    ] = None,
    profile: ProfileOption = None,
    bundle: Bundle = None,
    plan: PlanFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Call a tool in the current directory and print what the model would see; exits with 1 if it fails.

    The call is stored as a session, so amplifier session diff and undo work on it.
    """

    async def work(home: Home) -> ToolOutcome:
        agent = await _agent(ctx, home, profile, bundle, plan)
        async with open_tools(home.sessions, approver=approver_for(yes=yes), **agent) as opened:
            chosen = _picked(opened, tool)
            arguments = read_input(pairs or [], given, chosen.input_schema)
            with Interrupts(opened.session, say) as interrupts:
                try:
                    return await opened.invoke(chosen.name, arguments)
                except ExecutionError:
                    if interrupts.count:
                        raise typer.Exit(ExitCode.INTERRUPTED) from None
                    raise

    outcome = in_home(ctx, work)
    if as_json:
        write_json(asdict(outcome))
    else:
        output = outcome.output
        write_exactly(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2))
        if sys.stdout.isatty():
            write(styled(f"session {short_id(outcome.session_id)}", "dim"))
    if not outcome.success:
        raise typer.Exit(ExitCode.FAILURE)


async def _agent(
    ctx: typer.Context, home: Home, profile: str | None, bundle: str | None, plan: Path | None
) -> dict[str, Any]:
    checked_source(profile, bundle, plan)
    config = resolve_app_config({"profile": profile, "bundle": bundle}, home=invocation_of(ctx).home)
    return {**await chosen_agent(home, config, plan_file=plan), "working_dir": Path.cwd()}


def _picked(opened: ToolSession, typed: str) -> ToolFacts:
    known = {tool.name: tool for tool in opened.tools()}
    return known[pick(typed, known, "tool", see=f"there are {', '.join(known) or 'none'}")]


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    options = schema.get("anyOf") or ()
    names = schema.get("type") or [option.get("type") for option in options if isinstance(option, Mapping)]
    choices = schema.get("enum")
    if isinstance(choices, list):
        return " | ".join(map(str, choices))
    return names if isinstance(names, str) else " | ".join(str(name) for name in names if name)


def read_input(pairs: Sequence[str], given: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input that `KEY=VALUE` pairs and a JSON object make together; pairs count more.

    `given` is JSON, `@FILE`, or `-` for stdin. A value is a text where the schema asks for one, else JSON if it is.

    Raises:
        UsageError: something is neither.
    """
    found = _object(given) if given is not None else {}
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE", hint=_example(known))
        if known and key not in known and schema.get("additionalProperties") is not True:
            hint = did_you_mean(key, known) or f"it takes {', '.join(known)}"
            raise UsageError(f"the tool takes no {key!r}", hint=hint)
        found[key] = _value(text, known.get(key))
    return found


def _object(given: str) -> dict[str, Any]:
    try:
        if given == "-":
            text = sys.stdin.read()
        else:
            text = Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given
    except OSError as error:
        raise UsageError(f"{given[1:]} cannot be read: {error.strerror}", hint="name a file with JSON") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the input is not JSON: {error}", hint='write an object, as in \'{"path": "."}\'') from error
    if not isinstance(value, dict):
        raise UsageError("the input is not an object", hint='write one, as in \'{"path": "."}\'')
    return value


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _example(known: Mapping[str, Any]) -> str:
    return f"write it as {next(iter(known), 'key')}=VALUE"
