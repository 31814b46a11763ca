"""The policy of a session: what its tools may read, write, reach and pass on; every one of them asks it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from amplifier_system.homes import HOME_VARIABLES

from .environment_access import EnvironmentAccess
from .network_access import NetworkAccess
from .path_access import OriginOf, PathAccess, PolicyError, is_bare_name
from .rules import PolicyRules, policy_sections
from .running_places import repository_shape


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """What one session may do; a value. The capability `session.policy` holds it."""

    working_dir: Path
    read: PathAccess
    write: PathAccess
    network: NetworkAccess
    variables: EnvironmentAccess

    @classmethod
    def of(
        cls,
        rules: Mapping[str, Any] | PolicyRules | None = None,
        *,
        working_dir: Path | str,
        origin_of: OriginOf | None = None,
    ) -> Self:
        """Read the policy of a mount plan, `session.policy`; what it does not say is as by default.

        `origin_of` says of a key, `read.deny`, and an entry of it where that is written; refusals name it.

        Raises:
            ValueError: it is not a policy.
        """
        read = rules if isinstance(rules, PolicyRules) else PolicyRules.parse(rules)
        base = Path(os.path.normpath(Path(working_dir).absolute()))
        return cls(
            working_dir=base,
            read=PathAccess.of("read", read.read.allow, read.read.deny, base=base, origin_of=origin_of),
            write=PathAccess.of("write", read.write.allow, read.write.deny, base=base, origin_of=origin_of),
            network=NetworkAccess(
                read.network.allow, read.network.deny, origin_of, read.network.ask, read.network.commands
            ),
            variables=EnvironmentAccess(read.environment.allow, read.environment.deny),
        )

    def check_read(self, path: Path | str) -> Path:
        """Return where a path leads; raises `PolicyError` when it may not be read."""
        return self.read.check(path, self.working_dir)

    def check_write(self, path: Path | str) -> Path:
        """Return where a path leads; raises `PolicyError` when it may not be written.

        Neither may a file by which a directory has, or would get, the shape of a repository, unless a rule takes `.git`
        back: the next git command there would run what it says.
        """
        real = self.write.check(path, self.working_dir)
        if ".git" in self.write.denied_names and (place := repository_shape(real, self.working_dir)):
            raise PolicyError(f"not writable: {path} ({place.reason}; policy.write.deny)", rule="write.deny")
        return real

    def check_url(self, url: str) -> str:
        """Return the host of a URL; raises `PolicyError` when it may not be reached."""
        return self.network.check(url)

    def environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a program of this session is given, of `environ` or of this process."""
        return self.variables.filtered(environ)

    def may_read(self, path: Path | str) -> bool:
        """True if a path may be read."""
        try:
            self.check_read(path)
        except PolicyError:
            return False
        return True

    def opening(self, *places: Path) -> Self:
        """Return the policy under which places may be read that lie inside of denied ones."""
        return replace(self, read=self.read.opening(*places))

    def narrowed_by(self, rules: Mapping[str, Any] | None) -> Self:
        """Return the policy of a session inside this one: what these rules deny is denied too, nothing is added.

        Raises:
            ValueError: they are not a policy.
        """
        if not rules:
            return self
        layer = policy_sections(rules)
        network, variables = layer.get("network", {}), layer.get("environment", {})
        return replace(
            self,
            read=self._narrowed_paths(self.read, layer.get("read", {})),
            write=self._narrowed_paths(self.write, layer.get("write", {})),
            network=self.network.narrowed(
                network.get("allow"),
                network.get("deny", ()),
                ask=network.get("ask", ()),
                commands="hosts" if "hosts" in network.get("commands", ()) else "open",
            ),
            variables=self.variables.narrowed(variables.get("pass"), variables.get("deny", ())),
        )

    def _narrowed_paths(self, access: PathAccess, lists: Mapping[str, tuple[str, ...]]) -> PathAccess:
        names = [text for text in lists.get("deny", ()) if is_bare_name(text)]
        places = [text for text in lists.get("deny", ()) if not is_bare_name(text)]
        return access.narrowed(lists.get("allow"), places, base=self.working_dir, denied_names=names)

    def narrowed(
        self,
        *,
        read_allow: Iterable[str] | None = None,
        read_deny: Iterable[str] = (),
        write_allow: Iterable[str] | None = None,
        write_deny: Iterable[str] = (),
        base: Path | None = None,
    ) -> Self:
        """Return the policy that also keeps to a tool's own lists of paths, relative to `base`."""
        start = base or self.working_dir
        return replace(
            self,
            read=self.read.narrowed(read_allow, read_deny, base=start),
            write=self.write.narrowed(write_allow, write_deny, base=start),
        )


def default_policy(working_dir: Path) -> SessionPolicy:
    """Return the policy of a session that configures none."""
    return _default(working_dir, *map(os.environ.get, HOME_VARIABLES))


@lru_cache(maxsize=64)
def _default(working_dir: Path, *variables: str | None) -> SessionPolicy:
    return SessionPolicy.of(working_dir=working_dir)
