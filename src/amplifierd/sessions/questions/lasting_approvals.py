"""Approvals that outlive their session: `config/approvals.yaml` of the home, which a person can read and edit.

    everywhere:
      - tool: bash
        covers: pytest …
    projects:
      /srv/site:
        - tool: bash
          exactly: npm install

Only the home's file counts; nothing in a project's folder can add to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.boundary import Boundary, settle
from amplifier_foundation.sources.store import locked_now
from amplifier_kit.concerns import Scope
from amplifierd.exceptions import ApprovalDecisionError, SettingsError
from amplifierd.paths import Paths
from amplifierd.store.record import now
from amplifierd.yaml_edits import edited, mapping_in, replace_text

from .approval import ALLOW, CRITICAL, Approval, Remember

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

Reach = Literal["session", "project", "everywhere"]

_EVERYWHERE, _PROJECTS = "everywhere", "projects"
_LOCK_WAIT_S = 30.0
_HEADING = '# What was answered with "always here" or "always everywhere". Remove an entry to be asked again.\n'


@dataclass(frozen=True)
class RememberedApproval:
    """An answer that stands for later calls: for which, how far it reaches, and what it was."""

    reach: Reach
    scope: Scope
    option: str = "Allow always"
    at: str | None = None

    @property
    def approval_id(self) -> str:
        """What it is revoked by."""
        return hashlib.sha256(f"{self.reach} {self.scope.key}".encode()).hexdigest()[:12]

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> RememberedApproval:
        """What `to_json` described."""
        scope = Scope(value["tool"], value["covers"], is_exact=value["is_exact"])
        return cls(value["reach"], scope, value["option"], value.get("at"))

    def to_json(self) -> dict[str, Any]:
        data = {"approval_id": self.approval_id, "reach": self.reach, "option": self.option, "at": self.at}
        return {**data, "tool": self.scope.tool, "covers": self.scope.covers, "is_exact": self.scope.is_exact}


class LastingApprovals:
    """What is approved for one project, and everywhere."""

    def __init__(self, paths: Paths, working_dir: str) -> None:
        self._file, self._lock = paths.approvals_file, paths.locks / "approvals.lock"
        self._project = str(Path(working_dir).resolve())

    def read(self) -> dict[str, Literal["project", "everywhere"]]:
        """Return the keys of the approved scopes, and how far each of them reaches.

        Raises:
            SettingsError: the file is damaged; nothing in it counts.
        """
        document = self._parse(self._text())
        projects = document.get(_PROJECTS) or {}
        if not isinstance(projects, dict):
            raise self._damaged(f"`{_PROJECTS}` is not a mapping of directories")
        listed = {directory: tuple(self._scopes(entries, directory)) for directory, entries in projects.items()}
        reaches: dict[str, Literal["project", "everywhere"]] = {}
        reaches.update((scope.key, "project") for scope in listed.get(self._project, ()))
        reaches.update((scope.key, "everywhere") for scope in self._scopes(document.get(_EVERYWHERE), _EVERYWHERE))
        return reaches

    def remembered(self) -> list[RememberedApproval]:
        """What is approved here for good.

        Raises:
            SettingsError: the file is damaged.
        """
        return [RememberedApproval(reach, Scope.of_key(key)) for key, reach in self.read().items()]

    def remove(self, approval: RememberedApproval) -> None:
        """Ask about these calls again.

        Raises:
            SettingsError: the file is damaged, or another process is changing it.
        """

        def change(document: CommentedMap) -> None:
            holder, key = self._place(document, approval.reach)
            kept = [entry for entry in holder.get(key) or [] if Scope.read(dict(entry)) != approval.scope]
            if kept:
                holder[key] = kept
            else:
                holder.pop(key, None)

        with self._changing():
            self.read()
            replace_text(self._file, edited(self._text() or _HEADING, change))

    def add(self, scopes: Iterable[Scope], reach: Literal["project", "everywhere"]) -> None:
        """Write down that these calls are approved.

        Raises:
            SettingsError: the file is damaged, or another process is changing it.
        """
        with self._changing():
            known = self.read()
            wanted = dict.fromkeys(scope for scope in scopes if known.get(scope.key) not in (reach, "everywhere"))
            new = [scope.to_dict() for scope in wanted]
            if not new:
                return

            def change(document: CommentedMap) -> None:
                holder, key = self._place(document, reach)
                holder[key] = [*(holder.get(key) or []), *new]

            replace_text(self._file, edited(self._text() or _HEADING, change))

    def _place(self, document: CommentedMap, reach: Reach) -> tuple[CommentedMap, str]:
        is_everywhere = reach == "everywhere"
        return (document, _EVERYWHERE) if is_everywhere else (mapping_in(document, _PROJECTS), self._project)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process", hint="try again")
            yield

    def _text(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8-sig") if self._file.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from error

    def _parse(self, text: str) -> dict[str, Any]:
        import yaml  # only where there is such a file

        try:
            document = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise self._damaged(str(error)) from error
        if not isinstance(document, dict) or not document.keys() <= {_EVERYWHERE, _PROJECTS}:
            raise self._damaged(f"it has `{_EVERYWHERE}` and `{_PROJECTS}`, and nothing else")
        return document

    def _scopes(self, entries: Any, where: str) -> Iterator[Scope]:
        if not isinstance(entries, list | None):
            raise self._damaged(f"{where} is not a list")
        for entry in entries or ():
            try:
                yield Scope.read(entry)
            except ValueError as error:
                raise self._damaged(f"{where}: {error}") from error

    def _damaged(self, why: str) -> SettingsError:
        return SettingsError(f"{self._file} is damaged: {why}", hint="repair or remove it; it approves nothing now")


logger = logging.getLogger(__name__)

DOCUMENT = "approvals"
FORMAT_VERSION = 1
_REASONS = {"project": "Always approved in this project", "everywhere": "Always approved everywhere"}


def decisions_in(document: Any) -> dict[str, Any]:
    """The answers in the document of a session, by the keys of what they stand for."""
    match document:
        case None:
            return {}
        case {"decisions": dict(decisions)}:
            return decisions
    logger.warning("the document %r of a session holds no decisions; every call is asked about again", DOCUMENT)
    return {}


def remembered_in(document: Any) -> list[RememberedApproval]:
    """The answers in the document of a session."""
    return [
        RememberedApproval("session", Scope.of_key(key), str(entry.get("option")), entry.get("at"))
        for key, entry in decisions_in(document).items()
        if isinstance(entry, dict) and (":" in key or "=" in key)
    ]


Load = Callable[[], Any | Awaitable[Any]]
Save = Callable[[dict[str, Any]], Any]


class ApprovalMemory:
    """Answers by the keys of scopes, read from the document for every question and written with every new one.

    Without a document they live as long as this object. `lasting` has those that outlive the session.
    """

    def __init__(
        self, load: Load | None = None, save: Save | None = None, lasting: LastingApprovals | None = None
    ) -> None:
        self._lasting = lasting
        self._kept: dict[str, Any] | None = None
        self._load, self._save = load or (lambda: self._kept), save or self._keep

    async def find(self, approval: Approval) -> Approval | None:
        """Return the question with the answer that stands for it."""
        if not approval.scopes or approval.risk_level == CRITICAL:
            return None
        yes = approval.chosen(ALLOW, remember=True)
        approved = await self._approved_for_good(yes, only_everywhere=approval.only_everywhere)
        decisions = {} if approval.only_everywhere else await self._decisions()
        entries = [decisions.get(scope.key) or approved.get(scope.key) for scope in approval.scopes]
        answers = [
            approval.answered(entry["option"], reason=entry.get("reason"), by="remembered")
            for entry in entries
            if isinstance(entry, dict) and entry.get("option") in (*approval.options, yes)
        ]
        denied = next((answer for answer in answers if not answer.is_allowed), None)
        return denied or (answers[0] if len(answers) == len(entries) else None)

    async def remember(self, answered: Approval, remember: Remember = True) -> None:
        """Let an answer stand for later questions about calls of its scopes, as far as `remember` says.

        Raises:
            ApprovalDecisionError: a no, or an answer where there is no home, was to outlive the session.
            SettingsError: the home's list cannot be written.
        """
        if remember in ("project", "everywhere"):
            if self._lasting is None or not answered.is_allowed:
                raise ApprovalDecisionError(
                    f"approval {answered.request_id}: only a yes to a session of a home can outlive the session",
                    hint="answer with remember: session",
                )
            await asyncio.to_thread(self._lasting.add, answered.scopes, remember)
            return
        entry = {"option": answered.option, "reason": answered.reason, "by": answered.by, "at": now()}
        decisions = {**await self._decisions(), **{scope.key: entry for scope in answered.scopes}}
        await settle(self._save({"format_version": FORMAT_VERSION, "decisions": decisions}))

    async def _decisions(self) -> dict[str, Any]:
        return decisions_in(await settle(self._load()))

    async def _approved_for_good(self, option: str, *, only_everywhere: bool) -> dict[str, Any]:
        if self._lasting is None:
            return {}
        with Boundary(logger, "what was approved for good does not count: %s", level=logging.ERROR):
            reaches = await asyncio.to_thread(self._lasting.read)
            counted = {key: reach for key, reach in reaches.items() if not only_everywhere or reach == "everywhere"}
            return {key: {"option": option, "reason": _REASONS[reach]} for key, reach in counted.items()}
        return {}

    def _keep(self, document: dict[str, Any]) -> None:
        self._kept = document
