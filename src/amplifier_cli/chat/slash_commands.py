"""The commands of a chat: `/help` lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_cli.failures import UsageError
from amplifier_cli.message_text import message_text
from amplifier_cli.render import money, shortened, styled
from amplifier_cli.resumption import change_agent, same_agent
from amplifier_cli.session_choice import find_profile
from amplifier_cli.session_names import short_id
from amplifier_cli.suggestions import did_you_mean
from amplifierd.session_store.protocol import Message

from .goal import USAGE as GOAL
from .goal import pursue, read_goal

if TYPE_CHECKING:
    from .conversation import Chat

Run = Callable[["Chat", str], Awaitable[None]]
_WIDE = 70


@dataclass(frozen=True)
class SlashCommand:
    """What is done, and how it is explained; `usage` is what follows the name."""

    run: Run
    help: str
    usage: str = ""


async def run_command(chat: Chat, name: str, arguments: str) -> None:
    """Do what a command does.

    Raises:
        UsageError: there is no such command, or its arguments make no sense.
    """
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean(name, chat.command_helps()) or "/help lists the commands"
        raise UsageError(f"there is no command /{name}", hint=hint)
    await command.run(chat, arguments)


async def _help(chat: Chat, arguments: str) -> None:
    for name, command in COMMANDS.items():
        chat.page.line(f"  {styled(f'/{name} {command.usage}'.strip(), 'bold')}  {command.help}")
    for name, own in chat.own_commands().items():
        chat.page.line(f"  {styled(f'/{name}', 'bold')}  {own.description}")
    chat.page.line("  Enter sends, or steers the agent while it works; Alt-Enter queues, or begins a line.")
    chat.page.line("  Ctrl-O shows the last tool call in full, Ctrl-V pastes an image, or drag an image file here.")
    chat.page.line("  @path names a file, Ctrl-X Ctrl-E opens an editor, Ctrl-C stops a turn, Ctrl-D ends the chat.")


async def _status(chat: Chat, arguments: str) -> None:
    record = await chat.session.read()
    agent = record.profile_name or record.bundle or "plan"
    chat.page.line(f"  session {chat.short_id}{f' ({record.name})' if record.name else ''} in {record.working_dir}")
    chat.page.line(f"  agent {agent}, model {record.model or 'not asked yet'}, {record.turn_count} turns")
    for warning in record.load_warnings:
        chat.page.line(styled(f"  {warning.get('module_id')} is not there: {warning.get('error')}", "yellow"))


async def _tools(chat: Chat, arguments: str) -> None:
    for tool in sorted(await chat.session.tools(), key=lambda tool: str(tool["name"])):
        chat.page.line(f"  {styled(str(tool['name']), 'bold')}  {shortened(str(tool['description']), _WIDE)}")


async def _agents(chat: Chat, arguments: str) -> None:
    names = chat.agents()
    chat.page.line(f"  {', '.join(names)}" if names else "  this agent delegates to no other")


async def _profile(chat: Chat, arguments: str) -> None:
    if not arguments:
        chat.page.line(f"  {(await chat.session.read()).profile_name or 'none: a bundle or a plan runs'}")
        return
    profile = str(await find_profile(chat.home, arguments))
    await chat.session.change_profile(profile)
    chat.page.line(f"  from now on {profile} answers; it knows what was said")


async def _model(chat: Chat, arguments: str) -> None:
    if not arguments:
        chat.page.line(f"  {(await chat.session.read()).model or 'none was asked yet'}")
        return
    provider, _, model = arguments.rpartition("/")
    await change_agent(chat.home, chat.session, {"provider": provider or None, "model": model})
    chat.page.line(f"  from now on {arguments} is asked")


async def _effort(chat: Chat, arguments: str) -> None:
    if not arguments:
        raise UsageError("how hard should the model think?", hint="/effort low, medium, high, …")
    await change_agent(chat.home, chat.session, {"effort": arguments})
    chat.page.line(f"  from now on the model thinks with effort {arguments}")


async def _context(chat: Chat, arguments: str) -> None:
    parts = await chat.session.last_request()
    if not parts:
        chat.page.line("  no model was asked yet")
        return
    filled: dict[str, int] = {}
    for part in parts:
        name = f"{part.origin.kind} {', '.join(map(str, part.origin.sources[:1]))}".strip()
        filled[name] = filled.get(name, 0) + part.tokens
    total = sum(filled.values()) or 1
    for name, tokens in sorted(filled.items(), key=lambda item: -item[1]):
        chat.page.line(f"  {tokens:>8,}  {tokens * 100 // total:>3} %  {shortened(name, _WIDE)}")
    chat.page.line(f"  {total:>8,}  tokens, estimated, in the last request")


async def _compact(chat: Chat, arguments: str) -> None:
    if chat.is_busy:
        raise UsageError("the agent is at work", hint="/compact when the turn has ended; Ctrl-C ends it")
    chat.page.line(f"  {await chat.session.compact()}")


async def _expand(chat: Chat, arguments: str) -> None:
    number = arguments.removeprefix("·") or str(chat.details.last)
    if not number.isdecimal() or chat.details.find(int(number)) is None:
        kept = f"there are 1 to {chat.details.last}" if chat.details.last else "no tool was used yet"
        raise UsageError(f"there is no line {number!r} to expand", hint=kept)
    chat.expand(int(number))


async def _cost(chat: Chat, arguments: str) -> None:
    record = await chat.session.read()
    used = record.usage_tree or record.usage or {}
    tokens = used.get("tokens") or {}
    told = f"{tokens.get('input', 0):,} tokens in, {tokens.get('output', 0):,} out"
    chat.page.line(f"  {told}, {used.get('tool_calls', 0)} tool calls")
    chat.page.line(f"  {money(used.get('cost_usd')) or 'the price is not known'}")
    for name, part in (used.get("by_agent") or {}).items():
        chat.page.line(
            f"  agent {name}: {(part.get('tokens') or {}).get('total', 0):,} tokens {money(part.get('cost_usd'))}"
        )


async def _goal(chat: Chat, arguments: str) -> None:
    goal = read_goal(arguments)
    session = chat.session
    where = Path(session.record.working_dir)
    work = pursue(goal, where, lambda prompt: session.execute(prompt, queue=True), chat.page.line)
    chat.in_background(work)


async def _fork(chat: Chat, arguments: str) -> None:
    if arguments and not arguments.isdecimal():
        raise UsageError(f"{arguments!r} is not the number of a turn", hint="/fork, or /fork 2")
    forked = await chat.session.fork(int(arguments) if arguments else None)
    before = chat.short_id
    await chat.switch(chat.place.resume(forked, chat.approver))
    chat.page.line(f"  session {short_id(forked)} goes on from here; {before} stays as it is")


async def _rename(chat: Chat, arguments: str) -> None:
    await chat.session.rename(arguments)
    chat.page.line(f"  the session is called {arguments!r}" if arguments else "  the session has no name any more")


async def _clear(chat: Chat, arguments: str) -> None:
    before = chat.short_id
    await chat.switch(chat.place.open(await same_agent(chat.home, chat.session), chat.approver, name=None))
    chat.page.line(f"  a new session, {chat.short_id}; {before} stays: amplifier session show {before}")


async def _save(chat: Chat, arguments: str) -> None:
    parts = [part for message in await chat.session.messages() if (part := _as_markdown(message))]
    file = _written(arguments or f"session-{chat.short_id}.md", "\n\n".join(parts) + "\n")
    chat.page.line(f"  saved in {file}")


async def _undo(chat: Chat, arguments: str) -> None:
    turn = (await chat.session.read()).turn_count
    if not turn:
        raise UsageError("there is no turn to undo", hint="say something first")
    result = await chat.session.undo(turn, force=arguments == "--force")
    if result is not None and not result.done:
        names = ", ".join(result.foreign)
        raise UsageError(f"someone else has changed since: {names}", hint="/undo --force restores these too")
    chat.page.line(f"  turn {turn} is undone, {len(result.restored) if result else 0} files are restored")


async def _diff(chat: Chat, arguments: str) -> None:
    changes = await chat.session.changes((await chat.session.read()).turn_count)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in changes.diff.splitlines() or ["  no file was changed in the last turn"]:
        chat.page.line(styled(line, colours[line[0]]) if line[:1] in colours else line)


async def _queue(chat: Chat, arguments: str) -> None:
    waiting = await chat.session.queued()
    verb, _, number = arguments.partition(" ")
    if verb in ("drop", "edit"):
        if not number.isdecimal() or not 1 <= int(number) <= len(waiting):
            raise UsageError(f"there are {len(waiting)} waiting prompts", hint=f"/queue {verb} 1")
        chat.dropped.add(waiting[int(number) - 1])
        taken = await chat.session.remove_queued(int(number))
        if verb == "edit":
            chat.edit(taken)
        return
    for position, prompt in enumerate(waiting, start=1):
        chat.page.line(f"  {position}. {shortened(prompt, _WIDE)}")
    if not waiting:
        chat.page.line("  nothing waits")


async def _quit(chat: Chat, arguments: str) -> None:
    chat.is_over = True


def _written(name: str, text: str) -> Path:
    file = Path(name).expanduser().absolute()
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", hint="/save FILE names another") from error
    return file


def _as_markdown(message: Message) -> str:
    text = message_text(message.get("content")).strip()
    if message.get("role") not in ("user", "assistant") or not text:
        return ""
    return f"## {'You' if message['role'] == 'user' else 'Assistant'}\n\n{text}"


COMMANDS: dict[str, SlashCommand] = {
    "help": SlashCommand(_help, "show what there is"),
    "status": SlashCommand(_status, "show session, agent and model"),
    "tools": SlashCommand(_tools, "list the agent's tools"),
    "agents": SlashCommand(_agents, "list the agents that it can delegate to"),
    "profile": SlashCommand(_profile, "show the profile, or go on with another", "[ID]"),
    "model": SlashCommand(_model, "show the model, or ask another", "[[PROVIDER/]NAME]"),
    "effort": SlashCommand(_effort, "let the model think harder, or less hard", "LEVEL"),
    "context": SlashCommand(_context, "show what fills the model's window, by source"),
    "compact": SlashCommand(_compact, "leave older parts of the conversation out of what the model sees"),
    "expand": SlashCommand(_expand, "show a tool call or a thought in full, by default the last", "[N]"),
    "cost": SlashCommand(_cost, "show what the session used"),
    "goal": SlashCommand(_goal, "work on until a command succeeds", GOAL.removeprefix("/goal ")),
    "fork": SlashCommand(_fork, "go on in a copy, from the last turn or another", "[TURN]"),
    "rename": SlashCommand(_rename, "give the session a name", "NAME"),
    "clear": SlashCommand(_clear, "begin a new session with the same agent"),
    "save": SlashCommand(_save, "write the conversation to a file", "[FILE]"),
    "undo": SlashCommand(_undo, "take back the last turn, in files and conversation", "[--force]"),
    "diff": SlashCommand(_diff, "show what the last turn changed in files"),
    "queue": SlashCommand(_queue, "show the prompts that wait, drop or edit one", "[drop N | edit N]"),
    "quit": SlashCommand(_quit, "end the chat; the session stays"),
}
