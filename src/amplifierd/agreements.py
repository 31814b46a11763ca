"""What a person agreed to give to modules of fetched profiles, bundles and projects: `config/agreements.yaml`.

    agreements:
      - {module: provider-openai, gets: key, hosts: [https://llm.example.org]}
      - {module: tool-mcp, gets: GITHUB_TOKEN, hosts: [https://api.github.com]}

An agreement is for one module, for its key or one variable, and for hosts: a module that is to reach another one as
well needs another agreement.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from amplifier_foundation.io import load_yaml
from amplifier_foundation.sources.store import locked_now

from .exceptions import SettingsError
from .paths import Paths
from .yaml_edits import edited, replace_text

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

KEY = "key"
"""What a module gets that gets its provider's key, stored or from the environment."""

_SECTION = "agreements"
_LOCK_WAIT_S = 30.0
_HEADING = "# What you agreed to give to fetched profiles, bundles and projects. Remove an entry to be asked again.\n"


@dataclass(frozen=True)
class Agreement:
    """A module may have its key, or a variable, where its configuration names these hosts and no others."""

    module: str
    gets: str
    hosts: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What a person types to agree; nothing in it is more than a word to a shell."""
        variable = () if self.gets == KEY else ("--variable", self.gets)
        return shlex.join(["amplifier", "config", "agree", self.module, *self.hosts, *variable])

    def covers(self, other: Agreement) -> bool:
        return (self.module, self.gets) == (other.module, other.gets) and {*other.hosts} <= {*self.hosts}

    def to_dict(self) -> dict[str, Any]:
        return {"module": self.module, "gets": self.gets, "hosts": list(self.hosts)}

    @classmethod
    def read(cls, entry: Any) -> Agreement:
        """Return the agreement that an entry of the file is; raises `ValueError` when it is none."""
        match entry:
            case {"module": str(module), "gets": str(gets), **rest} if rest.keys() <= {"hosts"}:
                hosts = rest.get("hosts") or []
                if isinstance(hosts, list) and all(isinstance(host, str) for host in hosts):
                    return cls(module, gets, tuple(hosts))
        raise ValueError("an agreement has `module`, `gets` and a list of `hosts`")


class Agreements:
    """The agreements of one home; read anew each time, so that an answer counts at once."""

    def __init__(self, paths: Paths) -> None:
        self._file, self._lock = paths.agreements_file, paths.locks / "agreements.lock"

    def list(self) -> tuple[Agreement, ...]:
        """Return what was agreed to.

        Raises:
            SettingsError: the file is damaged; nothing in it counts.
        """
        try:
            document = load_yaml(self._text()) or {}
            entries = document.get(_SECTION) or []
            return tuple(Agreement.read(entry) for entry in entries)
        except (yaml.YAMLError, ValueError, AttributeError, TypeError) as error:
            hint = "repair or remove it; it agrees to nothing now"
            raise SettingsError(f"{self._file} is damaged: {error}", hint=hint) from error

    def cover(self, wanted: Agreement) -> bool:
        """True if a person agreed to that, or to more."""
        return any(each.covers(wanted) for each in self.list())

    def add(self, *new: Agreement) -> None:
        """Write down what a person agreed to.

        Raises:
            SettingsError: the file is damaged, or another process is changing it.
        """
        self._change(lambda known: [*known, *(each for each in new if not any(old.covers(each) for old in known))])

    def remove(self, old: Agreement) -> bool:
        """Withdraw an agreement; False when there was none."""
        was_there = old in self.list()
        self._change(lambda known: [each for each in known if each != old])
        return was_there

    def _change(self, change: Callable[[tuple[Agreement, ...]], Iterable[Agreement]]) -> None:
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process", hint="try again")
            before = self.list()
            after = list(dict.fromkeys(change(before)))
            if after == list(before):
                return

            def write(document: CommentedMap) -> None:
                document[_SECTION] = [each.to_dict() for each in after]

            replace_text(self._file, edited(self._text() or _HEADING, write))

    def _text(self) -> str:
        return self._file.read_text(encoding="utf-8-sig") if self._file.exists() else ""
