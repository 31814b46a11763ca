"""Which hosts may be reached, as far as the text of a URL can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import Any, Self
from urllib.parse import urlsplit

from amplifier_system.addresses import canonical_host, is_public
from amplifier_system.urls import shown

from .exceptions import PolicyError
from .path_access import OriginOf

PRIVATE = "private"
"""Stands in a list of hosts for every address that is not public, and for the names of this machine."""

_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """Hosts by name, `*.example.org`, network, `10.0.0.0/8`, or `private`; a denial outranks every permission."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    origin_of: OriginOf | None = None

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

    def narrowed(self, allow: Sequence[str] | None, deny: Sequence[str]) -> Self:
        """Return the access that also keeps to these rules: of two lists of allowed hosts, what both allow."""
        allowed = self.allow
        if allow is not None:
            inner = [rule for rule in allow if any(_is_in(rule, outer) for outer in self.allow)]
            inner += [rule for rule in self.allow if any(_is_in(rule, outer) for outer in allow)]
            allowed = tuple(dict.fromkeys(rule for rule in inner if rule in self.allow or rule not in self.deny))
        allowed = tuple(rule for rule in allowed if rule not in deny)
        return replace(self, allow=allowed, deny=(*self.deny, *deny))

    @property
    def is_empty(self) -> bool:
        """Nothing may be reached at all."""
        return not self.allow

    def _refuse(self, host: str, rule: str, entry: str = "") -> None:
        key = f"network.{rule}"
        origin = self.origin_of(key, entry) if self.origin_of else ""
        where = f", {origin}" if origin else ""
        raise PolicyError(f"not reachable: {host} (policy.{key}{where})", rule=key)


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
