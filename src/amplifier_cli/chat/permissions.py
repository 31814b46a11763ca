"""What the agent of a chat may do: its permission level, its mode, what was answered with "always", plans to accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_cli.failures import UsageError
from amplifier_cli.terminal.render import message_text, shortened, styled
from amplifier_system.near_names import did_you_mean
from amplifier_system.permission_levels import DEFAULT_LEVEL, LEVELS, PermissionLevel, chosen_level, is_level

if TYPE_CHECKING:
    from .chat_page import ChatPage
    from .conversation import Chat

LEVEL_WORDS = " | ".join(LEVELS)

_MEANS: dict[PermissionLevel, str] = {
    "plan": "reads and thinks; nothing is written or executed",
    "ask": "asks about what the rules of its profile do not approve",
    "edits": "also edits files in this directory without asking",
    "auto": "also runs commands that the sandbox contains without asking",
}
_REACHES = {"session": "in this session", "project": "in this directory", "everywhere": "everywhere"}
_WIDE = 60
_OFFER = "Enter accepts the plan, e edits it, or say what should change; Shift-Tab leaves the level plan"
_ACCEPTED = "The plan is accepted. Carry it out."
_EDITED = "The plan is accepted as it stands here. Carry it out.\n\n"


def next_level(level: PermissionLevel | None) -> PermissionLevel:
    """The level that Shift-Tab leads to."""
    return LEVELS[(LEVELS.index(level or DEFAULT_LEVEL) + 1) % len(LEVELS)]


async def show_permissions(chat: Chat, arguments: str) -> None:
    """Do what `/permissions` does."""
    verb, _, number = arguments.partition(" ")
    if verb == "revoke":
        await _revoke(chat, number.strip())
        return
    if verb:
        if not is_level(verb) or number:
            hint = did_you_mean(verb, LEVELS) or f"/permissions {LEVEL_WORDS}, or /permissions revoke N"
            raise UsageError(f"there is no permission level {arguments!r}", hint=hint)
        level = chosen_level(verb)
        assert level is not None
        await chat.choose_level(level)
        chat.page.line(f"  {level}: the agent {_MEANS[level]}")
        return
    level = (await chat.session.read()).permission_level
    for each, means in _MEANS.items():
        mark = ">" if each == level else " "
        chat.page.line(f"  {mark} {each:<6} {means}")
    if level is None:
        chat.page.line("  none is chosen: the rules of the profile are all there is")
    remembered = await chat.session.remembered_approvals()
    for position, one in enumerate(remembered, start=1):
        answer = "" if one.option.casefold().startswith("allow") else f" ({one.option})"
        text = f"{one.scope.tool}: {shortened(one.scope.words, _WIDE)}{answer}"
        if one.scope.is_exact:
            text = f"{one.scope.tool}: exactly {shortened(one.scope.covers, _WIDE)}{answer}"
        chat.page.line(f"  {position}. always {_REACHES[one.reach]}: {text}")
    if remembered:
        chat.page.line(styled("  /permissions revoke N asks about these again", "dim"))


async def _revoke(chat: Chat, number: str) -> None:
    remembered = await chat.session.remembered_approvals()
    if not number.isdecimal() or not 1 <= int(number) <= len(remembered):
        hint = f"/permissions shows {len(remembered)}" if remembered else "nothing is remembered here"
        raise UsageError(f"there is no remembered answer {number!r}", hint=hint)
    one = remembered[int(number) - 1]
    await chat.session.revoke_approval(one.approval_id)
    chat.page.line(f"  asked about again: {one.scope.tool}: {one.scope.words}")


async def show_modes(chat: Chat, arguments: str) -> None:
    """Do what `/modes` does."""
    found = await chat.session.modes()
    if not found["modes"]:
        chat.page.line("  this session has no modes: hooks-mode is not in its profile")
        return
    for source in dict.fromkeys(mode["source"] for mode in found["modes"]):
        chat.page.line(styled(f"  {source}", "dim"))
        for mode in (mode for mode in found["modes"] if mode["source"] == source):
            if not mode["advertised"] and arguments != "--all":
                continue
            mark = ">" if mode["name"] == found["active_mode"] else " "
            hidden = "" if mode["advertised"] else " (hidden from the model)"
            chat.page.line(f"  {mark} {mode['name']:<12} {shortened(mode['description'], _WIDE)}{hidden}")


async def choose_mode(chat: Chat, arguments: str) -> None:
    """Do what `/mode` does."""
    name, _, rest = arguments.partition(" ")
    text = rest.strip()
    if not name:
        active = (await chat.session.modes())["active_mode"]
        chat.page.line(f"  the mode {active} is on" if active else "  no mode is on; /modes lists them")
        return
    if name == "off" or (text == "off"):
        await chat.session.choose_mode(None)
        chat.page.line("  no mode is on")
        return
    if name == "info":
        await _explain_mode(chat, text)
        return
    found = await chat.session.choose_mode(name)
    policy = found["policy"]
    chat.page.line(f"  the mode {found['active_mode']} is on: {policy['description']}")
    for missing, near in policy["unknown_tools"].items():
        nearest = f", did you mean {near}?" if near else ""
        chat.page.line(styled(f"  it lists {missing}, which this session does not have{nearest}", "yellow"))
    if text and text != "on":
        chat.submit(text)


async def _explain_mode(chat: Chat, name: str) -> None:
    found = await chat.session.modes()
    mode = next((each for each in found["modes"] if name in (each["name"], each["shortcut"])), None)
    if mode is None:
        hint = did_you_mean(name, [each["name"] for each in found["modes"]]) or "/modes lists them"
        raise UsageError(f"there is no mode {name!r}", hint=hint)
    chat.page.line(f"  {mode['name']} ({mode['source']}): {mode['description']}")
    if mode["name"] == found["active_mode"]:
        for key in ("safe_tools", "warn_tools", "confirm_tools", "block_tools"):
            chat.page.line(f"  {key.partition('_')[0]:<8} {', '.join(found['policy'][key]) or 'none'}")
        chat.page.line(f"  others   {found['policy']['default_action']}")


class PlanReview:
    """The plan that a turn at the level `plan` ended with, until the person has accepted, edited or sent it back."""

    def __init__(self) -> None:
        self._is_offered = self._is_edited = False

    def offer(self, page: ChatPage) -> None:
        self._is_offered, self._is_edited = True, False
        page.line(styled(_OFFER, "yellow"))

    async def take(self, chat: Chat, text: str) -> str | None:
        """Return the prompt that an entered line stands for, an empty one while the plan is edited; None for others."""
        if not self._is_offered:
            return None
        if chat.session.record.permission_level != "plan":
            self._is_offered = False
            return None
        if self._is_edited and text.strip():
            return await self._accept(chat, f"{_EDITED}{text.strip()}")
        if not text.strip():
            return await self._accept(chat, _ACCEPTED)
        if text.strip() == "e":
            self._is_edited = True
            chat.edit(_last_answer(await chat.session.messages()))
            return ""
        self._is_offered = text.lstrip().startswith("/")
        return None

    async def _accept(self, chat: Chat, prompt: str) -> str:
        self._is_offered = self._is_edited = False
        await chat.choose_level(DEFAULT_LEVEL)
        return prompt


def _last_answer(messages: list[dict[str, Any]]) -> str:
    said = (message_text(one.get("content")).strip() for one in reversed(messages) if one.get("role") == "assistant")
    return next(filter(None, said), "")
