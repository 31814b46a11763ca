"""The hook that tells the model where it works."""

import platform
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING, PLACEMENTS, injected, place_in_prompt, read_role, reminder
from amplifier_kit.mounting import session_id_of, working_dir

from .git_status import IGNORED, LIMITED, GitOptions, git_text, is_repository

MODULE_ID = "hooks-status-context"


class StatusContextHook:
    """Gathers the environment once per turn, off the loop.

    What it was at the beginning stands in the system prompt. What has changed since, the date or what git says, is
    shown with each request as an update; so the beginning of the requests stays as it is.
    """

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config)
        self.role = read_role(read)
        self.priority = read.integer("priority", 0)
        self.enabled_events = read.strings("enabled_events", None)
        self.placement = read.choice("placement", "prefix", PLACEMENTS)
        named = read.text("working_dir", None)
        self._directory = Path(named).expanduser() if named else None
        self._has_date = read.boolean("include_datetime", True)
        self._has_zone = read.boolean("datetime_include_timezone", False)
        self._has_session = read.boolean("include_session", True)
        self._has_git = read.boolean("include_git", True)
        self._git = GitOptions(
            status=read.boolean("git_include_status", True),
            branch=read.boolean("git_include_branch", True),
            main_branch=read.boolean("git_include_main_branch", True),
            commits=read.integer("git_include_commits", 5, minimum=0),
            untracked=read.boolean("git_status_include_untracked", True),
            max_untracked=read.integer("git_status_max_untracked", 20, minimum=0),
            max_tracked=read.integer("git_status_max_tracked", 50, minimum=0),
            max_lines=read.integer("git_status_max_lines", 100, minimum=0),
            filters_paths=read.boolean("git_status_enable_path_filtering", True),
            ignored=(*IGNORED, *read.strings("git_status_tier1_patterns_extend", [])),
            limited=(*LIMITED, *read.strings("git_status_tier2_patterns_extend", [])),
            limited_most=read.integer("git_status_tier2_limit", 10, minimum=0),
            shows_summary=read.boolean("git_status_show_filter_summary", True),
        )
        read.warn_unknown()
        self._fixed: str | None = None
        self._first: str | None = None
        self._changing = ""
        self._remove: Callable[[], None] | None = None

    def place(self) -> None:
        """Put the block into the system prompt, if that is asked for and possible."""
        if self.placement == "prefix":
            self._remove = place_in_prompt(self._coordinator, MODULE_ID, self._prefix)

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()

    async def refresh(self, event: str, data: dict[str, Any]) -> HookResult:
        """Look at the environment again: a turn begins."""
        await self._gather()
        return NOTHING

    async def inject(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show what has changed, or everything where the system prompt does not have it."""
        if self._first is None:
            await self._gather()
        if self._remove is None:
            return injected(reminder(MODULE_ID, f"{self._fixed}\n\n{self._changing}"), self.role)
        if self._changing == self._first:
            return NOTHING
        update = f"Update: this has changed since the session began.\n\n{self._changing}"
        return injected(reminder(MODULE_ID, update), self.role)

    async def _prefix(self) -> str:
        if self._first is None:
            await self._gather()
        return reminder(MODULE_ID, f"{self._fixed}\n\n{self._first}")

    async def _gather(self) -> None:
        directory = self._directory or working_dir(self._coordinator)
        is_git = self._has_git and await is_repository(directory)
        if self._fixed is None:
            self._fixed = self._environment(directory, is_git=is_git)
        parts = [f"Today's date: {self._today()}"] if self._has_date else []
        if is_git and (text := await git_text(directory, self._git)):
            parts.append(f"Git, as of the beginning of this turn:\n\n{text}")
        self._changing = "\n\n".join(parts)
        if self._first is None:
            self._first = self._changing

    def _environment(self, directory: Path, *, is_git: bool) -> str:
        lines = [f"Working directory: {directory}"]
        if self._has_session:
            parent = getattr(getattr(self._coordinator, "session", None), "parent_id", None)
            parent = parent if isinstance(parent, str) else getattr(self._coordinator, "parent_id", None)
            lines.append(f"Session ID: {session_id_of(self._coordinator) or 'unknown'}")
            if isinstance(parent, str) and parent:
                lines += [f"Parent session ID: {parent}", "Is sub-session: Yes"]
        if self._has_git:
            lines.append(f"Is directory a git repo: {'Yes' if is_git else 'No'}")
        lines += [f"Platform: {platform.system().lower()}", f"OS Version: {platform.platform()}"]
        return "\n".join(["Where you work:", "<env>", *lines, "</env>"])

    def _today(self) -> str:
        moment = datetime.now().astimezone()
        return f"{moment:%Y-%m-%d}{f' ({moment.tzname()})' if self._has_zone else ''}"
