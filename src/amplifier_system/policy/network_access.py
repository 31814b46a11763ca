"""Which hosts may be reached, and which of them unasked, as far as the text of a URL can tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from amplifier_system.urls import canonical_host, is_public, shown

from .path_access import OriginOf, PolicyError

PRIVATE = "private"
"""Stands in a list of hosts for every address that is not public, and for the names of this machine."""

Commands = Literal["open", "hosts"]
"""What approved commands reach: whatever this machine can, or the hosts that a person agrees to."""

_CLASSES = ("*", PRIVATE)  # which say what may be asked about, and name no host
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """Hosts by name, `*.example.org`, network, `10.0.0.0/8`, or `private`; a denial outranks every permission.

    A name stands for the hosts below it, too, but not in what may be reached unasked. `*` and `private` say what may be
    reached when a person agrees; a host that is allowed by name, and not among those to `ask` about, may be reached
    unasked.
    """

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    origin_of: OriginOf | None = None
    ask: tuple[str, ...] = ()
    commands: Commands = "open"

    def check(self, url: str) -> str:
        """Return the host of a URL; where its name leads must be checked when it is connected to.

        Raises:
            PolicyError: it may not be reached, or it is not the URL of a host.
        """
        try:
            host = canonical_host(urlsplit(url).hostname or "")
        except ValueError as exc:
            raise PolicyError(f"not reachable: {shown(url)[:200]} ({exc})") from None
        for rule in self.deny:
            if rule not in self.allow and _is_in(host, rule):
                self._refuse(host, "deny", rule)
        if not any(_is_in(host, rule) for rule in self.allow):
            self._refuse(host, "allow")
        return host

    def is_named(self, host: str) -> bool:
        """True for a host that is named in advance, so that nobody has to be asked about it."""
        is_listed = any(_names(rule, host) for rule in self.allow)
        return is_listed and not any(_is_in(host, rule) for rule in self.ask)

    def refuses_address(self, address: str) -> bool:
        """True for an address that no name must lead to."""
        return any(rule not in self.allow and _is_in(address, rule) for rule in self.deny)

    def narrowed(
        self,
        allow: Sequence[str] | None,
        deny: Sequence[str],
        *,
        ask: Sequence[str] = (),
        commands: Commands = "open",
    ) -> Self:
        """Return the access that also keeps to these rules: of two lists of allowed hosts, what both allow."""
        allowed = self.allow
        if allow is not None:
            inner = [rule for rule in allow if any(_is_in(rule, outer) for outer in self.allow)]
            inner += [rule for rule in self.allow if any(_is_in(rule, outer) for outer in allow)]
            allowed = tuple(dict.fromkeys(rule for rule in inner if rule in self.allow or rule not in self.deny))
        allowed = tuple(rule for rule in allowed if rule not in deny)
        asked = tuple(dict.fromkeys((*self.ask, *ask, *newly_named(allowed, self.allow))))
        bound: Commands = "hosts" if "hosts" in (self.commands, commands) else "open"
        return replace(self, allow=allowed, deny=(*self.deny, *deny), ask=asked, commands=bound)

    @property
    def is_empty(self) -> bool:
        """Nothing may be reached at all."""
        return not self.allow

    def _refuse(self, host: str, rule: str, entry: str = "") -> None:
        key = f"network.{rule}"
        origin = self.origin_of(key, entry) if self.origin_of else ""
        where = f", {origin}" if origin else ""
        raise PolicyError(f"not reachable: {host} (policy.{key}{where})", rule=key)


def newly_named(allowed: Iterable[str], before: Iterable[str]) -> list[str]:
    """Return the hosts that a list names and that one before did not."""
    named = tuple(before)
    return [rule for rule in allowed if rule not in _CLASSES and not any(_names(outer, rule) for outer in named)]


def _names(rule: str, host: str) -> bool:
    """True where a rule names this very host, or with a `*` or a network hosts of which it is one."""
    if rule in _CLASSES:
        return False
    return rule == host or ("*" in rule and fnmatchcase(host, rule)) or ("/" in rule and _is_in(host, rule))


def _is_in(host: str, rule: str) -> bool:
    if rule == "*":
        return True
    address = _address(host)
    if rule == PRIVATE:
        is_local = host in _LOCAL_NAMES or host.endswith((".localhost", ".local", ".internal"))
        return is_local if address is None else not is_public(address)
    if "/" in rule:
        try:
            return address is not None and address in ip_network(rule, strict=False)
        except ValueError:
            return False
    return host == rule or host.endswith(f".{rule.removeprefix('*.')}") or fnmatchcase(host, rule)


def _address(host: str) -> Any:
    try:
        return ip_address(host)
    except ValueError:
        return None
