"""The commands of a chat: `/help` lists them."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_cli.failures import UsageError
from amplifier_cli.resumption import change_agent, same_agent, warning_words
from amplifier_cli.session_choice import find_profile
from amplifier_cli.session_names import TAINTED, short_id
from amplifier_cli.terminal.render import columns, counted, message_text, money, shortened, styled
from amplifier_cli.turn_view import cost_words
from amplifier_system.near_names import did_you_mean
from amplifier_system.processes import ProcessTree, reading
from amplifier_system.visible import visible_line
from amplifierd.sessions.turn_result import TurnResult
from amplifierd.store.protocol import Message

from .permissions import LEVEL_WORDS, choose_mode, show_modes, show_permissions

if TYPE_CHECKING:
    from .conversation import Chat

# Working on until a command succeeds, or a limit is reached.


USAGE = "/goal TEXT --check COMMAND [--max-turns N] [--max-cost USD]"
_MOST_OUTPUT = 4_000


@dataclass(frozen=True)
class Goal:
    """What is to be reached, how that is seen, and how much may be spent on it."""

    text: str
    check: str
    max_turns: int = 10
    max_cost: float | None = None


def read_goal(text: str) -> Goal:
    """Return the goal that a line describes.

    Raises:
        UsageError: it does not describe one.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--check", default="")
    parser.add_argument("--max-turns", type=int, default=10)
    parser.add_argument("--max-cost", type=float)
    try:
        known, words = parser.parse_known_args(shlex.split(text))
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(str(error), hint=USAGE) from error
    if not words or not known.check or known.max_turns < 1:
        raise UsageError("a goal needs a text and a command that checks it", hint=USAGE)
    return Goal(" ".join(words), known.check, known.max_turns, known.max_cost)


async def pursue(
    goal: Goal,
    working_dir: Path,
    execute: Callable[[str], Awaitable[TurnResult]],
    tell: Callable[[str], None],
) -> bool:
    """Run turns until the check succeeds; return whether it did."""
    prompt = f"{goal.text}\n\nYou are done when this command succeeds: {goal.check}"
    cost = 0.0
    for turn in range(1, goal.max_turns + 1):
        result = await execute(prompt)
        if result.status != "completed":
            tell(f"goal: the turn was {result.status}, so the goal is given up")
            return False
        cost += float(result.usage.get("cost_usd") or 0)
        code, output = await _check(goal.check, working_dir)
        if code == 0:
            tell(f"goal: reached after {turn} turns")
            return True
        if goal.max_cost is not None and cost >= goal.max_cost:
            tell(f"goal: not reached, and ${goal.max_cost:g} is spent")
            return False
        tell(f"goal: {goal.check} failed with {code} after turn {turn} of {goal.max_turns}")
        prompt = (
            f"`{goal.check}` exited with {code}:\n\n{output[-_MOST_OUTPUT:]}\n\nContinue with the goal: {goal.text}"
        )
    tell(f"goal: not reached within {goal.max_turns} turns")
    return False


async def _check(command: str, working_dir: Path) -> tuple[int, str]:
    """Run a command in a shell, which is ended with everything it started when the caller is interrupted."""
    tree = await ProcessTree.start(
        ["/bin/sh", "-c", command], environment=os.environ, cwd=working_dir, stderr=subprocess.STDOUT
    )
    async with tree, reading(tree.stdout) as stream:
        output = await stream.read()
        code = await tree.wait()
    return code, output.decode("utf-8", "replace")


Run = Callable[["Chat", str], Awaitable[None]]
_WIDE = 70
_KEYS = {
    "Enter": "send, or steer the agent while it works",
    "Alt-Enter": "queue the next prompt while it works, else start a new line",
    "@path": "include a file",
    "Ctrl-V": "paste an image; dragging an image file here works too",
    "Shift-Tab": "let the agent do more or less without asking",
    "Ctrl-O": "show the last tool call in full",
    "Ctrl-X Ctrl-E": "write the prompt in your editor",
    "Ctrl-C, Esc": "stop the turn: the model at once, tools when they are done; again: those too",
    "Ctrl-Z": "return to the shell for a while; fg comes back",
    "Ctrl-D": "end the chat",
}


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
    commands = {f"/{name} {command.usage}".strip(): command.help for name, command in COMMANDS.items()}
    own = {f"/{name}": own.description for name, own in chat.own_commands().items()}
    for line in columns({**commands, **own}):
        chat.page.line(line)
    chat.page.line("")
    for line in columns(_KEYS):
        chat.page.line(line)


