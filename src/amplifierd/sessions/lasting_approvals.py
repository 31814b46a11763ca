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

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_foundation.sources.locks import locked_now
from amplifier_kit.asked_call import Scope
from amplifierd.exceptions import SettingsError
from amplifierd.paths import Paths
from amplifierd.yaml_edits import edited, mapping_in, replace_text

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

_EVERYWHERE, _PROJECTS = "everywhere", "projects"
_LOCK_WAIT_S = 30.0
_HEADING = '# What was answered with "always here" or "always everywhere". Remove an entry to be asked again.\n'


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

    def add(self, scopes: Iterable[Scope], reach: Literal["project", "everywhere"]) -> None:
        """Write down that these calls are approved.

        Raises:
            SettingsError: the file is damaged, or another process is changing it.
        """
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process", hint="answer again")
            known = self.read()
            wanted = dict.fromkeys(scope for scope in scopes if known.get(scope.key) not in (reach, "everywhere"))
            new = [scope.to_dict() for scope in wanted]
            if not new:
                return

            def change(document: CommentedMap) -> None:
                holder, key = (
                    (document, _EVERYWHERE)
                    if reach == "everywhere"
                    else (mapping_in(document, _PROJECTS), self._project)
                )
                holder[key] = [*(holder.get(key) or []), *new]

            replace_text(self._file, edited(self._text() or _HEADING, change))

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
