"""The index of skills, as the model reads it: one line each, once in the system prompt or with every request."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import LenientConfig
from amplifier_kit.injection import NOTHING, PLACEMENTS, injected, place_in_prompt, read_role, reminder
from amplifier_kit.mounting import find_mounted

from .definition import SkillMetadata
from .discovery import SkillsDiscovery

SOURCE = "hooks-skills-visibility"

logger = logging.getLogger(__name__)

_CHARS_PER_TOKEN = 4
_HEADER = "Skills that you can load with load_skill(skill_name=...) when one of them fits the task:"
_MORE = "… {} more: load_skill(list=true)"


class SkillsVisibilityHook:
    """Shows the model which skills there are, but for those that only a person invokes, and none that it cannot use."""

    def __init__(
        self,
        coordinator: Any,
        discovery: SkillsDiscovery,
        config: dict[str, Any] | None = None,
        *,
        is_fork: bool = False,
    ) -> None:
        self._coordinator, self._discovery, self._is_fork = coordinator, discovery, is_fork
        placement = (config or {}).get("placement")
        if placement not in (None, *PLACEMENTS):
            raise ValueError(f"tool-skills: visibility.placement is {placement!r}, allowed: {', '.join(PLACEMENTS)}")
        read = LenientConfig("tool-skills", config)
        self.is_enabled = read.boolean("enabled", True)
        self.role = read_role(read, "system")
        self.placement = read.choice("placement", "prefix", PLACEMENTS)
        self.priority = read.integer("priority", 20)
        self._most = read.integer("max_skills_visible", 50, minimum=0)
        self._budget = read.integer("visibility_token_budget", 2500, minimum=0)
        self._line_cap = read.integer("visibility_line_char_cap", 180, minimum=0)
        read.accept("ephemeral")
        read.warn_unknown()
        self._remove: Callable[[], None] | None = None

    def place(self) -> None:
        """Put the index into the system prompt, if that is asked for and possible."""
        if self.placement != "prefix":
            return
        self._remove = place_in_prompt(self._coordinator, SOURCE, self._prefix)
        if self._remove is None and find_mounted(self._coordinator, "context") is not None:
            logger.error("tool-skills: the context takes no part of a system prompt; the index goes with each request")

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    async def inject(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show the index with a request, where the system prompt does not have it."""
        if self._remove is not None:
            return NOTHING
        text = await self._prefix()
        return injected(text, self.role) if text else NOTHING

    async def _prefix(self) -> str:
        text = await asyncio.to_thread(self.text)
        return reminder(SOURCE, text) if text else ""

    def text(self) -> str:
        """Return the index within its budget: whole lines, else their beginnings, else names, else some of them."""
        shown = [
            skill
            for _, skill in sorted(self._discovery.catalogue().skills.items())
            if not skill.disable_model_invocation and not (self._is_fork and skill.is_fork)
        ]
        if not shown:
            return ""
        most = shown[: self._most]
        room = self._budget * _CHARS_PER_TOKEN
        for lines in (
            [_line(skill, skill.description, self._line_cap) for skill in most],
            [_line(skill, _summary(skill.description), self._line_cap) for skill in most],
            [f"- {skill.name}" for skill in most],
        ):
            if len(text := _listed(lines, len(shown))) <= room:
                return text
        lines = [f"- {skill.name}" for skill in most]
        while lines and len(_listed(lines, len(shown))) > room:
            lines.pop()
        return _listed(lines, len(shown))


def _listed(lines: Sequence[str], total: int) -> str:
    hidden = total - len(lines)
    return "\n".join([_HEADER, *lines, *([_MORE.format(hidden)] if hidden else [])])


def _line(skill: SkillMetadata, description: str, cap: int) -> str:
    head, text = f"- {skill.name}: ", " ".join(description.split())
    room = max(cap - len(head), 20)
    if cap and len(text) > room:
        text = _shortened(text, room)
    return head + text


def _shortened(text: str, room: int) -> str:
    """Cut a text; the sentence that says when to use it is kept before all else."""
    at = text.lower().find("use when")
    use = text[at:].partition(". ")[0] if at > 0 else ""
    if use and len(use) + 4 < room:
        return f"{text[: room - len(use) - 3].rstrip()}… {use}"
    return f"{text[: room - 1].rstrip()}…"


def _summary(description: str) -> str:
    first, _, rest = " ".join(description.split()).partition(". ")
    return f"{first}…" if rest else first