async def _status(chat: Chat, arguments: str) -> None:
    record = await chat.session.read()
    agent = record.profile_name or record.bundle or "plan"
    chat.page.line(f"  session {chat.short_id}{f' ({record.name})' if record.name else ''} in {record.working_dir}")
    chat.page.line(f"  agent {agent}, model {record.model or 'none yet'}, {record.turn_count} turns")
    if record.tainted:
        chat.page.line(styled(f"  tainted: {TAINTED}", "yellow"))
    for warning in record.load_warnings:
        chat.page.line(styled(f"  {warning_words(warning)}", "yellow"))


async def _tools(chat: Chat, arguments: str) -> None:
    tools = sorted(await chat.session.tools(), key=lambda tool: str(tool["name"]))
    for line in columns({str(tool["name"]): shortened(str(tool["description"]), _WIDE) for tool in tools}):
        chat.page.line(line)


async def _agents(chat: Chat, arguments: str) -> None:
    names = chat.agents()
    chat.page.line(f"  {', '.join(names)}" if names else "  this agent has no sub-agents")


async def _skills(chat: Chat, arguments: str) -> None:
    if arguments not in ("", "--check"):
        raise UsageError(f"/skills does not know {arguments!r}", hint="/skills [--check]")
    found = await chat.session.skills()
    if arguments:
        for one in found["diagnostics"]:
            chat.page.line(styled(f"  {one['severity']}: {one['path']}: {one['message']}", "yellow"))
        if not found["diagnostics"]:
            chat.page.line("  nothing is wrong with its skills")
        return
    if not found["skills"]:
        chat.page.line("  this session has no skills: none is found, or tool-skills is not in its profile")
    for source in dict.fromkeys(skill["source"] for skill in found["skills"]):
        chat.page.line(styled(f"  {source}", "dim"))
        for skill in (skill for skill in found["skills"] if skill["source"] == source):
            shortcut = f"shortcut {skill['shortcut']}" if skill["shortcut"] else ""
            marks = [shortcut, "fork" if skill["is_fork"] else "", "" if skill["trusted"] else "not trusted"]
            words = ", ".join(filter(None, marks))
            chat.page.line(f"    {skill['name']:<20} {shortened(skill['description'], 60)}{words and f' ({words})'}")
    if found["diagnostics"]:
        chat.page.line(styled(f"  /skills --check shows {counted(len(found['diagnostics']), 'problem')}", "yellow"))


async def _profile(chat: Chat, arguments: str) -> None:
    if not arguments:
        chat.page.line(f"  {(await chat.session.read()).profile_name or 'none: the session runs a bundle or a plan'}")
        return
    profile = str(await find_profile(chat.home, arguments))
    await chat.session.change_profile(profile)
    chat.page.line(f"  switched to {profile}; the conversation is kept")


async def _model(chat: Chat, arguments: str) -> None:
    if not arguments:
        chat.page.line(f"  {(await chat.session.read()).model or 'no model was used yet'}")
        return
    provider, _, model = arguments.rpartition("/")
    await change_agent(chat.home, chat.session, {"provider": provider or None, "model": model})
    chat.page.line(f"  switched to {arguments}")


async def _effort(chat: Chat, arguments: str) -> None:
    if not arguments:
        raise UsageError("how hard should the model think?", hint="/effort low, medium, high, …")
    await change_agent(chat.home, chat.session, {"effort": arguments})
    chat.page.line(f"  effort is now {arguments}")


async def _context(chat: Chat, arguments: str) -> None:
    parts = await chat.session.last_request()
    if not parts:
        chat.page.line("  no request has been sent yet")
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
        raise UsageError("the agent is working", hint="/compact when the turn has ended; Ctrl-C ends it")
    chat.page.line(f"  {await chat.session.compact()}")


async def _expand(chat: Chat, arguments: str) -> None:
    number = arguments.removeprefix("·") or str(chat.details.last)
    if not number.isdecimal() or chat.details.find(int(number)) is None:
        kept = f"they go from 1 to {chat.details.last}" if chat.details.last else "no tool has been used yet"
        raise UsageError(f"there is no line {number!r} to expand", hint=kept)
    chat.expand(int(number))


async def _cost(chat: Chat, arguments: str) -> None:
    record = await chat.session.read()
    used = record.usage_tree or record.usage or {}
    tokens = used.get("tokens") or {}
    text = f"{tokens.get('input', 0):,} tokens in, {tokens.get('output', 0):,} out"
    chat.page.line(f"  {text}, {used.get('tool_calls', 0)} tool calls")
    chat.page.line(f"  {cost_words(used)}")
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
    if not (await chat.session.read()).turn_count:
        raise UsageError("there is no turn to fork from", hint="say something first")
    forked = await chat.session.fork(int(arguments) if arguments else None)
    before = chat.short_id
    await chat.switch(chat.place.resume(forked, chat.approver))
    chat.page.line(f"  session {short_id(forked)} continues from here; {before} is unchanged")


async def _rename(chat: Chat, arguments: str) -> None:
    await chat.session.rename(arguments)
    chat.page.line(f"  the session is called {arguments!r}" if arguments else "  the session no longer has a name")


async def _clear(chat: Chat, arguments: str) -> None:
    before = chat.short_id
    await chat.switch(chat.place.open(await same_agent(chat.home, chat.session), chat.approver, name=None))
    chat.page.line(f"  new session {chat.short_id}; the old one is kept: amplifier session show {before}")


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
        raise UsageError(f"changed by someone else since: {names}", hint="/undo --force restores these too")
    restored = result.restored if result else ()
    names = f": {', '.join(map(visible_line, restored))}" if restored else ""
    chat.page.line(f"  turn {turn} is undone, {counted(len(restored), 'file')} restored{names}")


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
        chat.page.line("  the queue is empty")


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
    "help": SlashCommand(_help, "list the commands and keys"),
    "status": SlashCommand(_status, "show the session, agent and model"),
    "tools": SlashCommand(_tools, "list the agent's tools"),
    "agents": SlashCommand(_agents, "list the agents it can delegate to"),
    "modes": SlashCommand(show_modes, "list the modes", "[--all]"),
    "mode": SlashCommand(choose_mode, "show or enter a mode, perhaps with a prompt", "[NAME [TEXT] | info NAME | off]"),
    "skills": SlashCommand(_skills, "list the skills it can load, or what is wrong with them", "[--check]"),
    "permissions": SlashCommand(
        show_permissions,
        "show or choose what it may do without asking; take back an always",
        f"[{LEVEL_WORDS} | revoke N]",
    ),
    "profile": SlashCommand(_profile, "show the profile, or switch to another", "[ID]"),
    "model": SlashCommand(_model, "show the model, or switch to another", "[[PROVIDER/]NAME]"),
    "effort": SlashCommand(_effort, "set how hard the model thinks", "LEVEL"),
    "context": SlashCommand(_context, "show what fills the context window"),
    "compact": SlashCommand(_compact, "drop older messages from what the model sees"),
    "expand": SlashCommand(_expand, "show a tool call or thought in full; by default the last", "[N]"),
    "cost": SlashCommand(_cost, "show tokens and cost so far"),
    "goal": SlashCommand(_goal, "keep working until a command succeeds", USAGE.removeprefix("/goal ")),
    "fork": SlashCommand(_fork, "continue in a copy of the session, from the last turn or another", "[TURN]"),
    "rename": SlashCommand(_rename, "give the session a name", "NAME"),
    "clear": SlashCommand(_clear, "start a new session with the same agent"),
    "save": SlashCommand(_save, "save the conversation to a file", "[FILE]"),
    "undo": SlashCommand(_undo, "undo the last turn, in files and conversation", "[--force]"),
    "diff": SlashCommand(_diff, "show which files the last turn changed"),
    "queue": SlashCommand(_queue, "show queued prompts, drop or edit one", "[drop N | edit N]"),
    "quit": SlashCommand(_quit, "end the chat; the session is kept"),
}
